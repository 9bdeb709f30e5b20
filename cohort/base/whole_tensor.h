#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace cohort {

/// A tensor with the same elements in memory of its own: an ordinary one as it is, one that is
/// spread over logical devices gathered. Differentiable. What leaves a replica to be combined with
/// the tensors of others goes through this.
at::Tensor whole(const at::Tensor& tensor);
std::vector<at::Tensor> whole(std::vector<at::Tensor> tensors);

/// Says how tensors without memory of their own are made whole. Called once, before there are any,
/// by the layer that makes them.
void set_whole(at::Tensor (*make_whole)(const at::Tensor&));

}  // namespace cohort
