#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/values/nest.h"

/// A PerReplica of pairs, tuples, arrays or plain structs can be taken apart into a PerReplica of
/// each part:
///
///     for (const auto& [x, y] : distributed) strategy.run(step, x, y);
///
/// The parts are as the whole: small values that share the tensors of the components.
namespace cohort {

/// A type whose values have a fixed number of parts.
template <class T>
concept HasParts = nest::Tuple<T> || nest::Array<T> || nest::Struct<T>;

namespace detail {

template <class T>
auto tied_parts(const T& value) {
  if constexpr (nest::Struct<T>) {
    return nest::fields(value);
  } else {
    return std::apply([](const auto&... parts) { return std::tie(parts...); }, value);
  }
}

template <class T>
using TiedParts = decltype(tied_parts(std::declval<const T&>()));
template <std::size_t I, class T>
using PartOf = std::remove_cvref_t<std::tuple_element_t<I, TiedParts<T>>>;

}  // namespace detail

/// Part I of each component. (Structured bindings call this.)
template <std::size_t I, HasParts T>
PerReplica<detail::PartOf<I, T>> get(const PerReplica<T>& value) {
  std::vector<detail::PartOf<I, T>> parts;
  parts.reserve(value.size());
  for (const T& component : value.values()) {
    parts.push_back(std::get<I>(detail::tied_parts(component)));
  }
  return PerReplica<detail::PartOf<I, T>>(std::move(parts), value.devices());
}

}  // namespace cohort

template <cohort::HasParts T>
struct std::tuple_size<cohort::PerReplica<T>> : std::tuple_size<cohort::detail::TiedParts<T>> {};

template <std::size_t I, cohort::HasParts T>
struct std::tuple_element<I, cohort::PerReplica<T>> {
  using type = cohort::PerReplica<cohort::detail::PartOf<I, T>>;
};
