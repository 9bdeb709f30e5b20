#pragma once

#include <ostream>
#include <string>
#include <string_view>

#include "cohort/base/never.h"

namespace cohort {

/// How values of several replicas are combined: their sum, or their mean.
///
/// Wherever one is wanted its name may be given too, in any case: `reduce("sum", x)`.
class ReduceOp {
 public:
  enum Kind { SUM, MEAN };

  constexpr ReduceOp(Kind kind) : kind_(kind) {}  // NOLINT(google-explicit-constructor)

  /// Throws ValueError for a name other than "sum" and "mean".
  ReduceOp(std::string_view name);                                         // NOLINT
  ReduceOp(const char* name) : ReduceOp(std::string_view(name)) {}         // NOLINT
  ReduceOp(const std::string& name) : ReduceOp(std::string_view(name)) {}  // NOLINT

  template <class T>
  ReduceOp(T) {  // NOLINT
    static_assert(kNever<T>, "a reduce op is ReduceOp::SUM, ReduceOp::MEAN, or one of their names");
  }

  constexpr operator Kind() const { return kind_; }  // NOLINT(google-explicit-constructor)
  const char* name() const { return kind_ == SUM ? "SUM" : "MEAN"; }

  friend std::ostream& operator<<(std::ostream& out, ReduceOp op) { return out << op.name(); }

 private:
  Kind kind_;
};

}  // namespace cohort
