#pragma once

#include <torch/nn/module.h>

#include <concepts>
#include <functional>
#include <memory>
#include <vector>

#include "cohort/spmd/placement.h"

namespace cohort::spmd {

/// A module that takes a tensor and gives one: any holder of one, such as torch::nn::Sequential.
class Stage {
 public:
  template <class Holder>
    requires requires(Holder module, const Tensor& x) {
      { module->forward(x) } -> std::convertible_to<Tensor>;
      module.ptr();
    }
  Stage(Holder module)  // NOLINT(google-explicit-constructor)
      : module_(module.ptr()),
        forward_([module](const Tensor& x) mutable -> Tensor { return module->forward(x); }) {}

  Tensor forward(const Tensor& x) const { return forward_(x); }
  std::vector<Tensor> parameters() const { return module_->parameters(); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::function<Tensor(const Tensor&)> forward_;
};

/// A network in stages, each on a logical device of its own. A batch goes through in parts, the
/// micro-batches: while one is in the second stage, the next one is in the first, forward and
/// backward.
///
///     struct NetImpl : torch::nn::Module {
///       torch::nn::Sequential front = register_module("front", …), back = …;
///       spmd::Pipeline pipe = spmd::pipeline({front, back}, /*micro_batches=*/8);
///       torch::Tensor forward(torch::Tensor x) { return pipe(x); }
///     };
///
/// Gradients of the parameters are added in the order of the micro-batches, so that the result does
/// not depend on timing; nor do random numbers, which each stage draws from a generator for each
/// micro-batch. A network whose loss is a mean over rows gives what it gives without a pipeline;
/// statistics over the batch, as of batch norm, are those of micro-batches.
///
/// Copies are the same pipeline. Used inside of replicas. Derivatives of second order are not
/// supported, and throw.
class Pipeline {
 public:
  /// Throws ValueError for no stages, or fewer than one micro-batch.
  Pipeline(std::vector<Stage> stages, int micro_batches);

  /// The rows of the last stage's results, in order. With more stages than logical devices,
  /// neighbours share one. A batch with fewer rows than micro-batches makes fewer of them. Throws
  /// ValueError outside of replicas, for a batch without dimensions, and for a stage that does not
  /// keep the number of rows.
  Tensor operator()(const Tensor& batch);

 private:
  std::vector<Stage> stages_;
  int micro_batches_;
};

inline Pipeline pipeline(std::vector<Stage> stages, int micro_batches) {
  return Pipeline(std::move(stages), micro_batches);
}

}  // namespace cohort::spmd
