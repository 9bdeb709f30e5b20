#include "cohort/collectives/cross_device_all_reduce.h"

#include <ATen/ATen.h>

#include <map>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/collectives/packs.h"

namespace cohort {
namespace {

using collectives::TensorPerReplica;

bool on_own_devices(std::span<const at::Tensor> values, std::span<const Device> destinations) {
  if (values.size() != destinations.size()) return false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i].defined() || values[i].device() != destinations[i].torch_device()) return false;
  }
  return true;
}

/// The values that may be joined with each other: those of one dtype, by index.
std::map<at::ScalarType, std::vector<std::size_t>> by_dtype(
    std::span<const TensorPerReplica> values, std::span<const std::size_t> of) {
  std::map<at::ScalarType, std::vector<std::size_t>> groups;
  for (const std::size_t i : of) groups[values[i][0].scalar_type()].push_back(i);
  return groups;
}

std::vector<TensorPerReplica> select(std::span<const TensorPerReplica> values,
                                     std::span<const std::size_t> indices) {
  std::vector<TensorPerReplica> selected;
  for (const std::size_t i : indices) selected.push_back(values[i]);
  return selected;
}

}  // namespace

bool CrossDeviceAllReduce::can_reduce(std::span<const at::Tensor> values,
                                      std::span<const Device> destinations) const {
  if (!on_own_devices(values, destinations)) return false;
  if (values[0].is_sparse() && log::first("sparse-all-reduce")) {
    log::warning(name(), ": sparse tensors are concatenated on one device, which is slow");
  }
  return !values[0].is_sparse() && values[0].scalar_type() != at::kInt;
}

std::vector<at::Tensor> CrossDeviceAllReduce::reduce(ReduceOp op,
                                                     std::span<const at::Tensor> values,
                                                     std::span<const Device> destinations) const {
  if (!can_reduce(values, destinations)) return fallback_.reduce(op, values, destinations);
  return all_reduce(op, values, destinations, 0);
}

std::vector<at::Tensor> CrossDeviceAllReduce::all_reduce(ReduceOp op,
                                                         std::span<const at::Tensor> values,
                                                         std::span<const Device> devices,
                                                         std::size_t main) {
  const c10::Device place = devices[main].torch_device();
  std::vector<at::Tensor> moved;
  for (const at::Tensor& value : values) moved.push_back(value.detach().to(place));
  const at::Tensor sum = collectives::reduce_tensors(op, moved);
  std::vector<at::Tensor> results;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const bool is_new = i != main;
    results.push_back(sum.to(devices[i].torch_device(), /*non_blocking=*/false, /*copy=*/is_new));
  }
  return results;
}

PackedAllReduce::PackedAllReduce(const char* name, int num_packs) : num_packs_(num_packs) {
  if (num_packs < 0) {
    throw ValueError(name, cat("num_packs must not be negative, got ", num_packs));
  }
}

std::vector<TensorPerReplica> PackedAllReduce::batch_reduce(
    ReduceOp op, std::span<const TensorPerReplica> values,
    std::span<const Device> destinations) const {
  std::vector<TensorPerReplica> results(values.size());
  std::vector<std::size_t> joinable;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (num_packs_ > 0 && can_reduce(values[i], destinations)) {
      collectives::check_same(name(), values[i]);
      joinable.push_back(i);
    } else {
      results[i] = reduce(op, values[i], destinations);
    }
  }
  for (const auto& [dtype, group] : by_dtype(values, joinable)) {
    auto reduced = collectives::reduce_joined(
        select(values, group), num_packs_,
        [&](std::span<const at::Tensor> piece, std::size_t number) {
          return all_reduce(op, piece, destinations, number % destinations.size());
        });
    for (std::size_t k = 0; k < group.size(); ++k) results[group[k]] = std::move(reduced[k]);
  }
  return results;
}

bool NcclAllReduce::can_reduce(std::span<const at::Tensor>, std::span<const Device>) const {
  if (log::first("no-nccl")) {
    log::warning("NcclAllReduce: there is no NCCL for these devices: values are added on one");
  }
  return false;
}

CollectiveAllReduce::CollectiveAllReduce(const std::vector<Device>& devices, int group_size,
                                         CommunicationOptions options)
    : options_(options) {
  options_.validate();
  const int count = static_cast<int>(devices.size());
  if (count == 0 || group_size % count != 0) {
    throw ValueError("CollectiveAllReduce",
                     cat("group_size must be divisible by the number of devices: got ", group_size,
                         " for ", count, " devices"));
  }
}

std::vector<TensorPerReplica> CollectiveAllReduce::batch_reduce(
    ReduceOp op, std::span<const TensorPerReplica> values,
    std::span<const Device> destinations) const {
  std::vector<TensorPerReplica> results(values.size());
  std::vector<std::size_t> sent;  // last first: backward makes the last gradients first
  std::vector<std::int64_t> bytes;
  for (std::size_t i = values.size(); i-- > 0;) {
    const bool stays = values[i][0].defined() && values[i][0].device().is_cpu();
    if (stays || !can_reduce(values[i], destinations)) {
      results[i] = reduce(op, values[i], destinations);
    } else {
      collectives::check_same(name(), values[i]);
      sent.push_back(i);
      bytes.push_back(static_cast<std::int64_t>(values[i][0].nbytes()));
    }
  }
  for (const auto& pack : collectives::packs_by_size(bytes, options_.bytes_per_pack)) {
    std::vector<std::size_t> of_pack;
    of_pack.reserve(pack.size());
    for (const std::size_t k : pack) of_pack.push_back(sent[k]);
    for (const auto& [dtype, group] : by_dtype(values, of_pack)) {
      auto reduced = collectives::reduce_joined(
          select(values, group), 1, [&](std::span<const at::Tensor> piece, std::size_t) {
            return all_reduce(op, piece, destinations, 0);
          });
      for (std::size_t k = 0; k < group.size(); ++k) results[group[k]] = std::move(reduced[k]);
    }
  }
  return results;
}

}  // namespace cohort
