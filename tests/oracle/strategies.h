#pragma once

#include <torch/torch.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "cohort/distribute/default_strategy.h"
#include "cohort/strategies/central_storage_strategy.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "cohort/strategies/one_device_strategy.h"
#include "cohort/variables/update.h"
#include "cohort/variables/variable.h"
#include "tests/oracle/oracle.h"

/// The strategies and small values that the scripts work with.
namespace cohort::oracle {

using at::Tensor;

inline Strategy mirrored(int n) {
  std::vector<Device> devices;
  for (int i = 0; i < n; ++i) devices.emplace_back(DeviceType::CPU, i);
  return MirroredStrategy(devices);
}
inline Strategy two() { return mirrored(2); }
inline Strategy three() { return mirrored(3); }
inline Strategy one_device() { return OneDeviceStrategy("CPU:0"); }
inline Strategy central() {
  return CentralStorageStrategy(
      {.compute_devices = {"CPU:0", "CPU:1"}, .parameter_device = "CPU:2"});
}

/// The strategy that the scripts' tables call "m2", "m3", "m1", "one", "cs" or "default".
inline Strategy strategy_named(const std::string& name) {
  if (name == "one") return one_device();
  if (name == "cs") return central();
  if (name == "default") return default_strategy();
  return mirrored(std::stoi(name.substr(1)));
}

inline Tensor scalar(double value, at::ScalarType dtype = at::kFloat) {
  return at::scalar_tensor(value, dtype);
}
inline Tensor vector(const std::vector<double>& values, at::ScalarType dtype = at::kFloat) {
  return at::tensor(values, at::kDouble).to(dtype);
}

/// One tensor for each replica.
inline PerReplica<Tensor> per(const Strategy& strategy, const std::vector<Tensor>& values) {
  return strategy.distribute_values_from_function(
      [&](const ValueContext& context) { return values[context.replica_id_in_sync_group]; });
}
inline PerReplica<Tensor> per(const Strategy& strategy, std::initializer_list<double> values) {
  std::vector<Tensor> tensors;
  for (const double value : values) tensors.push_back(scalar(value));
  return per(strategy, tensors);
}

/// Inside run: which replica this is, as a number and as a tensor.
inline int id() { return get_replica_context().replica_id_in_sync_group(); }
inline Tensor rid(at::ScalarType dtype = at::kFloat) { return scalar(id(), dtype); }

template <class F, class... Args>
auto merge_call(F&& fn, const Args&... args) {
  return get_replica_context().merge_call(fn, args...);
}

/// What a result looks like when the components of a PerReplica are these.
inline Json per_replica(const std::vector<Tensor>& components) {
  return encode(PerReplica<Tensor>(components));
}
inline Json per_replica(std::initializer_list<double> scalars) {
  std::vector<Tensor> components;
  for (const double value : scalars) components.push_back(scalar(value));
  return per_replica(components);
}

// Variables.

inline Variable variable(const Strategy& strategy, const Tensor& value,
                         VariableOptions options = {}) {
  const auto scope = strategy.scope();
  return Variable(value, std::move(options));
}
inline Variable variable(const Strategy& strategy, double value, VariableOptions options = {}) {
  return variable(strategy, scalar(value), std::move(options));
}

/// The components' values, as plain lists of numbers.
inline Json components(const Variable& variable) {
  Json list = Json::array();
  for (const Tensor& component : variable.components()) {
    list.push_back(encode_tensor(component)["value"]);
  }
  return list;
}

/// Gives each component a value of its own, which no public call would.
inline void set_components(const Variable& variable, std::initializer_list<double> values) {
  const at::NoGradGuard no_grad;
  std::size_t i = 0;
  for (const double value : values) variable.components()[i++].detach().fill_(value);
}

}  // namespace cohort::oracle
