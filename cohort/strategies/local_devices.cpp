#include "cohort/strategies/local_devices.h"

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/device/logical_devices.h"
#include "cohort/device/machine.h"
#include "cohort/device/process_settings.h"

namespace cohort {

std::vector<Device> local_devices(const char* strategy, std::vector<Device> devices) {
  if (devices.empty()) devices = list_logical_devices(DeviceType::CUDA);
  if (devices.empty()) devices = list_logical_devices(DeviceType::CPU);
  const auto is_remote = [](const Device& device) { return !device.is_local(); };
  const auto remote = std::find_if(devices.begin(), devices.end(), is_remote);
  if (remote != devices.end()) {
    const auto text = cat(remote->name(),
                          " belongs to another task: expected devices of this process; use "
                          "MultiWorkerMirroredStrategy for several");
    if (std::all_of(devices.begin(), devices.end(), is_remote)) throw RuntimeError(strategy, text);
    throw ValueError(strategy, text);
  }
  return resolve_devices(std::move(devices), strategy);
}

std::vector<Device> distinct_local_devices(const char* strategy, std::vector<Device> devices) {
  devices = local_devices(strategy, std::move(devices));
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto rest = devices.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(devices.begin(), rest, devices[i]) == rest) continue;
    throw ValueError(strategy, cat(devices[i],
                                   " is named twice: name each device once, and set .replicas "
                                   "for several replicas on one device"));
  }
  return devices;
}

std::string names_of(const std::vector<Device>& devices) {
  std::string text;
  for (const Device& device : devices) text += (text.empty() ? "" : ", ") + device.short_name();
  return text;
}

void prepare_process() {
  apply_process_settings();
  warn_if_reference_blas();
}

}  // namespace cohort
