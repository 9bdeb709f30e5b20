#include "cohort/strategies/spread.h"

#include "cohort/base/error.h"
#include "cohort/spmd/dispatch.h"

namespace cohort {

Spread spread(const char* strategy, std::vector<Device> devices, int replicas, int per_replica) {
  if (per_replica < 1) {
    throw ValueError(strategy,
                     cat("logical_devices_per_replica must be positive, got ", per_replica));
  }
  if (per_replica == 1) return {ReplicaLayout(std::move(devices), replicas), {}};
  spmd::require_rules();  // before replicas call LibTorch, all at the same time
  const int count = static_cast<int>(devices.size());
  if (replicas == 0) {
    if (count > per_replica && count % per_replica != 0) {
      throw ValueError(strategy, cat(count, " devices do not divide into replicas of ", per_replica,
                                     " logical devices: name fewer, or set .replicas"));
    }
    replicas = std::max(1, count / per_replica);
  }
  const int total = replicas * per_replica;
  if (count > total) devices.resize(total);
  const ReplicaLayout places(std::move(devices), total);
  std::vector<Device> firsts;  // of the replicas, without repetitions
  for (int r = 0; r < replicas; ++r) {
    const Device& first = places.device(r * per_replica);
    if (firsts.empty() || !(firsts.back() == first)) firsts.push_back(first);
  }
  Spread result{ReplicaLayout(std::move(firsts), replicas), {}};
  for (int copy = 0; copy < result.layout.copies(); ++copy) {
    std::vector<Device> own;
    const int begin = result.layout.owner_of(copy) * per_replica;
    for (int k = 0; k < per_replica; ++k) own.push_back(places.device(begin + k));
    result.logical_devices.push_back(std::move(own));
  }
  return result;
}

}  // namespace cohort
