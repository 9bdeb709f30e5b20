#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cohort/cohort.h"
#include "tests/base/failing.h"
#include "tests/distribute/layouts.h"

namespace cohort {

using Numbers = std::vector<double>;

constexpr Aggregation kAggregations[] = {Aggregation::NONE, Aggregation::SUM, Aggregation::MEAN,
                                         Aggregation::ONLY_FIRST_REPLICA};

/// The own replica's number, as a tensor.
inline at::Tensor id_tensor() { return at::scalar_tensor(id(), at::kFloat); }

/// Words for what is done with variables on a strategy.
class VariableWords {
 public:
  explicit VariableWords(Strategy strategy) : strategy(std::move(strategy)) {}

  /// A variable of the strategy, 1.0 unless another value is given.
  Variable make(Synchronization synchronization, Aggregation aggregation,
                at::Tensor initial = at::scalar_tensor(1.0f)) const {
    const auto scope = strategy.scope();
    return Variable(initial, {.synchronization = synchronization, .aggregation = aggregation});
  }

  /// Sets the components of an ON_READ variable to their replicas' numbers.
  void set_to_ids(const Variable& v) const {
    strategy.run([&] { v.assign(id_tensor()); });
  }

  Strategy strategy;
};

/// A test of variables that runs on all layouts.
class VariablesOnLayouts : public OnLayouts {
 public:
  using OnLayouts::OnLayouts;
  void after() { expect_usable(); }

  /// As those of VariableWords. On workers, making a variable is a collective.
  Variable make(Synchronization synchronization, Aggregation aggregation,
                at::Tensor initial = at::scalar_tensor(1.0f)) const {
    return VariableWords(strategy).make(synchronization, aggregation, std::move(initial));
  }
  void set_to_ids(const Variable& v) const { VariableWords(strategy).set_to_ids(v); }
  StrategyExtended& extended() const { return strategy.extended(); }

  /// After a run that failed: collectives outside of runs are called in the next epoch.
  void begin_next_run() const {
    strategy.run([] {});
  }

  /// The replicas' numbers, as values of theirs.
  PerReplica<at::Tensor> ids() const {
    return strategy.run([] { return id_tensor(); });
  }
  double sum_of_ids() const { return n * (n - 1) / 2.; }
  double mean_of_ids() const { return (n - 1) / 2.; }

  /// This number, once for each replica of this worker.
  Numbers here(double number) const { return Numbers(n_here, number); }

  /// What the function makes of each number of this worker's replicas.
  template <class F>
  Numbers each_here(F&& number_of) const {
    Numbers all;
    for (const int replica : ids_here()) all.push_back(number_of(replica));
    return all;
  }
};

/// The first element of each component.
inline Numbers components(const Variable& v) {
  Numbers numbers;
  for (const at::Tensor& component : v.components()) {
    numbers.push_back(component.detach().reshape(-1)[0].item<double>());
  }
  return numbers;
}

/// For each component, the first one on the same device: the number of the copy in `update`.
inline std::vector<int> owners(const Variable& v) {
  const std::vector<Device>& devices = *v.devices();
  std::vector<int> first;
  for (const Device& device : devices) {
    first.push_back(std::find(devices.begin(), devices.end(), device) - devices.begin());
  }
  return first;
}

inline Numbers numbers(const std::vector<int>& values) { return {values.begin(), values.end()}; }

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

inline VariableWords two_replicas() { return VariableWords(mirrored(2)); }
inline VariableWords central_storage() {
  configure({.cpu_devices = 8});
  return VariableWords(CentralStorageStrategy({.compute_devices = {"cpu:0", "cpu:1"}}));
}
inline VariableWords one_device() { return VariableWords(OneDeviceStrategy("cpu:0")); }

}  // namespace cohort
