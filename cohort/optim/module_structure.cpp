#include "cohort/optim/module_structure.h"

#include <torch/nn/functional.h>
#include <torch/nn/modules.h>

#include <sstream>
#include <typeinfo>

#include "cohort/base/error.h"
#include "cohort/optim/module_parameters.h"

namespace cohort {
namespace {

namespace nn = torch::nn;

template <class Dict>
void check_fits(const Dict& first, const Dict& other) {
  bool same = first.size() == other.size();
  for (std::size_t i = 0; same && i < first.size(); ++i) {
    same = first[i].key() == other[i].key() && first[i].value().sizes() == other[i].value().sizes();
  }
  for (std::size_t i = 0; same && i < first.size(); ++i) {
    if (!first[i].value().is_same(other[i].value())) continue;
    throw ValueError("Model", cat("all replicas would share ", first[i].key(),
                                  ", which was made once: give a factory that makes a new module, "
                                  "with new modules inside, on each call"));
  }
  if (same) return;
  throw ValueError("Model", cat("the factory gave a module with other parameters or buffers than "
                                "the first one: expected ",
                                first.size(),
                                " tensors of the same "
                                "names and shapes; make the same module on each call"));
}

/// The contents of a layer of LibTorch. False for another type.
template <class Layer>
bool assign_as(nn::Module& to, const nn::Module& from) {
  if (typeid(to) != typeid(Layer) || typeid(from) != typeid(Layer)) return false;
  dynamic_cast<Layer&>(to) = dynamic_cast<const Layer&>(from);
  return true;
}

template <class... Layers>
bool assign_as_any(nn::Module& to, const nn::Module& from) {
  return (assign_as<Layers>(to, from) || ...);
}

bool is_container(const nn::Module& module) {
  return typeid(module) == typeid(nn::SequentialImpl) ||
         typeid(module) == typeid(nn::ModuleListImpl) ||
         typeid(module) == typeid(nn::ModuleDictImpl);
}

bool assign_layer(nn::Module& to, const nn::Module& from) {
  return assign_as_any<
      nn::LinearImpl, nn::BilinearImpl, nn::EmbeddingImpl, nn::EmbeddingBagImpl, nn::Conv1dImpl,
      nn::Conv2dImpl, nn::Conv3dImpl, nn::ConvTranspose1dImpl, nn::ConvTranspose2dImpl,
      nn::ConvTranspose3dImpl, nn::LayerNormImpl, nn::GroupNormImpl, nn::BatchNorm1dImpl,
      nn::BatchNorm2dImpl, nn::BatchNorm3dImpl, nn::InstanceNorm1dImpl, nn::InstanceNorm2dImpl,
      nn::InstanceNorm3dImpl, nn::PReLUImpl, nn::MultiheadAttentionImpl, nn::RNNImpl, nn::LSTMImpl,
      nn::GRUImpl, nn::DropoutImpl, nn::IdentityImpl, nn::ReLUImpl, nn::GELUImpl, nn::TanhImpl,
      nn::TransformerEncoderLayerImpl, nn::TransformerDecoderLayerImpl, nn::TransformerEncoderImpl,
      nn::TransformerDecoderImpl, nn::SequentialImpl, nn::ModuleListImpl, nn::ModuleDictImpl>(to,
                                                                                              from);
}

/// Makes further replicas' modules as a first one is now.
class Follower {
 public:
  explicit Follower(const ModuleWatch& before) : before_(before) {}

  void follow(const nn::Module& first, nn::Module& other, const std::string& path) const {
    const auto ours = first.named_children();
    const auto theirs = other.named_children();
    if (is_container(other) && has_new_children(ours, theirs)) return assign(first, other, path);
    follow_tensors(const_cast<nn::Module&>(first), other);
    for (const auto& entry : ours) {
      const std::string name = path.empty() ? entry.key() : path + "." + entry.key();
      const auto* const mine = theirs.find(entry.key());
      if (!mine) {
        other.register_module(entry.key(), cloned(*entry.value(), name));
      } else if (before_.knows(entry.value().get())) {
        follow(*entry.value(), **mine, name);
      } else {
        assign(*entry.value(), **mine, name);
      }
    }
    for (const auto& entry : theirs) {
      if (!ours.contains(entry.key())) other.unregister_module(entry.key());
    }
  }

