#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace cohort {

/// A tensor with the same elements in memory of its own: an ordinary one as it is, one that is
/// spread over logical devices gathered. Differentiable. What leaves a replica to be combined with
/// the tensors of others goes through this.
at::Tensor whole(const at::Tensor& tensor);
std::vector<at::Tensor> whole(std::vector<at::Tensor> tensors);

/// A tensor with conjugation and negation done that LibTorch had put off: those of `x.conj()` and
/// the imaginary part of it are a note on memory that holds something else. Itself, if there are
/// none. Differentiable.
at::Tensor resolved(const at::Tensor& tensor);

/// A dense tensor as its bytes are read: `resolved`, and contiguous. Itself, if it is so.
at::Tensor as_read(const at::Tensor& tensor);

/// Says how tensors without memory of their own are made whole. Called once, before there are any,
/// by the layer that makes them.
void set_whole(at::Tensor (*make_whole)(const at::Tensor&));

}  // namespace cohort
