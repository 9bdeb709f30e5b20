#pragma once

// The templates of Strategy, StrategyExtended and ReplicaContext: thin, they only turn nests into
// leaves. Included by strategy.h.

#include <tuple>
#include <type_traits>

#include "cohort/base/never.h"
#include "cohort/distribute/merge_call.h"
#include "cohort/distribute/strategy.h"
#include "cohort/values/call.h"

namespace cohort {
namespace detail {

/// Replica i's view of an argument; without distributed leaves the argument itself, not a copy.
template <class T>
decltype(auto) argument_for(const T& value, std::size_t i, std::size_t replicas,
                            const char* where = "strategy.run") {
  if constexpr (std::is_same_v<decltype(nest::select(value, i, replicas)), T>) {
    return static_cast<const T&>(value);
  } else {
    return nest::select(value, i, replicas, where);
  }
}

template <class F, class... Args>
using ReplicaResult = std::remove_cvref_t<decltype(nest::call(
    std::declval<F&>(),
    argument_for(std::declval<const Args&>(), std::size_t(), std::size_t())...))>;

/// Collects what each replica returns, in its own place.
template <class T>
class Results {
 public:
  explicit Results(std::size_t replicas) : results_(replicas) {}
  template <class Make>
  void set(std::size_t i, Make&& make) {
    results_[i].emplace(make());
  }
  std::vector<T> take() {
    std::vector<T> all;
    all.reserve(results_.size());
    for (auto& result : results_) all.push_back(*std::move(result));
    return all;
  }

