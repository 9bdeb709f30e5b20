#pragma once

#include <string_view>
#include <vector>

#include "cohort/device/configuration.h"
#include "cohort/device/device.h"

/// The devices that this process has.
///
/// GPUs are the ones that LibTorch sees. CPU devices are execution slots: how many there are is
/// for the program to say (`configure`), then for `COHORT_CPU_DEVICES`; else there is one for each
/// core that affinity and cgroup allow, as found when first asked. Slots are not bound to cores.
///
/// All functions may be called from any thread. Those that count CPU slots throw ValueError if
/// they need `COHORT_CPU_DEVICES` and it is not a number from 1 to `kMaxCpuDevices`.
namespace cohort {

/// All devices of one type, by index; empty if there are none. Throws ValueError for a type other
/// than CPU and CUDA.
std::vector<Device> list_logical_devices(DeviceType type);

/// All devices of this process, CPU first.
std::vector<Device> list_logical_devices();

/// Whether this process has the device. A device of another task is not this process's.
bool logical_device_exists(const Device& device);

/// What a strategy runs on if it is not told: all GPUs, else all CPU slots.
std::vector<Device> default_devices();

/// Checks the devices that a user gave to `where` ("MirroredStrategy") and returns them; none given
/// means `default_devices()`. Repeated devices are let through.
///
/// Throws ValueError for a device that does not exist, unlike TensorFlow, which would run it
/// elsewhere. The text lists what exists and says how to get more CPU slots.
std::vector<Device> resolve_devices(std::vector<Device> devices,
                                    std::string_view where = "resolve_devices");

}  // namespace cohort