 private:
  using Children = torch::OrderedDict<std::string, std::shared_ptr<nn::Module>>;

  bool has_new_children(const Children& ours, const Children& theirs) const {
    if (ours.keys() != theirs.keys()) return true;
    for (const auto& entry : ours) {
      if (!before_.knows(entry.value().get())) return true;
    }
    return false;
  }

  static void follow_tensors(nn::Module& first, nn::Module& other) {
    auto& theirs = registered_parameters(other);
    for (const auto& entry : registered_parameters(first)) {
      const at::Tensor& value = entry.value();
      const at::Tensor* const there = theirs.find(entry.key());
      if (there && there->defined() == value.defined()) continue;
      at::Tensor own = value.defined() ? value.detach().clone() : value;
      if (value.defined()) own.set_requires_grad(value.requires_grad());
      if (!there) theirs.insert(entry.key(), own);
      set_parameter_if_reachable(other, entry.key(), own);
    }
    for (const std::string& key : theirs.keys()) {
      if (!registered_parameters(first).contains(key)) theirs.erase(key);
    }
    const auto buffers = other.named_buffers(/*recurse=*/false);
    for (const auto& entry : first.named_buffers(/*recurse=*/false)) {
      if (buffers.contains(entry.key())) continue;
      other.register_buffer(entry.key(), entry.value().detach().clone());
    }
  }

  static std::shared_ptr<nn::Module> cloned(const nn::Module& module, const std::string& path) {
    try {
      return module.clone();
    } catch (const c10::Error&) {
      refuse(module, path);
    }
  }

  static void assign(const nn::Module& from, nn::Module& to, const std::string& path) {
    if (!assign_layer(to, *cloned(from, path))) refuse(from, path);
  }

  [[noreturn]] static void refuse(const nn::Module& module, const std::string& path) {
    throw ValueError(
        "Model",
        cat("the module ", path.empty() ? "itself" : "\"" + path + "\"", ", a ", module.name(),
            ", was replaced on replica 0, but can't be on the others: expected a layer of "
            "LibTorch in place of one of the same type; make the Model anew, from a "
            "factory that makes the module as it should be"));
  }

  const ModuleWatch& before_;
};

}  // namespace

void check_same_structure(const nn::Module& first, const nn::Module& other) {
  check_fits(first.named_parameters(), other.named_parameters());
  check_fits(first.named_buffers(), other.named_buffers());
}

void check_same_options(const nn::Module& given, const nn::Module& made) {
  std::istringstream expected(cat(given)), got(cat(made));
  std::string line, other;
  do {
    std::getline(expected, line);
    std::getline(got, other);
  } while (line == other && expected && got);
  if (line == other) return;
  const auto trimmed = [](const std::string& text) {
    const auto begin = text.find_first_not_of(' ');
    return begin == std::string::npos ? std::string("nothing") : text.substr(begin);
  };
  throw ValueError("Model", cat("a module for another replica, made without arguments, is not like "
                                "the one that was given: expected ",
                                trimmed(line), ", got ", trimmed(other),
                                "; give the arguments, as in Model<Net> model(64, 10), or a "
                                "factory too, as in Model(existing, [] { return Net(64, 10); })"));
}

void follow_structure(const nn::Module& first, const ModuleWatch& before, nn::Module& other) {
  Follower(before).follow(first, other, "");
}

/// `train` switches the modules inside too, so that those come after.
void follow_modes(const nn::Module& first, nn::Module& other) {
  const auto ours = first.modules(), theirs = other.modules();
  for (std::size_t m = 0; m < ours.size() && m < theirs.size(); ++m) {
    if (theirs[m]->is_training() != ours[m]->is_training())
      theirs[m]->train(ours[m]->is_training());
  }
}

}  // namespace cohort
