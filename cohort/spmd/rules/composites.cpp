// Operations that are taken apart above autograd, into ones that have rules: losses and
// activations, and those whose own derivatives would spread a small gradient over a whole tensor,
// in one thread.

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>
#include <torch/csrc/autograd/custom_function.h>

#include "cohort/base/error.h"
#include "cohort/spmd/dispatch.h"
#include "cohort/spmd/rules/short_types.h"

namespace cohort::spmd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalType = c10::optional<at::ScalarType>;
using OptionalTensor = c10::optional<Tensor>;

// Means.

/// The sum, over the number of elements: the derivative divides the gradient and then expands it,
/// which needs no memory. LibTorch's expands first.
Tensor sum_over_count(const Tensor& x, at::OptionalIntArrayRef dims, bool keep, at::ScalarType type,
                      std::int64_t count) {
  return at::sum(x, dims, keep, type).div(count);
}

/// A mean whose sum has another type than its argument. Left to itself, autograd would expand the
/// gradient in the type of the sum, and then make a whole tensor of the other type.
struct MeanInAnotherType : torch::autograd::Function<MeanInAnotherType> {
  static Tensor forward(AutogradContext* context, const Tensor& x, std::vector<std::int64_t> dims,
                        bool keep, at::ScalarType sum_type, at::ScalarType type,
                        std::int64_t count) {
    auto& saved = context->saved_data;
    saved["sizes"] = x.sizes().vec();
    saved["dims"] = dims;
    saved["keep"] = keep;
    saved["type"] = x.scalar_type();
    saved["count"] = count;
    return sum_over_count(x, dims, keep, sum_type, count).to(type);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto& saved = context->saved_data;
    const auto sizes = saved["sizes"].toIntVector();
    Tensor gradient = gradients[0].to(saved["type"].toScalarType()).div(saved["count"].toInt());
    if (!saved["keep"].toBool()) {
      std::vector<std::int64_t> kept = sizes;
      for (const std::int64_t d : saved["dims"].toIntVector()) kept[d] = 1;
      gradient = gradient.reshape(kept);
    }
    return {gradient.expand(sizes), {}, {}, {}, {}, {}};
  }
};

/// Short types are summed as floats: 70000 ones of Half have a mean, though no sum.
Tensor compose_mean(const Tensor& x, at::OptionalIntArrayRef dims, bool keep, OptionalType dtype) {
  const at::ScalarType type = dtype.value_or(x.scalar_type());
  if (!at::isFloatingType(type) && !at::isComplexType(type)) {
    throw ValueError("mean", cat("the result's type must be a floating point or complex one, got ",
                                 type, "; name one: mean(..., torch::kFloat)"));
  }
  std::vector<std::int64_t> all;
  std::int64_t count = 1;
  if (x.dim() > 0 && dims) {
    for (const std::int64_t d : *dims) all.push_back(at::maybe_wrap_dim(d, x.dim()));
  }
  if (all.empty()) {
    for (std::int64_t d = 0; d < x.dim(); ++d) all.push_back(d);
  }
  for (const std::int64_t d : all) count *= x.size(d);
  const at::ScalarType sum_type = is_short(type) ? at::kFloat : type;
  if (sum_type != x.scalar_type() && x.is_floating_point() && at::isFloatingType(type)) {
    return MeanInAnotherType::apply(x, all, keep, sum_type, type, count);
  }
  return sum_over_count(x, dims, keep, sum_type, count).to(type);
}

Tensor compose_full_mean(const Tensor& x, OptionalType dtype) {
  return compose_mean(x, c10::nullopt, false, dtype);
}

// Losses. LibTorch lets some arguments be broadcast, and refuses what would make the result larger
// than others.

Tensor reduced(const Tensor& loss, std::int64_t reduction) {
  if (reduction == at::Reduction::Mean) return loss.mean();
  return reduction == at::Reduction::Sum ? loss.sum() : loss;
}

void require_floating(const char* op, at::ScalarType type) {
  if (at::isFloatingType(type)) return;
  throw NotImplementedError(
      op, cat("not implemented for ", type, "; it takes numbers of floating point"));
}

