#include "cohort/device/logical_devices.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <string>

#include "cohort/base/environment.h"
#include "cohort/base/error.h"
#include "cohort/device/allowed_cores.h"

namespace cohort {
namespace {

int count_cpu_slots() {
  if (const int configured = current_configuration().cpu_devices) return configured;
  if (const auto slots = environment::integer("COHORT_CPU_DEVICES", 1, kMaxCpuDevices)) {
    return *slots;
  }
  static const int cores = std::min(allowed_cores(), kMaxCpuDevices);
  return cores;
}

/// LibTorch registers its CUDA backend when the library is loaded; without it there are no GPUs.
int count_gpus() {
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA)) return 0;
  return c10::impl::getDeviceGuardImpl(c10::kCUDA)->deviceCount();
}

int count_devices(DeviceType type) {
  if (type == DeviceType::CPU) return count_cpu_slots();
  if (type == DeviceType::CUDA) return count_gpus();
  throw ValueError("list_logical_devices", cat("expected the type CPU or CUDA, got ", type));
}

/// `cpu:0`, or `cpu:0 … cpu:7`, or `no GPU`.
std::string describe_devices(DeviceType type) {
  const int count = count_devices(type);
  if (count == 0) return "no GPU";
  const std::string first = Device(type, 0).short_name();
  return count == 1 ? first : cat(first, " … ", Device(type, count - 1).short_name());
}

std::string advice(const Device& device) {
  if (!device.is_local()) return "a strategy's own devices are those of job localhost, task 0";
  if (device.type() == DeviceType::CUDA) return "LibTorch must see the GPU, or use CPU slots";
  const int needed = device.index() + 1;
  if (needed > kMaxCpuDevices) return cat("there can be ", kMaxCpuDevices, " CPU slots at most");
  return cat("for more CPU slots call cohort::configure({.cpu_devices = ", needed,
             "}) before the strategy is made, or set COHORT_CPU_DEVICES=", needed);
}

}  // namespace

std::vector<Device> list_logical_devices(DeviceType type) {
  std::vector<Device> devices;
  for (int index = 0, count = count_devices(type); index < count; ++index) {
    devices.emplace_back(type, index);
  }
  return devices;
}

std::vector<Device> list_logical_devices() {
  auto devices = list_logical_devices(DeviceType::CPU);
  for (auto& gpu : list_logical_devices(DeviceType::CUDA)) devices.push_back(std::move(gpu));
  return devices;
}

bool logical_device_exists(const Device& device) {
  return device.is_local() && device.index() < count_devices(device.type());
}

std::vector<Device> default_devices() {
  return list_logical_devices(count_gpus() > 0 ? DeviceType::CUDA : DeviceType::CPU);
}

std::vector<Device> resolve_devices(std::vector<Device> devices, std::string_view where) {
  if (devices.empty()) return default_devices();
  for (const auto& device : devices) {
    if (logical_device_exists(device)) continue;
    throw ValueError(where, cat("there is no device \"", device.spelled(), "\": this process has ",
                                describe_devices(DeviceType::CPU), " and ",
                                describe_devices(DeviceType::CUDA), "; ", advice(device)));
  }
  return devices;
}

}  // namespace cohort
