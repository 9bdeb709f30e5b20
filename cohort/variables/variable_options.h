#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace cohort {

/// When the copies of a variable are brought together. The numbers are TensorFlow's.
enum class Synchronization {
  AUTO = 0,      ///< The strategy decides; where there are copies, ON_WRITE.
  NONE = 1,      ///< One copy, never synchronized: an error where a strategy makes copies.
  ON_WRITE = 2,  ///< The copies are always the same: what replicas assign is aggregated first.
  ON_READ = 3,   ///< Each replica has its own value; reading outside of replicas aggregates them.
};

/// How the values of the replicas become one. The numbers are TensorFlow's.
enum class Aggregation {
  NONE = 0,  ///< Not at all: assigning in a replica (or reading, with ON_READ) is an error.
  SUM = 1,
  MEAN = 2,
  ONLY_FIRST_REPLICA = 3,  ///< The value of the job's first replica counts for all.
};

/// "ON_READ", "MEAN"; the number, for something that is none of them.
std::ostream& operator<<(std::ostream& out, Synchronization synchronization);
std::ostream& operator<<(std::ostream& out, Aggregation aggregation);

/// How a variable is to be. The defaults make a model's weight.
struct VariableOptions {
  /// What errors, printing and checkpoints call it. Need not be unique; empty means "Variable".
  std::string name = {};

  /// Whether an optimizer changes it. None means yes, except for ON_READ.
  std::optional<bool> trainable = {};

  /// ON_READ suits what each replica gathers for itself, such as a metric's total.
  Synchronization synchronization = Synchronization::AUTO;

  /// Needed by variables that replicas assign to. MEAN needs a floating-point variable.
  Aggregation aggregation = Aggregation::NONE;

  /// None takes the initial value's.
  std::optional<c10::ScalarType> dtype = {};

  /// The logical device of each replica that runs what is done with the value there; a scope of
  /// `extended().logical_device(k)` sets it.
  std::optional<int> logical_device = {};

  /// Or: how each replica sees the value split over its logical devices, in parts of each
  /// dimension.
  std::vector<std::int64_t> logical_split = {};

  /// Kept for optimizers, which set the variable to constraint(value) after each step.
  std::function<at::Tensor(const at::Tensor&)> constraint = {};
};

}  // namespace cohort
