#pragma once

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cohort/values/nest.h"

namespace cohort::nest {
namespace detail {

/// References to the parts of a tuple or pair; to the argument itself, if it is something else.
template <class T>
auto parts(T&& argument) {
  if constexpr (Tuple<std::remove_cvref_t<T>>) {
    return std::apply(
        [](auto&&... each) { return std::forward_as_tuple(std::forward<decltype(each)>(each)...); },
        std::forward<T>(argument));
  } else {
    return std::forward_as_tuple(std::forward<T>(argument));
  }
}

template <class F, class Parts>
inline constexpr bool kTakes = false;
template <class F, class... Parts>
inline constexpr bool kTakes<F, std::tuple<Parts...>> = std::is_invocable_v<F&, Parts...>;

}  // namespace detail

/// A function that takes the arguments, or takes the parts of those that are tuples or pairs.
template <class F, class... Args>
concept Takes = std::is_invocable_v<F&, Args...> ||
                detail::kTakes<F, decltype(std::tuple_cat(detail::parts(std::declval<Args>())...))>;

/// fn(args…); where fn does not take them, tuples and pairs among them are given part by part:
///
///     call([](const Tensor& images, const Tensor& labels) { … }, std::pair(images, labels))
template <class F, class... Args>
  requires Takes<F, Args...>
decltype(auto) call(F& fn, Args&&... args) {
  if constexpr (std::is_invocable_v<F&, Args...>) {
    return std::invoke(fn, std::forward<Args>(args)...);
  } else {
    return std::apply(fn, std::tuple_cat(detail::parts(std::forward<Args>(args))...));
  }
}

}  // namespace cohort::nest
