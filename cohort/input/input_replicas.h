#pragma once

#include <memory>
#include <vector>

#include "cohort/collectives/world.h"
#include "cohort/device/device.h"

namespace cohort {

/// The replicas that input is for: this worker's, and the world that they are part of.
///
/// With several workers it has a lane, on which they agree on the steps of one distributed dataset:
/// it is made once for each dataset, in the same order on all workers. Copies share the lane.
class InputReplicas {
 public:
  /// Of this process alone: one on each device.
  explicit InputReplicas(std::vector<Device> devices);
  /// Those that this worker has of a world: one on each device.
  InputReplicas(std::vector<Device> devices, std::shared_ptr<World> world);

  /// One for each local replica.
  const std::vector<Device>& devices() const { return devices_; }
  const World& world() const { return *world_; }

  /// The local replicas have the global ids [first, first + local).
  int local() const { return world_->local(); }
  int first() const { return world_->first(); }
  int id_of(int replica) const { return world_->id_of(replica); }
  int global() const { return world_->replicas(); }

  int workers() const { return world_->workers(); }
  int worker() const { return world_->index(); }

  /// Where the workers agree; there are several.
  WorldLane& lane() const { return *lane_; }

 private:
  std::vector<Device> devices_;
  std::shared_ptr<World> world_;
  std::shared_ptr<WorldLane> lane_;  // null in a world of one worker
};

}  // namespace cohort
