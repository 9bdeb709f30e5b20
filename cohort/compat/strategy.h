#pragma once

#include "cohort/compat/deprecated.h"
#include "cohort/distribute/strategy.h"

namespace cohort::compat {

/// `Strategy::run`, as TensorFlow 2.0 to 2.2 called it.
template <class F, class... Args>
auto experimental_run_v2(const Strategy& strategy, F&& fn, const Args&... args) {
  warn_deprecated("experimental_run_v2", "use strategy.run()");
  return strategy.run(fn, args...);
}

/// `Strategy::run` of a function without input, as TensorFlow 1 called it.
template <class F>
auto experimental_run(const Strategy& strategy, F&& fn) {
  warn_deprecated("experimental_run", "use strategy.run()");
  return strategy.run(fn);
}

/// `Strategy::local_results`.
template <class T>
auto experimental_local_results(const Strategy& strategy, const T& value) {
  warn_deprecated("experimental_local_results", "use strategy.local_results()");
  return strategy.local_results(value);
}

/// `Strategy::local_results`, by an even older name.
template <class T>
auto unwrap(const Strategy& strategy, const T& value) {
  warn_deprecated("unwrap", "use strategy.local_results()");
  return strategy.local_results(value);
}

/// In TensorFlow an operation that runs after all components of the value. Here a value that is
/// there has been computed, so this does nothing.
template <class T>
void group(const Strategy&, const T&) {
  warn_deprecated("group", "leave it out, values that are there have been computed");
}

/// `Strategy::distribute_values_from_function`.
template <class F>
auto experimental_distribute_values_from_function(const Strategy& strategy, F&& fn) {
  warn_deprecated("experimental_distribute_values_from_function",
                  "use strategy.distribute_values_from_function()");
  return strategy.distribute_values_from_function(fn);
}

/// `Strategy::assign_to_logical_device`.
inline at::Tensor experimental_assign_to_logical_device(const Strategy& strategy,
                                                        const at::Tensor& tensor,
                                                        int logical_device_id) {
  warn_deprecated("experimental_assign_to_logical_device",
                  "use strategy.assign_to_logical_device()");
  return strategy.assign_to_logical_device(tensor, logical_device_id);
}

/// `Strategy::split_to_logical_devices`.
inline at::Tensor experimental_split_to_logical_devices(
    const Strategy& strategy, const at::Tensor& tensor,
    const std::vector<std::int64_t>& partition_dimensions) {
  warn_deprecated("experimental_split_to_logical_devices",
                  "use strategy.split_to_logical_devices()");
  return strategy.split_to_logical_devices(tensor, partition_dimensions);
}

/// `Strategy::replicate_to_logical_devices`.
inline at::Tensor experimental_replicate_to_logical_devices(const Strategy& strategy,
                                                            const at::Tensor& tensor) {
  warn_deprecated("experimental_replicate_to_logical_devices",
                  "use strategy.replicate_to_logical_devices()");
  return strategy.replicate_to_logical_devices(tensor);
}

}  // namespace cohort::compat
