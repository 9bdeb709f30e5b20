#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/base/never.h"

namespace cohort {

/// The dimensions of each replica's tensor that a reduction is over: none, one or several.
/// Negative ones count from the end.
///
///     strategy.reduce(op, x)              // only over replicas
///     strategy.reduce(op, x, 0)           // over replicas and the batch
///     strategy.reduce(op, x, {0, 1})
class Axis {
 public:
  Axis() = default;
  Axis(std::nullopt_t) {}  // NOLINT(google-explicit-constructor)
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Axis(T axis) : Axis({static_cast<std::int64_t>(axis)}) {}                       // NOLINT
  Axis(std::initializer_list<std::int64_t> axes) : none_(false), axes_(axes) {}   // NOLINT
  Axis(std::vector<std::int64_t> axes) : none_(false), axes_(std::move(axes)) {}  // NOLINT

  template <class T>
    requires(!std::integral<T> || std::same_as<T, bool>)
  Axis(const T&) {  // NOLINT
    static_assert(kNever<T>, "an axis is an integer, or several in braces: {0, 1}");
  }

  bool none() const { return none_; }
  /// Empty when there are none.
  const std::vector<std::int64_t>& axes() const { return axes_; }

 private:
  bool none_ = true;  // an empty vector is not none: a mean over no axes still counts elements
  std::vector<std::int64_t> axes_;
};

}  // namespace cohort
