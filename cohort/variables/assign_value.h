#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "cohort/distribute/reducible.h"
#include "cohort/values/mirrored.h"
#include "cohort/values/per_replica.h"

namespace cohort {

class Variable;

/// What can be assigned to a variable; made by the call itself:
///
///     v.assign(tensor)   v.assign(0.5)   v.assign(other_variable)   v.assign(mirrored)
///
/// A PerReplica stands for the own component inside of `run`; elsewhere assigning it is a
/// TypeError, as the copies of a variable must not differ. A number fits a variable without
/// dimensions.
class AssignValue {
 public:
  AssignValue(at::Tensor tensor) : tensor_(std::move(tensor)) {}  // NOLINT(google-explicit-*)
  template <Number T>
  AssignValue(T number) : tensor_(to_tensor(number)), is_number_(true) {}    // NOLINT
  AssignValue(const Variable& variable);                                     // NOLINT
  AssignValue(const Mirrored<at::Tensor>& value) : tensor_(value.get()) {}   // NOLINT
  AssignValue(const PerReplica<at::Tensor>& value) : per_replica_(value) {}  // NOLINT

  bool is_number() const { return is_number_; }
  bool is_per_replica() const { return per_replica_.has_value(); }

  /// The value in the current context. A PerReplica throws ValueError outside of `run`.
  at::Tensor tensor() const { return per_replica_ ? per_replica_->local() : tensor_; }

  /// The value repeated to these sizes, as LibTorch's operators do; as it is, where it can't be.
  AssignValue broadcast_to(at::IntArrayRef sizes) const;

 private:
  at::Tensor tensor_;
  bool is_number_ = false;
  std::optional<PerReplica<at::Tensor>> per_replica_;
};

struct AssignOptions {
  /// False returns an undefined tensor. Saves the aggregation that reading an ON_READ variable
  /// costs.
  bool read_value = true;
};

}  // namespace cohort
