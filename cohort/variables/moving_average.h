#pragma once

#include <utility>
#include <vector>

#include "cohort/variables/variable.h"

namespace cohort {

/// Moves a variable towards a value: variable · decay + value · (1 - decay). Returns the new value.
///
/// In a replica all replicas must call it: their values' mean counts, whatever the variable's
/// aggregation, and all copies move alike. Elsewhere the value goes to each copy.
at::Tensor assign_moving_average(const Variable& variable, const at::Tensor& value, double decay);

/// Keeps the moving average of variables, each in a variable of its own.
///
///     ExponentialMovingAverage average(0.99);
///     average.apply({weight});              // after each step
///     average.average(weight).value();
///
/// `apply` may be called inside of `run`, by all replicas. Its first call for a variable, which
/// makes the average with the variable's value, must be outside of replicas.
class ExponentialMovingAverage {
 public:
  explicit ExponentialMovingAverage(double decay) : decay_(decay) {}

  /// Throws RuntimeError for a variable that is new, in a replica.
  void apply(const std::vector<Variable>& variables);

  /// Throws KeyError for a variable that `apply` was never called for.
  Variable average(const Variable& variable) const;

 private:
  const Variable* find(const Variable& variable) const;

  double decay_;
  std::vector<std::pair<Variable, Variable>> averages_;  // a variable and its average
};

}  // namespace cohort
