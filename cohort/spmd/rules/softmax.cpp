// Softmax and the negative log-likelihood, also along a dimension that is split: the largest
// element and the sum of exponentials are then found over all parts first.

#include <ATen/ATen.h>

#include "cohort/base/error.h"
#include "cohort/spmd/partition.h"
#include "cohort/spmd/rules/relayout.h"

namespace cohort::spmd {
namespace {

using Task = Partition::Task;

Tensor in_precision(const Tensor& x, bool half_to_float) {
  return half_to_float ? x.to(at::kFloat) : x;
}

Tensor softmax_tiles(const Tensor& x, std::int64_t dim, bool half_to_float) {
  const Operation operation("aten::_softmax");
  if (is_split_along(x, dim)) {
    const BelowAutograd below;
    const Tensor wide = in_precision(x, half_to_float);
    const Tensor powers = at::exp(at::sub(wide, at::amax(wide, dim, true)));
    return at::div(powers, at::sum(powers, dim, true));
  }
  Partition parts("aten::_softmax");
  parts.take(x, letters_but(x, dim));
  return parts.give(letters_but(x, dim),
                    [&](const Task& t) { return at::_softmax(t[0], dim, half_to_float); });
}

Tensor log_softmax_tiles(const Tensor& x, std::int64_t dim, bool half_to_float) {
  const Operation operation("aten::_log_softmax");
  if (is_split_along(x, dim)) {
    const BelowAutograd below;
    const Tensor wide = in_precision(x, half_to_float);
    const Tensor shifted = at::sub(wide, at::amax(wide, dim, true));
    return at::sub(shifted, at::log(at::sum(at::exp(shifted), dim, true)));
  }
  Partition parts("aten::_log_softmax");
  parts.take(x, letters_but(x, dim));
  return parts.give(letters_but(x, dim),
                    [&](const Task& t) { return at::_log_softmax(t[0], dim, half_to_float); });
}

Tensor softmax_backward_tiles(const Tensor& gradient, const Tensor& output, std::int64_t dim,
                              at::ScalarType dtype) {
  const Operation operation("aten::_softmax_backward_data");
  if (is_split_along(output, dim) || is_split_along(gradient, dim)) {
    const BelowAutograd below;
    const Tensor product = at::mul(gradient, output);
    return at::sub(product, at::mul(output, at::sum(product, dim, true))).to(dtype);
  }
  Partition parts("aten::_softmax_backward_data");
  const std::string letters = letters_but(output, dim);
  parts.take(gradient, letters).take(output, letters);
  // LibTorch 1.13 takes the output for contiguous here.
  return parts.give(letters, [&](const Task& t) {
    return at::_softmax_backward_data(t[0].contiguous(), t[1].contiguous(), dim, dtype);
  });
}

Tensor log_softmax_backward_tiles(const Tensor& gradient, const Tensor& output, std::int64_t dim,
                                  at::ScalarType dtype) {
  const Operation operation("aten::_log_softmax_backward_data");
  if (is_split_along(output, dim) || is_split_along(gradient, dim)) {
    const BelowAutograd below;
    return at::sub(gradient, at::mul(at::exp(output), at::sum(gradient, dim, true))).to(dtype);
  }
  Partition parts("aten::_log_softmax_backward_data");
  const std::string letters = letters_but(output, dim);
  parts.take(gradient, letters).take(output, letters);
  return parts.give(letters, [&](const Task& t) {
    return at::_log_softmax_backward_data(t[0].contiguous(), t[1].contiguous(), dim, dtype);
  });
}

// Negative log-likelihood of [n, classes] or [classes], and of [n, classes, …] with one target for
// each place. Written in terms of other rules: which class is a place's target is a comparison,
// which holds for split classes too.

/// 1 where the class is the target of its row, else 0; nothing where the target is ignored. Same
/// sizes as the input.
Tensor is_target(const Tensor& input, const Tensor& target, std::int64_t ignored) {
  const std::int64_t dim = input.dim() == 1 ? 0 : 1;
  std::vector<std::int64_t> sizes(input.dim(), 1);
  sizes[dim] = input.size(dim);
  const Tensor classes = at::arange(input.size(dim), at::TensorOptions(at::kLong)).reshape(sizes);
  const Tensor own = target.unsqueeze(dim);
  return at::logical_and(at::eq(own, classes), at::ne(own, ignored));
}

/// What each place counts: the weight of its target's class, 0 for an ignored one. With the class
/// dimension, of size 1.
Tensor weight_of_places(const Tensor& input, const Tensor& target, const Tensor& weight,
                        std::int64_t ignored) {
  const std::int64_t dim = input.dim() == 1 ? 0 : 1;
  if (!weight.defined()) return at::ne(target.unsqueeze(dim), ignored).to(input.scalar_type());
  std::vector<std::int64_t> sizes(input.dim(), 1);
  sizes[dim] = input.size(dim);
  const Tensor chosen =
      at::mul(is_target(input, target, ignored).to(input.scalar_type()), weight.reshape(sizes));
  return at::sum(chosen, dim, true);
}

void check_targets(const Tensor& input, const Tensor& target, std::int64_t ignored) {
  const std::int64_t classes = input.size(input.dim() == 1 ? 0 : 1);
  const Tensor is_class = at::logical_and(at::ge(target, 0), at::lt(target, classes));
  const Tensor fits = at::logical_or(is_class, at::eq(target, ignored));
  if (gather(at::all(fits)).item<bool>()) return;
  const Tensor wrong = gather(target).masked_select(at::logical_not(gather(fits)));
  throw ValueError("nll_loss", cat("Target ", wrong[0].item<std::int64_t>(),
                                   " is out of bounds: expected 0 to ", classes - 1));
}

std::tuple<Tensor, Tensor> nll_loss_tiles(const Tensor& input, const Tensor& target,
                                          const c10::optional<Tensor>& weight,
                                          std::int64_t reduction, std::int64_t ignored) {
  const Operation operation("aten::nll_loss_forward");
  const BelowAutograd below;
  check_targets(input, target, ignored);
  const std::int64_t dim = input.dim() == 1 ? 0 : 1;
  const Tensor weights = weight_of_places(input, target, weight.value_or(Tensor()), ignored);
  const Tensor zero = at::zeros({}, at::TensorOptions(input.scalar_type()));
  const Tensor chosen = at::where(is_target(input, target, ignored), input, zero);
  const Tensor losses = at::neg(at::mul(at::sum(chosen, dim, true), weights)).squeeze(dim);
  const Tensor total = at::sum(weights);
  if (reduction == at::Reduction::None) return {losses, zero};
  const Tensor sum = at::sum(losses);
  return {reduction == at::Reduction::Mean ? at::div(sum, total) : sum, total};
}

Tensor nll_loss_backward_tiles(const Tensor& gradient, const Tensor& input, const Tensor& target,
                               const c10::optional<Tensor>& weight, std::int64_t reduction,
                               std::int64_t ignored, const Tensor& total) {
  const Operation operation("aten::nll_loss_backward");
  const BelowAutograd below;
  const std::int64_t dim = input.dim() == 1 ? 0 : 1;
  const Tensor weights = weight_of_places(input, target, weight.value_or(Tensor()), ignored);
  Tensor scale = at::neg(weights);
  if (reduction == at::Reduction::None) {
    scale = at::mul(scale, gradient.unsqueeze(dim));
  } else {
    scale = at::mul(scale, reduction == at::Reduction::Mean ? at::div(gradient, total) : gradient);
  }
  // not a product: the scale is NaN if all targets are ignored
  return at::where(is_target(input, target, ignored), scale, at::zeros({}, scale.options()));
}

}  // namespace

void register_softmax(torch::Library& library) {
  library.impl("_softmax", softmax_tiles);
  library.impl("_log_softmax", log_softmax_tiles);
  library.impl("_softmax_backward_data", softmax_backward_tiles);
  library.impl("_log_softmax_backward_data", log_softmax_backward_tiles);
  for (const char* name : {"nll_loss_forward", "nll_loss2d_forward"}) {
    library.impl(name, nll_loss_tiles);
  }
  for (const char* name : {"nll_loss_backward", "nll_loss2d_backward"}) {
    library.impl(name, nll_loss_backward_tiles);
  }
}

}  // namespace cohort::spmd
