#include "cohort/distribute/replica_layout.h"

#include "cohort/base/error.h"

namespace cohort {

ReplicaLayout::ReplicaLayout(std::vector<Device> devices, int replicas)
    : devices_(std::move(devices)) {
  const int count = static_cast<int>(devices_.size());
  if (count == 0) throw ValueError("Strategy", "no devices: name at least one");
  if (replicas == 0) replicas = count;
  if (replicas < count) {
    throw ValueError("Strategy", cat("fewer replicas than devices: expected at least ", count,
                                     ", got .replicas = ", replicas, "; name fewer devices"));
  }
  const int base = replicas / count;
  const int larger = replicas % count;  // the first ones take one more
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