void require_expandable(const char* op, const char* what, const Tensor& small, const char* other,
                        const Tensor& large) {
  if (at::is_expandable_to(small.sizes(), large.sizes())) return;
  throw InvalidArgument(op, cat("the ", what, " of size ", small.sizes(),
                                " can't be broadcast to the ", other, " of size ", large.sizes()));
}

/// Multiplied by weights, if there are some, which change neither its size nor its type.
Tensor weighted(const char* op, const Tensor& loss, const OptionalTensor& weight) {
  if (!weight || !weight->defined()) return loss;
  require_expandable(op, "weight", *weight, "loss", loss);
  return loss.mul(*weight).to(loss.scalar_type());
}

Tensor error_of(const char* op, const Tensor& input, const Tensor& target) {
  require_floating(op, at::result_type(input, target));
  return input - target;
}

Tensor compose_mse(const Tensor& input, const Tensor& target, std::int64_t reduction) {
  return reduced(error_of("mse_loss", input, target).pow(2), reduction);
}

/// Between -bound and bound. On a bound the derivative is 0, unlike that of clamp().
Tensor limited(const Tensor& x, double bound) {
  const Tensor values = x.detach();
  return at::where(values.abs() >= bound, values.clamp(-bound, bound), x);
}

Tensor compose_smooth_l1(const Tensor& input, const Tensor& target, std::int64_t reduction,
                         double beta) {
  if (!(beta >= 0)) {
    throw ValueError("smooth_l1_loss",
                     cat("does not support negative values for beta, got ", beta));
  }
  const Tensor error = error_of("smooth_l1_loss", input, target);
  if (beta == 0) return reduced(at::where(error > 0, error, -error), reduction);  // not abs(): at 0
  const Tensor near = limited(error, beta);
  return reduced(near / beta * (error - near * 0.5), reduction);
}

Tensor compose_huber(const Tensor& input, const Tensor& target, std::int64_t reduction,
                     double delta) {
  if (!(delta > 0)) {
    throw ValueError("huber_loss",
                     cat("does not support non-positive values for delta, got ", delta));
  }
  const Tensor error = error_of("huber_loss", input, target);
  const Tensor near = limited(error, delta);
  return reduced(near * (error - near * 0.5), reduction);
}

/// Logarithms are at least -100, and the denominator of the input's derivative at least 1e-12, as
/// LibTorch has it: autograd's own derivatives would be NaN for probabilities of 0 and 1.
struct BinaryCrossEntropy : torch::autograd::Function<BinaryCrossEntropy> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& target) {
    context->save_for_backward({input, target});
    return (target - 1) * (-input).log1p().clamp_min(-100) - target * input.log().clamp_min(-100);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &input = saved[0], &target = saved[1], &gradient = gradients[0];
    variable_list results(2);
    if (context->needs_input_grad(0)) {
      results[0] = gradient * (input - target) / ((1 - input) * input).clamp_min(1e-12);
    }
    if (context->needs_input_grad(1)) results[1] = gradient * -at::logit(input);
    return results;
  }
};

/// A target of as many elements as the input, or fewer, whatever dimensions of size 1 it has.
Tensor like_input(const char* op, const Tensor& target, const Tensor& input) {
  if (target.sizes() == input.sizes()) return target;
  const Tensor small = target.squeeze(), large = input.squeeze();
  require_expandable(op, "target", small, "input", large);
  return small.expand(large.sizes()).reshape(input.sizes());
}

Tensor compose_bce(const Tensor& input, const Tensor& target, const OptionalTensor& weight,
                   std::int64_t reduction) {
  const char* op = "binary_cross_entropy";
  require_floating(op, input.scalar_type());
  if (target.scalar_type() != input.scalar_type()) {
    throw InvalidArgument(
        op, cat("the target has type ", target.scalar_type(), ", the input ", input.scalar_type()));
  }
  if (input.numel() > 0) {
    const Tensor values = input.detach();
    const bool fits = values.amin().item<double>() >= 0 && values.amax().item<double>() <= 1;
    if (!fits) throw ValueError(op, "all elements of input should be between 0 and 1");
  }
  const Tensor loss = BinaryCrossEntropy::apply(input, like_input(op, target, input));
  return reduced(weighted(op, loss, weight), reduction);
}

