#pragma once

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

/// The fields of a plain struct, without a macro: `fields(example)` ties them into a tuple of
/// references. For aggregates without bases, with up to twelve fields.
namespace cohort::nest {
namespace detail {

/// Converts to whatever a field wants; only ever named in unevaluated code.
struct AnyField {
  template <class T>
  operator T() const;
};

template <class S, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { S{(static_cast<void>(I), AnyField{})...}; };
}

template <class S, std::size_t N = 12>
constexpr std::size_t count_fields() {
  if constexpr (takes<S>(std::make_index_sequence<N>())) {
    return N;
  } else if constexpr (N == 0) {
    return 0;
  } else {
    return count_fields<S, N - 1>();
  }
}

}  // namespace detail

/// A struct that is nothing but its fields, such as `struct Example { Tensor images, labels; }`.
template <class T>
concept Struct = std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_empty_v<T> &&
                 !requires { std::tuple_size<T>::value; } && !requires(T t) { t.begin(); };

template <class S>
constexpr auto fields(S& s) {
  constexpr std::size_t n = detail::count_fields<std::remove_const_t<S>>();
  static_assert(n >= 1 && n <= 12, "nests take structs of one to twelve fields");
  // clang-format off
  if constexpr (n == 1) { auto& [a] = s; return std::tie(a); }
  else if constexpr (n == 2) { auto& [a, b] = s; return std::tie(a, b); }
  else if constexpr (n == 3) { auto& [a, b, c] = s; return std::tie(a, b, c); }
  else if constexpr (n == 4) { auto& [a, b, c, d] = s; return std::tie(a, b, c, d); }
  else if constexpr (n == 5) { auto& [a, b, c, d, e] = s; return std::tie(a, b, c, d, e); }
  else if constexpr (n == 6) { auto& [a, b, c, d, e, f] = s; return std::tie(a, b, c, d, e, f); }
  else if constexpr (n == 7) { auto& [a, b, c, d, e, f, g] = s; return std::tie(a, b, c, d, e, f, g); }
  else if constexpr (n == 8) { auto& [a, b, c, d, e, f, g, h] = s; return std::tie(a, b, c, d, e, f, g, h); }
  else if constexpr (n == 9) { auto& [a, b, c, d, e, f, g, h, i] = s; return std::tie(a, b, c, d, e, f, g, h, i); }
  else if constexpr (n == 10) { auto& [a, b, c, d, e, f, g, h, i, j] = s; return std::tie(a, b, c, d, e, f, g, h, i, j); }
  else if constexpr (n == 11) { auto& [a, b, c, d, e, f, g, h, i, j, k] = s; return std::tie(a, b, c, d, e, f, g, h, i, j, k); }
  else { auto& [a, b, c, d, e, f, g, h, i, j, k, l] = s; return std::tie(a, b, c, d, e, f, g, h, i, j, k, l); }
  // clang-format on
}

}  // namespace cohort::nest
