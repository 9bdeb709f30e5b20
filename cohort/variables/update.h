#pragma once

// `StrategyExtended::update` and its relatives: functions that change the copies of variables.

#include <ATen/core/grad_mode.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/base/hash.h"
#include "cohort/base/never.h"
#include "cohort/distribute/context.h"
#include "cohort/distribute/strategy.h"
#include "cohort/variables/variable.h"
#include "cohort/variables/variable_state.h"

namespace cohort {
namespace detail {

/// Makes a strategy current in cross-replica context, for a block, unless it is already; the
/// default strategy never is.
class EnterCrossReplica {
 public:
  explicit EnterCrossReplica(StrategyExtended& strategy);

 private:
  std::optional<ModeGuard> mode_;
};

/// In update context of one copy, or of none, for a block: on its device, without gradients.
class UpdateContext {
 public:
  UpdateContext(std::optional<int> component, const Device& device)
      : update_(component), device_(device) {}

 private:
  UpdateGuard update_;
  DeviceScope device_;
  at::NoGradGuard no_grad_;
};

/// Throws RuntimeError in the wrong context and for a variable that is lost, ValueError for one of
/// another strategy.
void check_update(const StrategyExtended& strategy, const Variable& variable);

/// Where `update_non_slot` calls its function. Throws ValueError unless `colocate_with` are the
/// strategy's `non_slot_devices`.
Placement non_slot_placement(const StrategyExtended& strategy,
                             const std::vector<Device>& colocate_with);

/// The own replica if the thread runs as one of this strategy; null for everything else, also for
/// the default strategy's standing replica.
ReplicaContext* running_replica(const StrategyExtended& strategy);

[[noreturn]] void throw_per_replica_argument(const char* where);
/// `first` is the number of this worker's first replica, and `replica` counts from there.
[[noreturn]] void throw_replicas_differ(const char* where, int first, std::size_t replica);
void check_same_on_replicas(const char* where, int first, std::span<const at::Tensor> values);

/// Throws TypeError on all workers where the digests of their arguments differ. A collective.
void check_same_on_workers(StrategyExtended& strategy, const char* where,
                           FunctionRef<std::uint64_t()> digest_of_arguments);

/// What an argument adds to the digest: tensors by their values. Types without values that can be
/// read add nothing.
void add_to_digest(Hash& digest, const at::Tensor& value);
template <class T>
void add_to_digest(Hash& digest, const T& value) {
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    digest.add(&value, sizeof value);
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    digest.add(std::string_view(value));
  }
}

/// Throws TypeError if a PerReplica is anywhere in the nest: the copies of a variable must not
/// be given different values.
template <class Nest>
void refuse_per_replica(const char* where, const Nest& value) {
  nest::visit(
      [&]<class L>(const L&) {
        if constexpr (nest::detail::kIs<std::remove_cv_t<L>, PerReplica>) {
          throw_per_replica_argument(where);
        }
      },
      value);
}

/// A PerReplica of numbers, text and the like: refused by the compiler. One of tensors is refused
/// when the call is made, with the TypeError of `refuse_per_replica`.
template <class T>
concept PerReplicaOfHostValues =
    nest::detail::kIs<T, PerReplica> && !std::same_as<typename T::value_type, at::Tensor>;

/// The merged argument of a replica-context call as one value; throws TypeError where the values
/// of this worker's replicas differ.
template <class Nest>
auto same_on_all(const char* where, int first, const Nest& merged) {
  return nest::map(
      [&]<class L>(const L& leaf) {
        if constexpr (!nest::detail::kIs<L, PerReplica>) {
          return leaf;
        } else {
          const auto values = leaf.values();
          using Value = typename L::value_type;
          if constexpr (std::same_as<Value, at::Tensor>) {
            check_same_on_replicas(where, first, values);
          } else if constexpr (requires {
                                 { values[0] == values[0] } -> std::same_as<bool>;
                               }) {
            for (std::size_t r = 1; r < values.size(); ++r) {
              if (!(values[r] == values[0])) throw_replicas_differ(where, first, r);
            }
          }
          return values[0];
        }
      },
      merged);
}

template <class... Nests>
std::uint64_t digest_of(const Nests&... nests) {
  Hash digest;
  [[maybe_unused]] const auto add = [&]<class L>(const L& leaf) { add_to_digest(digest, leaf); };
  (nest::visit(add, nests), ...);
  return digest.value();
}

/// Gathers leaves into Mirrored values, or vectors, with a component for each entry of `copy_of`.
struct MirrorLeaf {
  const DeviceList& devices;
  template <class T>
  auto operator()(std::span<const T* const> leaves) const {
    std::vector<T> values;
    for (const T* leaf : leaves) values.push_back(*leaf);
    return Mirrored<T>(std::move(values), devices);
  }
};
struct ListLeaf {
  template <class T>
  auto operator()(std::span<const T* const> leaves) const {
    std::vector<T> values;
    for (const T* leaf : leaves) values.push_back(*leaf);
    return values;
  }
};

/// Results of the copies, side by side for the components that `copy_of` assigns to them.
template <class Leaf, class Result>
auto spread(const Leaf& leaf, const std::vector<Result>& of_copies, std::span<const int> copy_of) {
  std::vector<const Result*> each;
  for (const int copy : copy_of) each.push_back(&of_copies[copy]);
  return nest::zip(leaf, std::span<const Result* const>(each));
}

enum class Grouping { MIRRORED, LISTED };

/// The update context names the component, or is that of a host which is no replica.
enum class Updates { COMPONENT, HOST };

/// Calls `call(component)` in update context of each copy, with the first component over it, and
/// groups what it returns.
template <Grouping grouping, class Call>
auto for_each_copy(const Placement& placement, Updates updates, Call&& call) {
  using Result = std::remove_cvref_t<std::invoke_result_t<Call&, int>>;
  const int copies = static_cast<int>(placement.copies.size());
  auto in_context = [&](int copy) {
    const int component = placement.first_of[copy];
    const auto id = updates == Updates::HOST ? std::nullopt : std::optional(component);
    const UpdateContext context(id, placement.copies[copy]);
    return call(component);
  };
  if constexpr (std::is_void_v<Result>) {
    for (int copy = 0; copy < copies; ++copy) in_context(copy);
  } else {
    std::vector<Result> results;
    for (int copy = 0; copy < copies; ++copy) results.push_back(in_context(copy));
    const std::span<const int> copy_of(placement.copy_of);
    if constexpr (grouping == Grouping::MIRRORED) {
      return spread(MirrorLeaf{placement.devices}, results,
                    copy_of.first(placement.devices->size()));
    } else {
      return spread(ListLeaf(), results, copy_of);
    }
  }
}

template <Grouping grouping, class F, class... Args>
auto update_in_cross_replica(StrategyExtended& strategy, const Variable& variable, F& fn,
                             const Args&... args) {
  static_assert(std::is_invocable_v<F&, at::Tensor&, decltype(argument_for(args, 0, 0))...>,
                "extended.update(variable, fn, args...): fn must take (Tensor& copy, args...); a "
                "Mirrored<T> argument is a T there");
  check_update(strategy, variable);
  (refuse_per_replica("extended.update", args), ...);
  const EnterCrossReplica entered(strategy);
  const VariableState& state = *variable.state();
  return for_each_copy<grouping>(state.placement, Updates::COMPONENT, [&](int component) {
    at::Tensor copy = state.components[component];
    return fn(copy, argument_for(args, component, state.components.size(), "extended.update")...);
  });
}

/// In a replica: the replicas meet, and one of them does it for all.
template <Grouping grouping, class F, class... Args>
  requires(!(PerReplicaOfHostValues<Args> || ...))
auto update_variable(StrategyExtended& strategy, const Variable& variable, F& fn,
                     const Args&... args) {
  using Result = decltype(update_in_cross_replica<grouping>(strategy, variable, fn, args...));
  ReplicaContext* const replica = running_replica(strategy);
  if (!replica) return update_in_cross_replica<grouping>(strategy, variable, fn, args...);
  const int first = strategy.world().first();
  auto for_all = [&, first](Strategy& current, const auto&... merged) {
    const auto update = [&](const auto&... same) {
      check_same_on_workers(current.extended(), "extended.update",
                            [&] { return digest_of(same...); });
      return update_in_cross_replica<grouping>(current.extended(), variable, fn, same...);
    };
    return update(same_on_all("extended.update", first, merged)...);
  };
  if constexpr (std::is_void_v<Result>) {
    replica->merge_call(for_all, args...);
  } else {
    // Behind a pointer, which merge_call gives to every replica as it is.
    return *replica->merge_call(
        [&](Strategy& current, const auto&... merged) {
          return std::make_shared<const Result>(for_all(current, merged...));
        },
        args...);
  }
}

template <Grouping, class F, class... Args>
  requires(PerReplicaOfHostValues<Args> || ...)
void update_variable(StrategyExtended&, const Variable&, F&, const Args&...) {
  static_assert(
      kNever<F>,
      "extended.update(variable, fn, args...): the copies of a variable must be given the "
      "same values, and a PerReplica is one for each replica: reduce it first with "
      "strategy.reduce() or extended.reduce_to()");
}

template <Grouping grouping, class F, class... Args>
auto update_devices(StrategyExtended& strategy, const std::vector<Device>& devices, F& fn,
                    const Args&... args) {
  constexpr const char* kWhere = "extended.update_non_slot";
  require_cross_replica(strategy, kWhere);
  (refuse_per_replica(kWhere, args), ...);
  const Placement placement = non_slot_placement(strategy, devices);
  const EnterCrossReplica entered(strategy);
  const Updates updates = strategy.non_slot_host() ? Updates::HOST : Updates::COMPONENT;
  return for_each_copy<grouping>(placement, updates, [&]([[maybe_unused]] int component) {
    return fn(argument_for(args, component, placement.copy_of.size(), kWhere)...);
  });
}

}  // namespace detail

