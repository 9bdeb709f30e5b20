#include "cohort/collectives/cross_device_ops.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "cohort/base/log.h"
#include "cohort/collectives/cross_device_all_reduce.h"
#include "cohort/device/logical_devices.h"

namespace cohort {
namespace {

constexpr int kLoggedReductions = 10;  // as many as TensorFlow

std::string list(std::span<const Device> devices) {
  std::string text;
  for (const Device& device : devices) text += (text.empty() ? "" : ", ") + device.short_name();
  return text;
}

bool all_of_type(std::span<const Device> devices, DeviceType type) {
  return std::all_of(devices.begin(), devices.end(),
                     [&](const Device& device) { return device.type() == type; });
}

}  // namespace

std::vector<std::vector<at::Tensor>> CrossDeviceOps::batch_reduce(
    ReduceOp op, std::span<const std::vector<at::Tensor>> values,
    std::span<const Device> destinations) const {
  std::vector<std::vector<at::Tensor>> results;
  results.reserve(values.size());
  for (const auto& value : values) results.push_back(reduce(op, value, destinations));
  return results;
}

std::vector<at::Tensor> CrossDeviceOps::broadcast(const at::Tensor& tensor,
                                                  std::span<const Device> destinations) const {
  std::vector<at::Tensor> copies;
  copies.reserve(destinations.size());
  for (const Device& device : destinations) {
    copies.push_back(tensor.detach().to(device.torch_device(), /*non_blocking=*/false,
                                        /*copy=*/true));
  }
  return copies;
}

const CrossDeviceOps::Accumulation& CrossDeviceOps::accumulation() const {
  static const auto* const addition = new Accumulation();
  return *addition;
}

ReductionToOneDevice::ReductionToOneDevice(Options options) : options_(std::move(options)) {}

std::vector<at::Tensor> ReductionToOneDevice::reduce(ReduceOp op,
                                                     std::span<const at::Tensor> values,
                                                     std::span<const Device> destinations) const {
  const Device main = options_.reduce_to_device.value_or(destinations[0]);
  if (logged_.load() < kLoggedReductions && logged_.fetch_add(1) < kLoggedReductions) {
    log::info("Reduce to ", main, " then broadcast to ", list(destinations));
  }
  std::vector<at::Tensor> gathered;
  for (const at::Tensor& value : values) {
    gathered.push_back(value.defined() ? value.detach().to(main.torch_device()) : value);
  }
  const at::Tensor sum = collectives::reduce_tensors(op, gathered, accumulation());
  std::vector<at::Tensor> results{sum.to(destinations[0].torch_device())};
  for (at::Tensor& copy : broadcast(sum, destinations.subspan(1))) {
    results.push_back(std::move(copy));
  }
  return results;
}

std::shared_ptr<CrossDeviceOps> default_cross_device_ops(std::span<const Device> devices) {
  if (!all_of_type(devices, devices[0].type())) return std::make_shared<ReductionToOneDevice>();
  return std::make_shared<CollectiveAllReduce>(std::vector(devices.begin(), devices.end()),
                                               static_cast<int>(devices.size()));
}

std::shared_ptr<CrossDeviceOps> select_cross_device_ops(std::span<const Device> devices) {
  for (const Device& device : devices) {
    if (logical_device_exists(device)) continue;
    log::warning("select_cross_device_ops: this process does not have ", device);
  }
  if (!all_of_type(devices, DeviceType::CUDA)) {
    log::warning("select_cross_device_ops: not all of ", list(devices),
                 " are GPUs: values are added on one device");
    return std::make_shared<ReductionToOneDevice>();
  }
  return std::make_shared<NcclAllReduce>();
}

}  // namespace cohort
