#pragma once

#include <torch/nn/module.h>

#include <string>

namespace cohort {

/// A module of yours whose parameters `Model` may replace, to spread them over logical devices.
/// LibTorch's own layers need none of this.
///
///     struct ScaleImpl : torch::nn::Module, cohort::ReplaceableParameters {
///       torch::Tensor scale = register_parameter("scale", torch::ones({8}));
///       void replace_parameter(const std::string&, const torch::Tensor& value) override {
///         scale = value;
///       }
///     };
class ReplaceableParameters {
 public:
  virtual ~ReplaceableParameters() = default;
  /// Sets the member that holds the parameter of this name.
  virtual void replace_parameter(const std::string& name, const at::Tensor& value) = 0;
};

/// The parameters that a module has registered, without those of the modules inside.
torch::OrderedDict<std::string, at::Tensor>& registered_parameters(torch::nn::Module& module);

/// Registers a tensor as a module's own parameter, and sets the member that holds it where Cohort
/// knows it: in LibTorch's layers and ReplaceableParameters.
void set_parameter_if_reachable(torch::nn::Module& module, const std::string& name,
                                const at::Tensor& value);

/// Makes a tensor the parameter `name` ("encoder.linear1.weight") of a module, or of one inside of
/// it. Throws ValueError for a name that there is not, or a module that keeps it in a member that
/// can't be reached.
void replace_parameter(torch::nn::Module& module, const std::string& name, const at::Tensor& value);

/// Puts another tensor wherever the module and those in it hold this one: weights that are tied
/// stay so.
void replace_tied(torch::nn::Module& module, const at::Tensor& tied, const at::Tensor& value);

}  // namespace cohort
