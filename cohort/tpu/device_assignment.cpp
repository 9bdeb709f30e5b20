#include "cohort/tpu/device_assignment.h"

#include <utility>

#include "cohort/base/error.h"
#include "cohort/tpu/place_replicas.h"

namespace cohort::tpu {
namespace {

constexpr const char* kDeviceAssignment = "DeviceAssignment";

/// The number of cores of replica 0, which must have some.
int cores_per_replica(const std::vector<std::vector<Coordinates>>& core_assignment) {
  if (!core_assignment.empty() && !core_assignment[0].empty()) {
    return static_cast<int>(core_assignment[0].size());
  }
  throw ValueError(
      kDeviceAssignment,
      cat("core_assignment must have at least one replica with at least one core, got ",
          core_assignment.empty() ? "no replicas" : "a replica 0 without cores"));
}

}  // namespace

DeviceAssignment::DeviceAssignment(Topology topology,
                                   const std::vector<std::vector<Coordinates>>& core_assignment)
    : DeviceAssignment(std::move(topology), core_assignment, cores_per_replica(core_assignment)) {}

DeviceAssignment::DeviceAssignment(Topology topology,
                                   std::vector<std::vector<Coordinates>> core_assignment,
                                   int num_cores_per_replica)
    : topology_(std::move(topology)),
      core_assignment_(std::move(core_assignment)),
      num_cores_per_replica_(num_cores_per_replica) {
  for (int replica = 0; replica < num_replicas(); ++replica) {
    const auto cores = static_cast<int>(core_assignment_[replica].size());
    if (cores != num_cores_per_replica_) {
      throw ValueError(kDeviceAssignment,
                       cat("all replicas must have the same number of cores: replica 0 has ",
                           num_cores_per_replica_, ", replica ", replica, " has ", cores));
    }
    for (int core = 0; core < cores; ++core) {
      const int task = topology_.task_ordinal_at_coordinates(core_assignment_[replica][core]);
      replicas_[{task, core}].push_back(replica);
    }
  }
}

DeviceAssignment DeviceAssignment::build(Topology topology, const AssignmentOptions& options) {
  auto places = place_replicas(topology, options);
  int cores = 1;
  for (const int size : options.computation_shape) cores *= size;
  return DeviceAssignment(std::move(topology), std::move(places), cores);
}

const Coordinates& DeviceAssignment::coordinates(int replica, int logical_core) const& {
  if (replica < 0 || replica >= num_replicas() || logical_core < 0 ||
      logical_core >= num_cores_per_replica_) {
    throw ValueError(kDeviceAssignment,
                     cat("there is no logical core ", logical_core, " of replica ", replica, ": ",
                         num_replicas(), " replicas have ", num_cores_per_replica_, " each"));
  }
  return core_assignment_[replica][logical_core];
}

int DeviceAssignment::tpu_ordinal(int replica, int logical_core) const {
  return topology_.tpu_device_ordinal_at_coordinates(coordinates(replica, logical_core));
}

std::string DeviceAssignment::tpu_device(int replica, int logical_core,
                                         std::string_view job) const {
  return topology_.tpu_device_name_at_coordinates(coordinates(replica, logical_core), job);
}

std::string DeviceAssignment::host_device(int replica, int logical_core,
                                          std::string_view job) const {
  return topology_.cpu_device_name_at_coordinates(coordinates(replica, logical_core), job);
}

const std::vector<int>& DeviceAssignment::lookup_replicas(int task_id, int logical_core) const& {
  const auto found = replicas_.find({task_id, logical_core});
  if (found != replicas_.end()) return found->second;
  throw ValueError("DeviceAssignment.lookup_replicas",
                   cat("no replica has its logical core ", logical_core, " in task ", task_id,
                       ": replicas have ", num_cores_per_replica_, " logical cores, in ",
                       topology_.num_tasks(), " tasks"));
}

}  // namespace cohort::tpu
