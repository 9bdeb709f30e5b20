#include "cohort/distribute/destinations.h"

#include "cohort/base/error.h"

namespace cohort {

Destinations::Destinations(const Device& device)
    : devices_(std::make_shared<const std::vector<Device>>(std::vector<Device>{device})) {}

Destinations::Destinations(const at::Tensor& tensor) {
  if (!tensor.defined()) throw ValueError("Destinations", "the tensor is undefined");
  const c10::Device device = tensor.device();
  const int index = device.has_index() ? device.index() : 0;
  *this = Destinations(Device(device.type(), index));
}

Destinations::Destinations(DeviceList devices) : devices_(std::move(devices)) {
  if (!devices_ || devices_->empty()) {
    throw ValueError("Destinations",
                     "the value does not say on which devices it is; name a device instead");
  }
}

}  // namespace cohort
