// Operations that are taken apart above autograd: their own derivatives would spread a small
// gradient over a whole tensor, in one thread.

#include <ATen/ATen.h>

#include "cohort/spmd/dispatch.h"

namespace cohort::spmd {
namespace {

using OptionalType = c10::optional<at::ScalarType>;

/// The sum, over the number of elements: the derivative divides the gradient and then expands it,
/// which needs no memory. LibTorch's expands first.
Tensor compose_mean(const Tensor& x, at::OptionalIntArrayRef dims, bool keep, OptionalType dtype) {
  const at::ScalarType type = dtype.value_or(x.scalar_type());
  TORCH_CHECK(at::isFloatingType(type) || at::isComplexType(type),
              "mean(): the result's type must be a floating point or complex one, got ", type,
              "; name one: mean(..., torch::kFloat)");
  std::int64_t count = 1;
  if (!dims || dims->empty()) {
    count = x.numel();
  } else {
    for (const std::int64_t d : *dims) count *= x.dim() > 0 ? x.size(d) : 1;
  }
  return at::sum(x, dims, keep, dtype).div(count);
}

Tensor compose_full_mean(const Tensor& x, OptionalType dtype) {
  return compose_mean(x, c10::nullopt, false, dtype);
}

}  // namespace

void register_composites(torch::Library& library) {
  library.impl("mean", compose_full_mean);
  library.impl("mean.dim", compose_mean);
}

}  // namespace cohort::spmd