Tensor compose_bce_with_logits(const Tensor& input, const Tensor& target,
                               const OptionalTensor& weight, const OptionalTensor& pos_weight,
                               std::int64_t reduction) {
  const char* op = "binary_cross_entropy_with_logits";
  require_floating(op, target.scalar_type());
  require_expandable(op, "input", input, "target", target);
  Tensor log_probability = at::log_sigmoid(input);
  if (pos_weight && pos_weight->defined()) {
    require_expandable(op, "weight of positive examples", *pos_weight, "target", target);
    log_probability = ((*pos_weight - 1) * target + 1) * log_probability;
  }
  const Tensor loss = ((1 - target) * input - log_probability).to(target.scalar_type());
  return reduced(weighted(op, loss, weight), reduction);
}

Tensor compose_soft_margin(const Tensor& input, const Tensor& target, std::int64_t reduction) {
  const char* op = "soft_margin_loss";
  require_floating(op, input.scalar_type());
  require_expandable(op, "target", target, "input", input);
  const Tensor loss = -at::log_sigmoid(input * target);
  return reduced(loss.to(input.scalar_type()), reduction);
}

// Activations.

Tensor compose_glu(const Tensor& x, std::int64_t dim) {
  if (x.dim() == 0) throw InvalidArgument("glu", "does not support 0-dimensional tensors");
  const std::int64_t size = x.size(dim), half = size / 2;
  if (size % 2 != 0) {
    throw InvalidArgument(
        "glu", cat("halving dimension must be even, but dimension ", dim, " is of size ", size));
  }
  return x.narrow(dim, 0, half) * x.narrow(dim, half, half).sigmoid();
}

void check_prelu(const Tensor& x, const Tensor& weight) {
  if (weight.scalar_type() != x.scalar_type()) {
    throw InvalidArgument("prelu", cat("the weight has type ", weight.scalar_type(), ", the input ",
                                       x.scalar_type()));
  }
  if (weight.dim() > 1) {
    throw InvalidArgument(
        "prelu", cat("the weight must be a number or a vector, got size ", weight.sizes()));
  }
  if (weight.numel() != 1 && (x.dim() <= 1 || x.size(1) != weight.numel())) {
    throw InvalidArgument(
        "prelu",
        cat(weight.numel(), " weights don't fit the channels of an input of size ", x.sizes()));
  }
}

Tensor compose_prelu(const Tensor& x, const Tensor& weight) {
  check_prelu(x, weight);
  std::vector<std::int64_t> sizes(x.dim(), 1);
  if (weight.numel() != 1) sizes[1] = weight.numel();
  // not clamp_max(0), whose derivative at 0 depends on the version of LibTorch
  return x.relu() + weight.reshape(sizes) * x.masked_fill(x > 0, 0);
}

/// The slopes of a leaky rectifier that draws them: one for each element that is not positive, in
/// their order, as LibTorch draws them.
Tensor drawn_slopes(const Tensor& x, const at::Scalar& lower, const at::Scalar& upper,
                    c10::optional<at::Generator> generator) {
  const Tensor values = x.detach();
  const Tensor is_drawn = values <= 0;
  const Tensor drawn = at::empty({is_drawn.sum().item<std::int64_t>()}, at::kDouble)
                           .uniform_(lower.toDouble(), upper.toDouble(), std::move(generator));
  return at::ones_like(values).masked_scatter_(is_drawn, drawn.to(x.scalar_type()));
}
double mean_slope(const at::Scalar& lower, const at::Scalar& upper) {
  return (lower.toDouble() + upper.toDouble()) / 2;
}

Tensor compose_rrelu(const Tensor& x, const at::Scalar& lower, const at::Scalar& upper,
                     bool training, c10::optional<at::Generator> generator) {
  if (!training) return at::leaky_relu(x, mean_slope(lower, upper));
  return x * drawn_slopes(x, lower, upper, std::move(generator));
}
Tensor& compose_rrelu_in_place(Tensor& x, const at::Scalar& lower, const at::Scalar& upper,
                               bool training, c10::optional<at::Generator> generator) {
  if (!training) return at::leaky_relu_(x, mean_slope(lower, upper));
  return x.mul_(drawn_slopes(x, lower, upper, std::move(generator)));
}

