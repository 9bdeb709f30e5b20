#pragma once

#include "cohort/data/readers.h"
#include "cohort/distribute/strategy.h"
#include "cohort/input/distributed_dataset.h"
#include "cohort/input/input_context.h"

// The members of Strategy that speak of datasets.

namespace cohort {
namespace detail {

InputReplicas input_replicas(const StrategyExtended& strategy);
bool takes_dataset_per_replica(const StrategyExtended& strategy);

template <class T>
inline constexpr bool kIsDataset = false;
template <class T>
inline constexpr bool kIsDataset<data::Dataset<T>> = true;

/// Tensors, or numbers, which make up one array.
template <class T>
concept ListOfArrays = std::is_same_v<T, std::vector<bool>> ||
                       (nest::List<T> && (std::is_same_v<T, std::vector<at::Tensor>> ||
                                          std::is_arithmetic_v<typename T::value_type>));

}  // namespace detail

template <class T>
DistributedDataset<T> Strategy::distribute_dataset(const data::Dataset<T>& dataset,
                                                   const InputOptions& options) const {
  detail::refuse_in_replica("strategy.distribute_dataset");
  return cohort::distribute_dataset(dataset, detail::input_replicas(*extended_), options);
}

template <class T>
DistributedDataset<T> Strategy::distribute_dataset(const data::Dataset<T>& dataset) const {
  return distribute_dataset(dataset, InputOptions());
}

template <class F>
auto Strategy::distribute_datasets_from_function(F&& fn, const InputOptions& options) const {
  using Result = std::remove_cvref_t<std::invoke_result_t<F&, const InputContext&>>;
  static_assert(detail::kIsDataset<Result>,
                "distribute_datasets_from_function(fn): fn(const InputContext&) must return a "
                "data::Dataset");
  if constexpr (!detail::kIsDataset<Result>) {
    return;
  } else {
    detail::refuse_in_replica("strategy.distribute_datasets_from_function");
    check_function_options(options, detail::takes_dataset_per_replica(*extended_));
    const InputReplicas replicas = detail::input_replicas(*extended_);
    const int n = replicas.global();
    InputPlan plan;
    plan.depends_on_workers = options.replication_mode == InputReplicationMode::PER_WORKER;
    plan.reason = "each dataset is the function's own";
    if (plan.depends_on_workers) {
      check_even_workers("distribute_datasets_from_function", "a function with PER_WORKER",
                         replicas);
      plan.pipelines = {fn(InputContext{replicas.workers(), replicas.worker(), n}).node()};
    } else {
      plan.how = InputPlan::How::OWN;
      for (int i = 0; i < replicas.local(); ++i) {
        plan.pipelines.push_back(fn(InputContext{n, replicas.id_of(i), n}).node());
      }
    }
    const data::NodePtr first = plan.pipelines[0];
    plan.position_stages = cat(data::position_kinds(*first), ".distribute_datasets_from_function");
    return DistributedDataset<typename Result::value_type>(first, std::move(plan), replicas,
                                                           options);
  }
}

template <class F>
auto Strategy::distribute_datasets_from_function(F&& fn) const {
  return distribute_datasets_from_function(fn, InputOptions());
}

template <class Nest>
auto Strategy::make_numpy_dataset(const Nest& arrays) const {
  detail::require_cross_replica(*extended_, "strategy.make_numpy_dataset");
  if constexpr (std::is_convertible_v<const Nest&, std::string>) {
    return data::npy(arrays);
  } else if constexpr (detail::ListOfArrays<Nest>) {
    return data::from_tensor_slices(data::stack(arrays));
  } else {
    return data::from_tensor_slices(arrays);
  }
}

}  // namespace cohort