 private:
  std::vector<std::optional<T>> results_;
};

}  // namespace detail

template <class F, class... Args>
auto StrategyExtended::call_for_each_replica(F&& fn, const Args&... args) {
  static_assert(nest::Takes<F, decltype(detail::argument_for(args, 0, 0))...>,
                "strategy.run(fn, args...): fn can't be called with these arguments; inside run a "
                "PerReplica<T> argument is a T");
  using Result = detail::ReplicaResult<F, Args...>;
  const std::size_t n = layout().local();
  auto call = [&](ReplicaContext& replica) -> decltype(auto) {
    return nest::call(fn, detail::argument_for(args, replica.local_id(), n)...);
  };
  if constexpr (std::is_void_v<Result>) {
    run_replicas([&](ReplicaContext& replica) { call(replica); });
  } else {
    detail::Results<Result> results(n);
    run_replicas([&](ReplicaContext& replica) {
      results.set(replica.local_id(), [&]() -> Result { return call(replica); });
    });
    return nest::merge(results.take(), layout().replica_devices());
  }
}

template <class F, class... Args>
  requires(!std::same_as<std::remove_cvref_t<F>, RunOptions>)
auto Strategy::run(F&& fn, const Args&... args) const {
  const auto keep = extended_->shared_from_this();
  return keep->call_for_each_replica(fn, args...);
}

template <class F, class... Args>
auto Strategy::run(const RunOptions&, F&& fn, const Args&... args) const {
  return run(fn, args...);
}

template <class Nest>
auto Strategy::reduce(ReduceOp op, const Nest& value, const Axis& axis) const {
  detail::require_cross_replica(*extended_, "strategy.reduce",
                                "use replica_context.all_reduce() there");
  return map_reducible(
      [&](const Reducible& leaf) { return extended_->reduce_leaf(op, leaf, axis); }, value);
}

template <class Nest>
auto Strategy::gather(const Nest& value, std::int64_t axis) const {
  detail::require_cross_replica(*extended_, "strategy.gather",
                                "use replica_context.all_gather() there");
  return map_reducible([&](const Reducible& leaf) { return extended_->gather_leaf(leaf, axis); },
                       value);
}

template <class T>
auto Strategy::local_results(const T& value) const {
  if constexpr (nest::Distributed<T>) {
    return std::vector<typename T::value_type>(value.values().begin(), value.values().end());
  } else if constexpr (requires { value.components(); }) {
    return value.components();  // a variable
  } else if constexpr (nest::Leaf<T> || nest::Struct<T>) {
    return std::vector<T>{value};
  } else {
    const std::size_t n = extended_->layout().local();
    std::vector<decltype(nest::select(value, 0, n))> each;
    for (std::size_t i = 0; i < n; ++i) {
      each.push_back(nest::select(value, i, n, "strategy.local_results"));
    }
    return each;
  }
}

template <class F>
auto Strategy::distribute_values_from_function(F&& fn) const {
  detail::refuse_in_replica("strategy.distribute_values_from_function");
  const ReplicaLayout& layout = extended_->layout();
  using Value = std::remove_cvref_t<std::invoke_result_t<F&, const ValueContext&>>;
  std::vector<Value> values;
  for (int i = 0; i < layout.local(); ++i) {
    values.push_back(fn(ValueContext{layout.id_of(i), layout.global()}));
  }
  return nest::merge(values, layout.replica_devices());
}

template <class Nest>
auto StrategyExtended::reduce_to(ReduceOp op, const Nest& value, const Destinations& destinations,
                                 const CommunicationOptions& options) {
  detail::require_cross_replica(*this, "extended.reduce_to",
                                "use replica_context.all_reduce() there");
  return map_reducible(
      [&](const Reducible& leaf) { return reduce_leaf_to(op, leaf, destinations, options); },
      value);
}

template <class Value>
std::vector<Mirrored<at::Tensor>> StrategyExtended::batch_reduce_to(
    ReduceOp op, const std::vector<std::pair<Value, Destinations>>& value_destination_pairs,
    const CommunicationOptions& options) {
  detail::require_cross_replica(*this, "extended.batch_reduce_to",
                                "use replica_context.all_reduce() there");
  std::vector<Reducible> values;
  std::vector<Destinations> destinations;
  for (const auto& [value, destination] : value_destination_pairs) {
    values.push_back(map_reducible([](const Reducible& leaf) { return leaf; }, value));
    destinations.push_back(destination);
  }
  return batch_reduce_leaves(op, values, destinations, options);
}

template <class T>
Mirrored<at::Tensor> StrategyExtended::broadcast_to(const T& tensor,
                                                    const Destinations& destinations) {
  return broadcast_tensor(to_tensor(tensor), destinations);
}

// ReplicaContext.

namespace detail {
template <class F, class... Args>
auto merge_call(ReplicaContext& replica, F& fn, const Args&... args);  // merge_call.h
}  // namespace detail

template <class F, class... Args>
auto ReplicaContext::merge_call(F&& fn, const Args&... args) {
  return detail::merge_call(*this, fn, args...);
}

namespace detail {

/// The nest with tensors in place of numbers and variables.
template <class Nest>
auto as_tensors(const Nest& value) {
  return nest::map(
      []<class L>(const L& leaf) {
        if constexpr (nest::Struct<L>) {
          return leaf;
        } else if constexpr (nest::Distributed<L>) {
          static_assert(kNever<L>,
                        "a PerReplica can't be reduced inside run(): take x.local() there");
          return at::Tensor();
        } else {
          return to_tensor(leaf);
        }
      },
      value);
}

/// Replaces all tensors of a nest at once by those that `collective` makes of them.
template <class Nest, class Collective>
auto through_collective(const Nest& value, Collective&& collective) {
  auto result = as_tensors(value);
  std::vector<at::Tensor> leaves;
  nest::visit([&](auto& leaf) { leaves.push_back(to_tensor(leaf)); }, result);
  std::vector<at::Tensor> combined = collective(std::move(leaves));
  std::size_t next = 0;
  nest::visit(
      [&]<class L>(L& leaf) {
        if constexpr (Number<L>) {
          leaf = combined[next++].template item<L>();
        } else {
          leaf = std::move(combined[next++]);
        }
      },
      result);
  return result;
}

}  // namespace detail

template <class Nest>
auto ReplicaContext::all_reduce(ReduceOp op, const Nest& value,
                                const CommunicationOptions& options) {
  return detail::through_collective(value, [&](std::vector<at::Tensor> leaves) {
    return all_reduce_tensors(op, std::move(leaves), options);
  });
}

template <class Nest>
auto ReplicaContext::all_gather(const Nest& value, std::int64_t axis,
                                const CommunicationOptions& options) {
  return detail::through_collective(value, [&](std::vector<at::Tensor> leaves) {
    return all_gather_tensors(std::move(leaves), axis, options);
  });
}

}  // namespace cohort
