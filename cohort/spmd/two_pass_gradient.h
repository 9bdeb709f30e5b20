#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <vector>

#include "cohort/base/torch_compat.h"

namespace cohort::spmd {

/// The way back through a graph in two passes: first the gradient of its input, for which somebody
/// waits, and those of its parameters when there is time. Neither computes anything twice, and the
/// bits are those of one pass.
///
///     TwoPassGradient way_back(output, input, parameters);
///     hand_on(way_back.of_input(gradient));
///     …
///     add(way_back.of_parameters());
///
/// Where the graph can't be cut in two, the first pass does it all: for a parameter that takes part
/// in several places, functions that users wrote, and tensors with hooks.
///
/// Used by one thread at a time. Holds the graph until it is asked for the parameters.
class TwoPassGradient {
 public:
  /// Of what a graph computed from `input` with `parameters`.
  TwoPassGradient(at::Tensor output, at::Tensor input, const std::vector<at::Tensor>& parameters);

  /// From the gradient of the output. Undefined for an input that needs none; else zeros where
  /// the output does not depend on it. To be called once, before `of_parameters`.
  at::Tensor of_input(const at::Tensor& gradient);

  /// One for each parameter; undefined for those that are not trained, or have no part in the
  /// output. To be called once.
  std::vector<at::Tensor> of_parameters();

 private:
  /// A parameter that has a gradient, and where it comes out of the graph.
  struct Trained {
    std::size_t number;
    torch::autograd::Edge edge;
  };
  /// A node through which the first pass goes to the input, and the second one to some parameters.
  struct Fork {
    torch_compat::NodePtr node;
    std::vector<Trained> parameters;
    std::vector<at::Tensor> gradients;  // of what the node computed, from the first pass
  };

  /// Finds all forks. False if the graph can't be cut at them.
  bool find_forks();
  void take_one_pass(const at::Tensor& gradient);
  void take_first_pass(const at::Tensor& gradient);
  void take_second_pass(Fork& fork);
  at::Tensor zeros_of_input() const;

  at::Tensor output_, input_, of_input_;
  std::vector<Trained> trained_;
  std::vector<Fork> forks_;
  std::vector<at::Tensor> gradients_;  // of all parameters, as far as they are known
  at::Tensor gradient_;                // of the output, where the only pass is yet to come
};

}  // namespace cohort::spmd
