#include "cohort/strategies/local_devices.h"

#include "cohort/base/error.h"
#include "cohort/device/logical_devices.h"
#include "cohort/device/machine.h"
#include "cohort/device/process_settings.h"

namespace cohort {

std::vector<Device> local_devices(const char* strategy, std::vector<Device> devices) {
  if (devices.empty()) devices = list_logical_devices(DeviceType::CUDA);
  if (devices.empty()) devices = list_logical_devices(DeviceType::CPU);
  for (const Device& device : devices) {
    if (device.is_local()) continue;
    throw ValueError(strategy, cat(device.name(),
                                   " belongs to another task: expected devices of "
                                   "this process; use MultiWorkerMirroredStrategy for several"));
  }
  return resolve_devices(std::move(devices));
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
