#pragma once

// The operators of tensors, for variables. Included by variable.h.

#include <ATen/TensorOperators.h>

#include "cohort/variables/variable.h"

namespace cohort {

// A variable in an expression is its value. `==` and `!=` of two variables ask whether they are
// the same one; with a tensor or a number they compare element by element, as `<` always does.
#define COHORT_VARIABLE_OPERATOR(op)                                      \
  inline at::Tensor operator op(const Variable& a, const at::Tensor& b) { \
    return at::Tensor(a) op b;                                            \
  }                                                                       \
  inline at::Tensor operator op(const at::Tensor& a, const Variable& b) { \
    return a op at::Tensor(b);                                            \
  }                                                                       \
  inline at::Tensor operator op(const Variable& a, const at::Scalar& b) { \
    return at::Tensor(a) op b;                                            \
  }                                                                       \
  inline at::Tensor operator op(const at::Scalar& a, const Variable& b) { \
    return a op at::Tensor(b);                                            \
  }
#define COHORT_VARIABLE_PAIR_OPERATOR(op)                               \
  COHORT_VARIABLE_OPERATOR(op)                                          \
  inline at::Tensor operator op(const Variable& a, const Variable& b) { \
    return at::Tensor(a) op at::Tensor(b);                              \
  }

COHORT_VARIABLE_PAIR_OPERATOR(+)
COHORT_VARIABLE_PAIR_OPERATOR(-)
COHORT_VARIABLE_PAIR_OPERATOR(*)
COHORT_VARIABLE_PAIR_OPERATOR(/)
COHORT_VARIABLE_PAIR_OPERATOR(%)
COHORT_VARIABLE_PAIR_OPERATOR(<)
COHORT_VARIABLE_PAIR_OPERATOR(<=)
COHORT_VARIABLE_PAIR_OPERATOR(>)
COHORT_VARIABLE_PAIR_OPERATOR(>=)
COHORT_VARIABLE_OPERATOR(==)
COHORT_VARIABLE_OPERATOR(!=)

#undef COHORT_VARIABLE_PAIR_OPERATOR
#undef COHORT_VARIABLE_OPERATOR

inline at::Tensor operator-(const Variable& a) { return -at::Tensor(a); }

}  // namespace cohort
