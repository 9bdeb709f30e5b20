#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/tpu/topology.h"

namespace cohort::tpu {

/// How `DeviceAssignment::build` numbers replicas, and the logical cores of a replica.
enum class DeviceOrderMode {
  AUTO,  ///< RING where it is possible, else MESH.
  RING,  ///< Along a ring of chips, so that what replicas pass on goes to a neighbour each time.
  MESH,  ///< Core by core of a chip, then along x, y and z.
};

/// What `DeviceAssignment::build` is to find places for.
struct AssignmentOptions {
  /// The block of cores that one replica has, along x, y, z and the cores of a chip. The default is
  /// one core; a larger block makes the replica's logical devices.
  std::vector<int> computation_shape = {1, 1, 1, 1};

  /// How far apart the cores of a block are along each axis. Replicas interleave then.
  std::vector<int> computation_stride = {1, 1, 1, 1};

  int num_replicas = 1;

  DeviceOrderMode order = DeviceOrderMode::AUTO;
};

/// Which core of a TPU system each logical core of each replica is.
///
///     // 2 replicas of 4 cores each.
///     const auto assignment = tpu::DeviceAssignment::build(
///         topology, {.computation_shape = {1, 2, 1, 2}, .num_replicas = 2});
///     assignment.coordinates(1, 0);        // [1, 0, 0, 0]
///     assignment.tpu_device(1, 0);         // "/task:0/device:TPU:2"
///
/// Replicas and logical cores are numbered from 0. All functions that take their numbers throw
/// ValueError for one that does not exist.
///
/// A constant object may be used from several threads.
class DeviceAssignment {
 public:
  /// `core_assignment[replica][logical core]` is that core's place in the mesh. A core may have
  /// several replicas. Where the device is missing, its task and its number are -1; a TPUStrategy
  /// refuses such an assignment.
  ///
  /// Throws ValueError if there is no replica, a replica has no core or another number of them than
  /// replica 0, or a place is outside of the mesh.
  DeviceAssignment(Topology topology, const std::vector<std::vector<Coordinates>>& core_assignment);

  /// Places the replicas in a compact grid, none over another.
  ///
  /// RING is possible if a replica has all cores of its chips, there is no stride, and there are as
  /// many replicas as fit into the mesh. Where a size of the grid is odd there is no ring, and the
  /// log has a warning.
  ///
  /// If devices are missing, replicas take what there is in the order of tasks and devices,
  /// whatever the block's form and the order asked for.
  ///
  /// Throws ValueError for a shape or a stride that is not four positive numbers, a block larger
  /// than the mesh, a number of replicas that is negative or does not fit, an impossible RING, and
  /// a stride where devices are missing. No replicas are allowed, and get an assignment of none.
  static DeviceAssignment build(Topology topology, const AssignmentOptions& options = {});

  const Topology& topology() const& { return topology_; }
  Topology topology() const&& { return topology_; }
  int num_replicas() const { return static_cast<int>(core_assignment_.size()); }
  int num_cores_per_replica() const { return num_cores_per_replica_; }

  /// As [replica][logical core].
  const std::vector<std::vector<Coordinates>>& core_assignment() const& { return core_assignment_; }
  std::vector<std::vector<Coordinates>> core_assignment() const&& { return core_assignment_; }

  const Coordinates& coordinates(int replica, int logical_core) const&;
  Coordinates coordinates(int replica, int logical_core) const&& {
    return coordinates(replica, logical_core);
  }

  /// The number of the core's device in its task.
  int tpu_ordinal(int replica = 0, int logical_core = 0) const;

  /// The name of the core's device, and of the CPU that it is attached to, with "/job:J" if there
  /// is a job.
  std::string tpu_device(int replica = 0, int logical_core = 0, std::string_view job = {}) const;
  std::string host_device(int replica = 0, int logical_core = 0, std::string_view job = {}) const;

  /// The replicas whose logical core of this number is in the task, in ascending order. Throws
  /// ValueError if there are none.
  const std::vector<int>& lookup_replicas(int task_id, int logical_core) const&;
  std::vector<int> lookup_replicas(int task_id, int logical_core) const&& {
    return lookup_replicas(task_id, logical_core);
  }

 private:
  DeviceAssignment(Topology topology, std::vector<std::vector<Coordinates>> core_assignment,
                   int num_cores_per_replica);

  Topology topology_;
  std::vector<std::vector<Coordinates>> core_assignment_;
  int num_cores_per_replica_;
  std::map<std::pair<int, int>, std::vector<int>> replicas_;  // by task and logical core
};

}  // namespace cohort::tpu
