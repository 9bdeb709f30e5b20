#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "cohort/values/distributed_values.h"

namespace cohort {

/// Where a value is wanted: on a device, or wherever another value lives.
///
///     extended.reduce_to(op, x, "cpu:1");       // on one device
///     extended.reduce_to(op, x, weight);        // on the devices of a variable
///     extended.reduce_to(op, x, x);             // on the devices of a distributed value
class Destinations {
 public:
  Destinations(const Device& device);                                        // NOLINT
  Destinations(const char* device) : Destinations(Device(device)) {}         // NOLINT
  Destinations(const std::string& device) : Destinations(Device(device)) {}  // NOLINT
  Destinations(const at::Tensor& tensor);                                    // NOLINT

  /// Anything that can tell its devices: distributed values, variables.
  template <class T>
  Destinations(const T& value) : Destinations(devices_of(value)) {}  // NOLINT

  /// Throws ValueError for a value that does not say where it is.
  explicit Destinations(DeviceList devices);

  const DeviceList& devices() const { return devices_; }
  std::size_t size() const { return devices_->size(); }

 private:
  template <class T>
  static DeviceList devices_of(const T& value) {
    static_assert(
        requires { DeviceList(value.devices()); },
        "a destination is a device, or a tensor, variable or distributed value that is where the "
        "result is wanted; a list of devices is none");
    return value.devices();
  }

  DeviceList devices_;
};

}  // namespace cohort
