#pragma once

#include <any>
#include <map>
#include <string>

#include "cohort/base/never.h"
#include "cohort/compat/deprecated.h"
#include "cohort/input/strategy_input.h"

/// Input as TensorFlow 1 spelled it.
namespace cohort::compat {

/// `Strategy::distribute_dataset`.
template <class T>
auto experimental_distribute_dataset(const Strategy& strategy, const data::Dataset<T>& dataset,
                                     const InputOptions& options = {}) {
  warn_deprecated("experimental_distribute_dataset", "use strategy.distribute_dataset()");
  return strategy.distribute_dataset(dataset, options);
}

/// `Strategy::distribute_datasets_from_function`.
template <class F>
auto experimental_distribute_datasets_from_function(const Strategy& strategy, F&& fn,
                                                    const InputOptions& options = {}) {
  warn_deprecated("experimental_distribute_datasets_from_function",
                  "use strategy.distribute_datasets_from_function()");
  return strategy.distribute_datasets_from_function(fn, options);
}

/// `Strategy::make_numpy_dataset`.
template <class Nest>
auto experimental_make_numpy_dataset(const Strategy& strategy, const Nest& arrays) {
  warn_deprecated("experimental_make_numpy_dataset", "use strategy.make_numpy_dataset()");
  return strategy.make_numpy_dataset(arrays);
}

/// An iterator that can be started again.
template <class T>
class InputIterator {
 public:
  using value_type = T;

  explicit InputIterator(DistributedDataset<T> dataset) : dataset_(std::move(dataset)) {}

  /// The next step's element of each replica. Throws OutOfRange at the end.
  PerReplica<T> get_next() {
    if (!pass_) initialize();
    return pass_->get_next();
  }

  /// Starts again.
  void initialize() { pass_.emplace(dataset_.iterator()); }

 private:
  DistributedDataset<T> dataset_;
  std::optional<DistributedIterator<T>> pass_;
};

/// Over `strategy.distribute_dataset(dataset)`; may also be made inside of a replica.
template <class T>
InputIterator<T> make_dataset_iterator(const Strategy& strategy, const data::Dataset<T>& dataset) {
  warn_deprecated("make_dataset_iterator", "use strategy.distribute_dataset()");
  const InputReplicas replicas = cohort::detail::input_replicas(strategy.extended());
  return InputIterator<T>(distribute_dataset(dataset, replicas, InputOptions()));
}

/// Over the dataset that fn(const InputContext&) returns, whose elements go to the replicas in
/// turn; or over what the function that it returns gives, which is called once for each replica in
/// each step, for ever. Throws ValueError for another mode than PER_WORKER.
template <class F>
auto make_input_fn_iterator(const Strategy& strategy, F&& fn,
                            InputReplicationMode mode = InputReplicationMode::PER_WORKER) {
  warn_deprecated("make_input_fn_iterator", "use strategy.distribute_datasets_from_function()");
  if (mode != InputReplicationMode::PER_WORKER) {
    throw ValueError("make_input_fn_iterator",
                     "Input replication mode not supported: expected PER_WORKER");
  }
  using Result = std::remove_cvref_t<std::invoke_result_t<F&, const InputContext&>>;
  if constexpr (cohort::detail::kIsDataset<Result>) {
    return InputIterator<typename Result::value_type>(
        strategy.distribute_datasets_from_function(fn));
  } else if constexpr (std::is_invocable_v<Result&>) {
    using T = std::invoke_result_t<Result&>;
    const auto from_function = [&fn](const InputContext& context) {
      return data::from_generator(
          [make = fn(context)] { return [make]() mutable { return std::optional<T>(make()); }; });
    };
    return InputIterator<T>(strategy.distribute_datasets_from_function(
        from_function, InputOptions{.per_replica_buffer_size = 0}));
  } else {
    static_assert(kNever<F>,
                  "make_input_fn_iterator(fn): fn must return a data::Dataset, or a function that "
                  "returns elements");
  }
}

/// `strategy.run(fn, iterator.get_next())`.
template <class F, class T>
auto experimental_run(const Strategy& strategy, F&& fn, InputIterator<T>& iterator) {
  warn_deprecated("experimental_run", "use strategy.run()");
  return strategy.run(fn, iterator.get_next());
}

/// What the steps of `experimental_run_steps_on_iterator` leave behind.
class MultiStepContext {
 public:
  using Outputs = std::map<std::string, std::any>;

  /// Keeps an output of the last step: as it is, or with an operation reduced to one tensor.
  /// Inside of a replica the operation is needed, and all replicas must call this.
  template <class T>
  void set_last_step_output(const std::string& name, const T& output,
                            std::optional<ReduceOp> reduce_op = std::nullopt) {
    if constexpr (!nest::Distributed<T>) {  // those exist outside of replicas only
      if (auto* replica = current_replica()) {
        if (!reduce_op) {
          throw ValueError("MultiStepContext.set_last_step_output",
                           "inside of a replica a reduce_op is needed: SUM or MEAN");
        }
        return replica->merge_call(
            [&](Strategy& strategy, const PerReplica<T>& all) {
              last_step_outputs_[name] = strategy.reduce(*reduce_op, all);
            },
            output);
      }
    }
    if (reduce_op) {
      last_step_outputs_[name] = get_strategy().reduce(*reduce_op, output);
    } else {
      last_step_outputs_[name] = output;
    }
  }

  /// Keeps something that is no tensor; from replicas, a vector of what each one gave.
  template <class T>
  void set_non_tensor_output(const std::string& name, const T& output) {
    if (auto* replica = current_replica()) {
      replica->merge_call(
          [&](Strategy& strategy, const PerReplica<T>& all) {
            non_tensor_outputs_[name] = strategy.local_results(all);
          },
          output);
    } else {
      non_tensor_outputs_[name] = output;
    }
  }

  /// What was kept, by name.
  const Outputs& last_step_outputs() const& { return last_step_outputs_; }
  const Outputs& non_tensor_outputs() const& { return non_tensor_outputs_; }
  Outputs last_step_outputs() const&& { return last_step_outputs_; }
  Outputs non_tensor_outputs() const&& { return non_tensor_outputs_; }

 private:
  static ReplicaContext* current_replica() {
    return has_strategy() ? replica_context_or_null() : nullptr;
  }

  Outputs last_step_outputs_, non_tensor_outputs_;
};

/// Calls fn(context, inputs) `iterations` times, in cross-replica context, with the iterator's
/// next elements; returns the context. `initial` holds what the outputs are before the first
/// step.
template <class F, class T>
MultiStepContext experimental_run_steps_on_iterator(const Strategy& strategy, F&& fn,
                                                    InputIterator<T>& iterator, int iterations = 1,
                                                    MultiStepContext initial = {}) {
  warn_deprecated("experimental_run_steps_on_iterator", "write a loop around strategy.run()");
  const auto scope = strategy.scope();
  MultiStepContext context = std::move(initial);
  for (int i = 0; i < iterations; ++i) fn(context, iterator.get_next());
  return context;
}

}  // namespace cohort::compat
