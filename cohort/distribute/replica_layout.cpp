#include "cohort/distribute/replica_layout.h"

#include "cohort/base/error.h"

namespace cohort {

namespace {

/// How many replicas a process on its own has.
int count_replicas(const std::vector<Device>& devices, int replicas) {
  if (devices.empty()) throw ValueError("Strategy", "no devices: name at least one");
  return replicas == 0 ? static_cast<int>(devices.size()) : replicas;
}

}  // namespace

ReplicaLayout::ReplicaLayout(std::vector<Device> devices, int replicas)
    : ReplicaLayout(devices, World::alone(count_replicas(devices, replicas))) {}

ReplicaLayout::ReplicaLayout(std::vector<Device> devices, std::shared_ptr<World> world)
    : world_(std::move(world)), devices_(std::move(devices)) {
  const int count = static_cast<int>(devices_.size());
  if (count == 0) throw ValueError("Strategy", "no devices: name at least one");
  if (local() < count) {
    throw ValueError("Strategy", cat("fewer replicas than devices: expected at least ", count,
                                     ", got .replicas = ", local(), "; name fewer devices"));
  }
  const int base = local() / count;
  const int larger = local() % count;  // the first ones take one more
  std::vector<Device> each;
  for (int d = 0; d < count; ++d) {
    owner_.push_back(static_cast<int>(device_of_.size()));
    for (int i = 0; i < base + (d < larger ? 1 : 0); ++i) {
      device_of_.push_back(d);
      each.push_back(devices_[d]);
    }
  }
  replica_devices_ = std::make_shared<const std::vector<Device>>(std::move(each));
}

}  // namespace cohort
