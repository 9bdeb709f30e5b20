#include "cohort/input/input_replicas.h"

#include "cohort/collectives/world_lane.h"

namespace cohort {

InputReplicas::InputReplicas(std::vector<Device> devices)
    : devices_(std::move(devices)), world_(World::alone(static_cast<int>(devices_.size()))) {}

InputReplicas::InputReplicas(std::vector<Device> devices, std::shared_ptr<World> world)
    : devices_(std::move(devices)), world_(std::move(world)) {
  if (world_->workers() == 1) return;
  const World::Turn turn = world_->take_turn();
  lane_ = world_->make_lane_beside_runs("strategy.distribute_dataset");
}

}  // namespace cohort
