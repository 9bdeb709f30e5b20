#include "cohort/optim/sync_batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "cohort/base/error.h"
#include "cohort/collectives/tensor_reduction.h"
#include "cohort/distribute/strategy.h"

namespace cohort {
namespace {

/// Over the batch and the places, for each feature.
at::Tensor sum_of_features(const at::Tensor& input) {
  std::vector<std::int64_t> axes{0};
  for (std::int64_t axis = 2; axis < input.dim(); ++axis) axes.push_back(axis);
  return input.sum(axes);
}

/// One number for each feature, in the shape of the input.
at::Tensor as_features(const at::Tensor& values, const at::Tensor& input) {
  std::vector<std::int64_t> shape(input.dim(), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

at::Tensor sum_over_replicas(const at::Tensor& value) {
  ReplicaContext* replica = replica_context_or_null();
  return replica ? replica->all_reduce(ReduceOp::SUM, value) : value;
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& options)
    : options(options) {
  reset();
}

void SyncBatchNormImpl::reset() {
  const std::int64_t features = options.num_features();
  if (options.affine()) {
    weight = register_parameter("weight", at::ones({features}));
    bias = register_parameter("bias", at::zeros({features}));
  }
  if (options.track_running_stats()) {
    running_mean = register_buffer("running_mean", at::zeros({features}));
    running_var = register_buffer("running_var", at::ones({features}));
    num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  }
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  if (input.dim() < 2 || input.size(1) != options.num_features()) {
    throw ValueError("SyncBatchNorm", cat("expected [batch, ", options.num_features(), ", …], got ",
                                          collectives::describe(input)));
  }
  at::Tensor mean = running_mean, variance = running_var;
  if (is_training() || !options.track_running_stats()) {
    const double own = static_cast<double>(input.numel()) / static_cast<double>(input.size(1));
    const at::Tensor sums = at::cat({sum_of_features(input), at::full({1}, own, input.options())});
    const at::Tensor all = sum_over_replicas(sums);
    const at::Tensor count = all[-1].clamp_min(1);
    mean = all.slice(0, 0, -1) / count;
    const at::Tensor centred = input - as_features(mean, input);
    variance = sum_over_replicas(sum_of_features(centred * centred)) / count;
    if (options.track_running_stats()) update_running(mean, variance, all[-1].item<double>());
  }
  const at::Tensor scale = (variance + options.eps()).rsqrt();
  at::Tensor result = (input - as_features(mean, input)) * as_features(scale, input);
  if (!options.affine()) return result;
  return result * as_features(weight, input) + as_features(bias, input);
}

void SyncBatchNormImpl::update_running(const at::Tensor& mean, const at::Tensor& variance,
                                       double count) {
  if (count == 0) return;
  const at::NoGradGuard no_grad;
  num_batches_tracked.add_(1);
  const auto momentum = options.momentum();
  const double rate = momentum ? *momentum : 1.0 / num_batches_tracked.item<double>();
  const double unbiased = count > 1 ? count / (count - 1) : 1;
  running_mean.mul_(1 - rate).add_(mean.detach(), rate);
  running_var.mul_(1 - rate).add_(variance.detach() * unbiased, rate);
}

}  // namespace cohort
