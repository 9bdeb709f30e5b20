#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/options/batchnorm.h>
#include <torch/nn/pimpl.h>

namespace cohort {

/// Batch normalization with the statistics of the whole global batch: in training, means and
/// variances are taken over all replicas by collectives, forward and backward. A drop-in for
/// `torch::nn::BatchNorm1d`, `2d` and `3d`, with the same options, parameters and buffers.
///
/// For small batches per replica, where each replica's own statistics are too noisy. Every replica
/// must call it in training, also with an empty batch.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  explicit SyncBatchNormImpl(std::int64_t num_features)
      : SyncBatchNormImpl(torch::nn::BatchNormOptions(num_features)) {}
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& options);

  void reset() override;

  /// `input` is [batch, features, …]. Throws ValueError for another number of features.
  at::Tensor forward(const at::Tensor& input);

  torch::nn::BatchNormOptions options;
  at::Tensor weight, bias;
  at::Tensor running_mean, running_var, num_batches_tracked;

 private:
  void update_running(const at::Tensor& mean, const at::Tensor& variance, double count);
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace cohort