// Layers that are others in disguise.

/// A convolution of [time, batch, channels].
Tensor compose_conv_tbc(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        std::int64_t padding) {
  return at::conv1d(x.permute({1, 2, 0}), weight.permute({2, 1, 0}), bias, 1, padding)
      .permute({2, 0, 1});
}

Tensor compose_bilinear(const Tensor& a, const Tensor& b, const Tensor& weight,
                        const OptionalTensor& bias) {
  const bool fits = weight.dim() == 3 && a.dim() == b.dim() && a.size(-1) == weight.size(1) &&
                    b.size(-1) == weight.size(2);
  if (!fits) {
    throw InvalidArgument("bilinear", cat("inputs of sizes ", a.sizes(), " and ", b.sizes(),
                                          " don't fit a weight of sizes ", weight.sizes()));
  }
  const Tensor products =
      at::matmul(a, weight.permute({1, 0, 2}).flatten(1)).unflatten(-1, {weight.size(0), -1});
  const Tensor result = (products * b.unsqueeze(-2)).sum(-1);
  return bias && bias->defined() ? result + *bias : result;
}

Tensor compose_weight_norm(const Tensor& v, const Tensor& g, std::int64_t dim) {
  return v * (g / at::norm_except_dim(v, 2, dim));
}

// Parts that autograd does not know as views, so that each may be changed in place: the cells of
// recurrent networks do that.

struct UnsafeSplit : torch::autograd::Function<UnsafeSplit> {
  static variable_list forward(AutogradContext* context, const Tensor& x,
                               std::vector<std::int64_t> sizes, std::int64_t dim) {
    context->saved_data["dim"] = dim;
    const BelowAutograd below;
    return at::split_with_sizes(x, sizes, dim);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {at::cat(gradients, context->saved_data["dim"].toInt()), {}, {}};
  }
};

std::vector<Tensor> compose_unsafe_split_with_sizes(const Tensor& x, at::IntArrayRef sizes,
                                                    std::int64_t dim) {
  return UnsafeSplit::apply(x, sizes.vec(), at::maybe_wrap_dim(dim, x.dim()));
}

std::vector<Tensor> compose_unsafe_split(const Tensor& x, std::int64_t size, std::int64_t dim) {
  const std::int64_t whole = x.size(dim);
  if (size < 0 || (size == 0 && whole != 0)) {
    throw ValueError("unsafe_split",
                     cat("can't split a dimension of ", whole, " into parts of ", size));
  }
  std::vector<std::int64_t> sizes;
  for (std::int64_t rest = whole; rest > 0; rest -= size) sizes.push_back(std::min(size, rest));
  if (sizes.empty()) sizes.push_back(0);
  return compose_unsafe_split_with_sizes(x, sizes, dim);
}

}  // namespace

void register_composites(torch::Library& library) {
  library.impl("mean", compose_full_mean);
  library.impl("mean.dim", compose_mean);
  library.impl("mse_loss", compose_mse);
  library.impl("smooth_l1_loss", compose_smooth_l1);
  library.impl("huber_loss", compose_huber);
  library.impl("binary_cross_entropy", compose_bce);
  library.impl("binary_cross_entropy_with_logits", compose_bce_with_logits);
  library.impl("soft_margin_loss", compose_soft_margin);
  library.impl("glu", compose_glu);
  library.impl("prelu", compose_prelu);
  library.impl("rrelu", compose_rrelu);
  library.impl("rrelu_", compose_rrelu_in_place);
  library.impl("conv_tbc", compose_conv_tbc);
  library.impl("bilinear", compose_bilinear);
  library.impl("_weight_norm", compose_weight_norm);
  library.impl("unsafe_split.Tensor", compose_unsafe_split);
  library.impl("unsafe_split_with_sizes", compose_unsafe_split_with_sizes);
}

}  // namespace cohort::spmd
