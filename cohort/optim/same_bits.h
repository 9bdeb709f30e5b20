#pragma once

#include <ATen/core/Tensor.h>

namespace cohort {

/// True if two dense tensors hold the same bytes, wherever they are, in parts or not. NaN is the
/// same as itself.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace cohort
