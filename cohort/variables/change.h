#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "cohort/variables/variable_state.h"

namespace cohort::detail {

/// A change of a variable's value: an assign of the whole, or of some rows (a scatter).
struct Change {
  enum Op {
    ASSIGN,
    ASSIGN_ADD,
    ASSIGN_SUB,
    SCATTER_SUB,
    SCATTER_ADD,
    SCATTER_MUL,
    SCATTER_DIV,
    SCATTER_MIN,
    SCATTER_MAX,
    SCATTER_UPDATE,
  };

  Op op;
  at::Tensor values;        ///< In the variable's dtype; for an assign also in its shape, unless
                            ///< it is what one replica brings to a meeting.
  at::Tensor indices = {};  ///< Of a scatter: the rows, as int64 on the CPU.

  bool is_scatter() const { return op >= SCATTER_SUB; }

  /// "assign_add", "scatter_max": as the method is called.
  const char* name() const;

  /// Does it to one copy, in place. Rows are changed in order, so that the same row may come twice.
  void apply_to(const at::Tensor& copy) const;
};

/// The changes that all replicas ask for as one change, by the variable's aggregation, which must
/// not be NONE. Dense values are added in tree order, slices are concatenated; those for a variable
/// that is stored once whatever the aggregation. Throws InvalidArgument where the replicas' shapes
/// differ and all of them count.
Change combine(const VariableState& variable, std::span<const Change* const> of_each_replica);

}  // namespace cohort::detail
