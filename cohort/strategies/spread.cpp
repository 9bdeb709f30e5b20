#include "cohort/strategies/spread.h"

#include "cohort/base/error.h"
#include "cohort/spmd/dispatch.h"

namespace cohort {

namespace {

void check_logical_devices(const char* strategy, int per_replica) {
  if (per_replica >= 1) return;
  throw ValueError(strategy,
                   cat("logical_devices_per_replica must be positive, got ", per_replica));
}

/// As many replicas as have devices of their own.
int count_replicas(const char* strategy, int devices, int per_replica) {
  if (devices > per_replica && devices % per_replica != 0) {
    throw ValueError(strategy, cat(devices, " devices do not divide into replicas of ", per_replica,
                                   " logical devices: name fewer, or set .replicas"));
  }
  return std::max(1, devices / per_replica);
}

}  // namespace

Spread spread(const char* strategy, std::vector<Device> devices, int replicas, int per_replica) {
  check_logical_devices(strategy, per_replica);
  const int count = static_cast<int>(devices.size());
  if (replicas == 0) replicas = count_replicas(strategy, count, per_replica);
  return spread(strategy, std::move(devices), World::alone(replicas), per_replica);
}

Spread spread(const char* strategy, std::vector<Device> devices, std::shared_ptr<World> world,
              int per_replica) {
  check_logical_devices(strategy, per_replica);
  if (per_replica == 1) return {ReplicaLayout(std::move(devices), std::move(world)), {}};
  spmd::require_rules();  // before replicas call LibTorch, all at the same time
  const int replicas = world->local();
  const int total = replicas * per_replica;
  if (static_cast<int>(devices.size()) > total) devices.resize(total);
  const ReplicaLayout places(std::move(devices), total);
  std::vector<Device> firsts;  // of the replicas, without repetitions
  for (int r = 0; r < replicas; ++r) {
    const Device& first = places.device(r * per_replica);
    if (firsts.empty() || !(firsts.back() == first)) firsts.push_back(first);
  }
  Spread result{ReplicaLayout(std::move(firsts), std::move(world)), {}};
  for (int copy = 0; copy < result.layout.copies(); ++copy) {
    std::vector<Device> own;
    const int begin = result.layout.owner_of(copy) * per_replica;
    for (int k = 0; k < per_replica; ++k) own.push_back(places.device(begin + k));
    result.logical_devices.push_back(std::move(own));
  }
  return result;
}

}  // namespace cohort
