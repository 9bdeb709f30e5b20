#pragma once

#include <ATen/core/Tensor.h>

namespace cohort {

/// True if two dense tensors hold the same bytes, wherever they are, in parts or not. NaN is the
/// same as itself.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

/// A hash of those bytes, never 0, for tensors that lie far apart.
std::uint64_t hash_of_bits(const at::Tensor& tensor);

/// Writes the values of one tensor into another, part by part if it is in parts.
void copy_values(const at::Tensor& to, const at::Tensor& from);

}  // namespace cohort
