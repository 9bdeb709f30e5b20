#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <span>
#include <type_traits>
#include <vector>

#include "cohort/values/nest.h"

namespace cohort {

/// A leaf on its way into a reduction: its components, and what they mean.
struct Reducible {
  enum Kind {
    PER_REPLICA,  ///< One component for each local replica.
    MIRRORED,     ///< The same value on every replica.
    SINGLE,       ///< One value that is not distributed.
  };
  Kind kind;
  std::vector<at::Tensor> values;
  DeviceList devices;
};

/// A scalar tensor of the number's own type: int is int32, float is float32, double is float64.
at::Tensor number_tensor(double value, c10::ScalarType dtype);
at::Tensor number_tensor(std::int64_t value, c10::ScalarType dtype);

template <class T>
concept Number = std::is_arithmetic_v<T>;

/// A leaf that a reduction understands: a tensor, a number, or something that turns itself into
/// a Reducible (a variable).
template <class T>
concept ReducibleLeaf = std::same_as<T, at::Tensor> || Number<T> || requires(const T& leaf) {
  { leaf.reducible() } -> std::same_as<Reducible>;
};

template <class T>
at::Tensor to_tensor(const T& leaf) {
  if constexpr (std::same_as<T, at::Tensor>) {
    return leaf;
  } else if constexpr (std::floating_point<T>) {
    return number_tensor(static_cast<double>(leaf), c10::CppTypeToScalarType<T>::value);
  } else if constexpr (Number<T>) {
    return number_tensor(static_cast<std::int64_t>(leaf), c10::CppTypeToScalarType<T>::value);
  } else {
    static_assert(
        requires { leaf.value(); },
        "only tensors, numbers, variables and nests of them can be reduced");
    return leaf.value();
  }
}

template <class T>
Reducible to_reducible(const T& leaf) {
  if constexpr (requires { leaf.reducible(); }) {
    return leaf.reducible();
  } else {
    return {Reducible::SINGLE, {to_tensor(leaf)}, nullptr};
  }
}

/// Applies f(Reducible) -> R to every leaf of a value: of a nest of distributed values, and of a
/// distributed value of nests alike. The nest of the results.
template <class F, class T>
auto map_reducible(F&& f, const T& value) {
  return nest::map(
      [&f]<class L>(const L& leaf) {
        if constexpr (nest::Distributed<L>) {
          using Item = typename L::value_type;
          std::vector<const Item*> items;
          for (const Item& item : leaf.values()) items.push_back(&item);
          const auto kind =
              std::same_as<L, PerReplica<Item>> ? Reducible::PER_REPLICA : Reducible::MIRRORED;
          return nest::zip(
              [&]<class Part>(std::span<const Part* const> parts) {
                Reducible reducible{kind, {}, leaf.devices()};
                for (const Part* part : parts) reducible.values.push_back(to_tensor(*part));
                return f(reducible);
              },
              std::span<const Item* const>(items));
        } else {
          return f(to_reducible(leaf));
        }
      },
      value);
}

}  // namespace cohort
