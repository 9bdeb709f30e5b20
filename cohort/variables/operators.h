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
COHORT_VARIABLE_PAIR_OPERATOR(&)
COHORT_VARIABLE_PAIR_OPERATOR(|)
COHORT_VARIABLE_PAIR_OPERATOR(^)
COHORT_VARIABLE_PAIR_OPERATOR(<)
COHORT_VARIABLE_PAIR_OPERATOR(<=)
COHORT_VARIABLE_PAIR_OPERATOR(>)
COHORT_VARIABLE_PAIR_OPERATOR(>=)
COHORT_VARIABLE_OPERATOR(==)
COHORT_VARIABLE_OPERATOR(!=)

#undef COHORT_VARIABLE_PAIR_OPERATOR
#undef COHORT_VARIABLE_OPERATOR

inline at::Tensor operator-(const Variable& a) { return -at::Tensor(a); }
inline at::Tensor operator~(const Variable& a) { return ~at::Tensor(a); }

// With `=` they change the variable, as they change a tensor: `+=` is `assign_add`, `-=` is
// `assign_sub`, and the others are `v.assign(v op x)`. So in a replica the variable's aggregation
// holds, and every replica must come. Unlike there, x may have fewer elements than v and is
// repeated. (In Python `v += x` makes `v` a name of a new tensor, which C++ has no way to do.)
inline const Variable& operator+=(const Variable& v, const AssignValue& x) {
  v.assign_add(x.broadcast_to(v.sizes()), {.read_value = false});
  return v;
}
inline const Variable& operator-=(const Variable& v, const AssignValue& x) {
  v.assign_sub(x.broadcast_to(v.sizes()), {.read_value = false});
  return v;
}
#define COHORT_VARIABLE_ASSIGNMENT(op)                            \
  template <class T>                                              \
    requires requires(const Variable& v, const T& x) { v op x; }  \
  const Variable& operator op##=(const Variable& v, const T& x) { \
    v.assign(v op x, {.read_value = false});                      \
    return v;                                                     \
  }

COHORT_VARIABLE_ASSIGNMENT(*)
COHORT_VARIABLE_ASSIGNMENT(/)
COHORT_VARIABLE_ASSIGNMENT(%)
COHORT_VARIABLE_ASSIGNMENT(&)
COHORT_VARIABLE_ASSIGNMENT(|)
COHORT_VARIABLE_ASSIGNMENT(^)

#undef COHORT_VARIABLE_ASSIGNMENT

}  // namespace cohort
