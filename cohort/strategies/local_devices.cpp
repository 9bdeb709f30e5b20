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
