#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cohort/cohort.h"
#include "tests/base/failing.h"

namespace cohort {

using Numbers = std::vector<double>;

/// A strategy, and words for what is done with variables on it.
class VariableWords {
 public:
  explicit VariableWords(Strategy strategy) : strategy(std::move(strategy)) {}

  /// A variable of the strategy, 1.0 unless another value is given.
  Variable make(Synchronization synchronization, Aggregation aggregation,
                at::Tensor initial = at::scalar_tensor(1.0f)) const {
    const auto scope = strategy.scope();
    return Variable(initial, {.synchronization = synchronization, .aggregation = aggregation});
  }

  /// Sets the components of an ON_READ variable to 0, 1, 2, …
  void set_to_ids(const Variable& v) const {
    strategy.run([&] { v.assign(id()); });
  }

  /// The own replica's number, as a tensor.
  static at::Tensor id() {
    return at::scalar_tensor(get_replica_context().replica_id_in_sync_group(), at::kFloat);
  }

  Strategy strategy;
};

/// The first element of each component.
inline Numbers components(const Variable& v) {
  Numbers numbers;
  for (const at::Tensor& component : v.components()) {
    numbers.push_back(component.detach().reshape(-1)[0].item<double>());
  }
  return numbers;
}

inline double number(const at::Tensor& tensor) { return tensor.item<double>(); }

inline Numbers numbers(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kDouble).contiguous().reshape(-1);
  return {values.data_ptr<double>(), values.data_ptr<double>() + values.numel()};
}

inline Numbers numbers(const PerReplica<at::Tensor>& values) {
  Numbers all;
  for (const at::Tensor& value : values.values()) all.push_back(value.item<double>());
  return all;
}

inline VariableWords two_replicas() { return VariableWords(MirroredStrategy({"cpu:0", "cpu:1"})); }
inline VariableWords four_replicas_on_two_devices() {
  return VariableWords(MirroredStrategy({.devices = {"cpu:0", "cpu:1"}, .replicas = 4}));
}
inline VariableWords central_storage() {
  return VariableWords(CentralStorageStrategy({.compute_devices = {"cpu:0", "cpu:1"}}));
}
inline VariableWords one_device() { return VariableWords(OneDeviceStrategy("cpu:0")); }

}  // namespace cohort
