#include "cohort/optim/module_parameters.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "cohort/base/error.h"

namespace cohort {
namespace {

namespace nn = torch::nn;

/// The parameters that a module has registered, which LibTorch lets only modules change.
struct Registered : nn::Module {
  static torch::OrderedDict<std::string, at::Tensor>& of(nn::Module& module) {
    return module.*(&Registered::parameters_);
  }
};

/// A module with the members `weight` and `bias`.
template <class Impl>
at::Tensor* weight_or_bias(nn::Module& module, const std::string& name) {
  auto* own = dynamic_cast<Impl*>(&module);
  if (!own) return nullptr;
  if (name == "weight") return &own->weight;
  if constexpr (requires { own->bias; }) {
    if (name == "bias") return &own->bias;
  }
  return nullptr;
}

at::Tensor* of_attention(nn::Module& module, const std::string& name) {
  auto* own = dynamic_cast<nn::MultiheadAttentionImpl*>(&module);
  if (!own) return nullptr;
  const std::pair<const char*, at::Tensor*> members[] = {{"in_proj_weight", &own->in_proj_weight},
                                                         {"in_proj_bias", &own->in_proj_bias},
                                                         {"q_proj_weight", &own->q_proj_weight},
                                                         {"k_proj_weight", &own->k_proj_weight},
                                                         {"v_proj_weight", &own->v_proj_weight},
                                                         {"bias_k", &own->bias_k},
                                                         {"bias_v", &own->bias_v}};
  for (const auto& [member, tensor] : members) {
    if (name == member) return tensor;
  }
  return nullptr;
}

template <class... Impls>
at::Tensor* first_of(nn::Module& module, const std::string& name) {
  at::Tensor* found = nullptr;
  static_cast<void>(((found = weight_or_bias<Impls>(module, name)) || ...));
  return found;
}

at::Tensor* member_of(nn::Module& module, const std::string& name) {
  if (at::Tensor* found = of_attention(module, name)) return found;
  return first_of<nn::LinearImpl, nn::BilinearImpl, nn::EmbeddingImpl, nn::EmbeddingBagImpl,
                  nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl, nn::ConvTranspose1dImpl,
                  nn::ConvTranspose2dImpl, nn::ConvTranspose3dImpl, nn::LayerNormImpl,
                  nn::GroupNormImpl, nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl,
                  nn::PReLUImpl>(module, name);
}

void replace_own(nn::Module& module, const std::string& name, const at::Tensor& value) {
  if (auto* own = dynamic_cast<ReplaceableParameters*>(&module)) {
    own->replace_parameter(name, value);
  } else if (at::Tensor* member = member_of(module, name)) {
    *member = value;
  } else {
    throw ValueError("Model", cat("the module ", module.name(), " keeps its parameter ", name,
                                  " in a member that can't be replaced from outside: derive it "
                                  "from cohort::ReplaceableParameters too"));
  }
  Registered::of(module)[name] = value;
}

}  // namespace

torch::OrderedDict<std::string, at::Tensor>& registered_parameters(nn::Module& module) {
  return Registered::of(module);
}

void set_parameter_if_reachable(nn::Module& module, const std::string& name,
                                const at::Tensor& value) {
  if (auto* own = dynamic_cast<ReplaceableParameters*>(&module)) {
    own->replace_parameter(name, value);
  } else if (at::Tensor* member = member_of(module, name)) {
    *member = value;
  }
  Registered::of(module)[name] = value;
}

void replace_parameter(nn::Module& module, const std::string& name, const at::Tensor& value) {
  const auto dot = name.find('.');
  if (dot == std::string::npos) {
    if (!module.named_parameters(/*recurse=*/false).contains(name)) {
      throw ValueError("Model", cat("the module ", module.name(), " has no parameter ", name));
    }
    return replace_own(module, name, value);
  }
  const std::string child = name.substr(0, dot);
  for (const auto& entry : module.named_children()) {
    if (entry.key() == child) return replace_parameter(*entry.value(), name.substr(dot + 1), value);
  }
  throw ValueError("Model", cat("the module ", module.name(), " has no module ", child));
}

void replace_tied(nn::Module& module, const at::Tensor& tied, const at::Tensor& value) {
  for (const auto& each : module.modules()) {
    for (auto& entry : Registered::of(*each)) {
      at::Tensor* const member = member_of(*each, entry.key());
      if (entry.value().is_same(tied)) {
        replace_own(*each, entry.key(), value);
      } else if (member && member->is_same(tied)) {
        *member = value;  // what it has registered belongs to nobody
      }
    }
  }
}

}  // namespace cohort