template <class F, class... Args>
auto StrategyExtended::update(const Variable& variable, F&& fn, const Args&... args) {
  return detail::update_variable<detail::Grouping::MIRRORED>(*this, variable, fn, args...);
}

template <class F, class... Args>
auto StrategyExtended::update_ungrouped(const Variable& variable, F&& fn, const Args&... args) {
  return detail::update_variable<detail::Grouping::LISTED>(*this, variable, fn, args...);
}

template <class F, class... Args>
auto StrategyExtended::update_non_slot(const std::vector<Device>& colocate_with, F&& fn,
                                       const Args&... args) {
  return detail::update_devices<detail::Grouping::MIRRORED>(*this, colocate_with, fn, args...);
}

/// `update_non_slot` with the results of each replica in a vector, leaf by leaf.
template <class F, class... Args>
auto update_non_slot_ungrouped(StrategyExtended& extended, const std::vector<Device>& colocate_with,
                               F&& fn, const Args&... args) {
  return detail::update_devices<detail::Grouping::LISTED>(extended, colocate_with, fn, args...);
}

/// While it lives, variables are made where another one is. Cohort keeps all variables of a
/// strategy in the same places anyway, so this only checks that the variable is one of them, and
/// that it ends in order.
class [[nodiscard]] VariableColocation {
 public:
  VariableColocation();
  ~VariableColocation();
  VariableColocation(const VariableColocation&) = delete;
  VariableColocation& operator=(const VariableColocation&) = delete;
};

}  // namespace cohort
