#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/optim/module_file.h"
#include "cohort/optim/replicated_module.h"

namespace cohort {
namespace detail {

/// `Net` of TORCH_MODULE(Net), and the like.
template <class T>
concept ModuleHolder = requires { typename T::ContainedType; };

/// The class behind a holder, or the module's class itself.
template <class M>
struct ModuleClass {
  using type = M;
  using pointer = std::shared_ptr<M>;
};
template <ModuleHolder M>
struct ModuleClass<M> {
  using type = typename M::ContainedType;
  using pointer = M;
};

template <ModuleHolder M>
std::shared_ptr<typename M::ContainedType> module_pointer(const M& module) {
  return module.ptr();
}
template <class M>
std::shared_ptr<M> module_pointer(const std::shared_ptr<M>& module) {
  return module;
}

/// A function that gives a holder or a shared pointer. (A holder can be called too: not asked.)
template <class F>
concept ModuleFactory = !ModuleHolder<F> && requires(F make) { module_pointer(make()); };

/// A channels-last copy of a four-dimensional tensor; everything else as it is.
template <class T>
decltype(auto) in_channels_last(T&& argument) {
  if constexpr (std::same_as<std::remove_cvref_t<T>, at::Tensor>) {
    return argument.dim() == 4 ? argument.contiguous(at::MemoryFormat::ChannelsLast) : argument;
  } else {
    return std::forward<T>(argument);
  }
}

}  // namespace detail

/// A module with a copy on each replica, kept identical: a drop-in for the module itself.
///
///     cohort::Model<Net> model(64, 10);                    // Net(64, 10) on every replica
///     auto logits = model(images);                         // in a replica: its own copy
///     model->features(images);                             // any other method
///
/// Any `torch::nn` module will do, given as the holder of TORCH_MODULE or as the class itself.
/// Made in a strategy's scope; made elsewhere it is a plain module. A forward pass outside of
/// replicas uses the parameters as they are and the buffers aggregated over replicas. Cheap to
/// copy: copies are the same model.
template <class M>
class Model {
 public:
  using Module = typename detail::ModuleClass<M>::type;
  using Existing = typename detail::ModuleClass<M>::pointer;  // the holder, or a shared pointer

  /// Constructs the module of each replica from the same arguments.
  template <class... Args>
    requires std::constructible_from<Module, const Args&...>
  explicit Model(const Args&... args) : Model(ModelOptions{}, args...) {}
  template <class... Args>
    requires std::constructible_from<Module, const Args&...>
  explicit Model(const ModelOptions& options, const Args&... args)
      : Model(
            Built(), [&] { return std::make_shared<Module>(args...); }, options) {}

  /// From a factory, called once for each replica, that gives the holder or a shared pointer.
  template <detail::ModuleFactory Factory>
  explicit Model(Factory make, const ModelOptions& options = {})
      : Model(
            Built(), [&] { return detail::module_pointer(make()); }, options) {}

  /// From a module that exists, which becomes replica 0's. The others are cloned, or constructed
  /// without arguments where the module can't be cloned; else give a factory for them.
  explicit Model(const Existing& existing, const ModelOptions& options = {})
      : Model(
            Built(), detail::module_pointer(existing), [&] { return another(existing); }, options) {
  }
  template <detail::ModuleFactory Factory>
  Model(const Existing& existing, Factory make, const ModelOptions& options = {})
      : Model(
            Built(), detail::module_pointer(existing),
            [&] { return detail::module_pointer(make()); }, options) {}

  /// The forward pass of the current replica's module.
  template <class... Args>
  auto operator()(Args&&... args) const {
    const auto module = operator->();
    if (!shared_->options().channels_last) return module->forward(std::forward<Args>(args)...);
    return module->forward(detail::in_channels_last(std::forward<Args>(args))...);
  }

  /// The current replica's module, for its other methods, until the end of the statement.
  class Access {
   public:
    explicit Access(const ReplicatedModule& model)
        : module_(dynamic_cast<Module&>(model.current())) {
      const ReplicaContext* replica = replica_context_or_null();
      if (!replica || &replica->extended() != &model.strategy()) buffers_.emplace(model);
    }
    Module* operator->() const { return &module_; }

   private:
    Module& module_;
    std::optional<ReplicatedModule::AggregatedBuffers> buffers_;
  };
  Access operator->() const { return Access(*shared_); }

  /// Of the calling replica; outside of replicas, of all.
  void train(bool on = true) { shared_->train(on); }
  void eval() { shared_->train(false); }
  bool is_training() const { return shared_->current().is_training(); }

  /// Stops or starts the training of parameters whose name begins with `prefix`, on all replicas.
  void freeze(const std::string& prefix = "") { shared_->set_trainable(prefix, false); }
  void unfreeze(const std::string& prefix = "") { shared_->set_trainable(prefix, true); }

  /// The current replica's own tensors; replica 0's outside of replicas.
  std::vector<at::Tensor> parameters() const { return shared_->current().parameters(); }
  auto named_parameters() const { return shared_->current().named_parameters(); }
  auto named_buffers() const { return shared_->current().named_buffers(); }

  /// All parameters and buffers by name, and setting them from such: see ReplicatedModule.
  StateDict state_dict() const { return shared_->state_dict(); }
  void load_state_dict(const StateDict& state) { shared_->load_state_dict(state); }

  /// Writes them to a file, in LibTorch's own format: `torch::load(module, path)` reads it too.
  /// Throws NotFound when it can't be written.
  void save(const std::string& path) const { save_module(*shared_, path); }

  /// Sets all of them, on all replicas, from such a file; any strategy, and any number of replicas,
  /// may have written it. Throws NotFound or InvalidArgument when it can't be read, and ValueError
  /// for tensors that do not fit, before anything is changed.
  void load(const std::string& path) {
    try {
      load_state_dict(read_module_file(path));
    } catch (ValueError& error) {
      error.add_note(cat("in ", path));
      throw;
    }
  }

  // For the layers above.
  const std::shared_ptr<ReplicatedModule>& shared() const { return shared_; }
  operator std::shared_ptr<ReplicatedModule>() const { return shared_; }

 private:
  struct Built {};

  template <class Make>
  Model(Built, Make&& make, const ModelOptions& options)
      : shared_(std::make_shared<ReplicatedModule>(make, options)) {}
  template <class Make>
  Model(Built, std::shared_ptr<Module> first, Make&& make, const ModelOptions& options)
      : shared_(std::make_shared<ReplicatedModule>(std::move(first), make, options)) {}

  static std::shared_ptr<torch::nn::Module> another(const Existing& existing) {
    using Cloneable = torch::nn::Cloneable<Module>;
    if constexpr (std::derived_from<Module, Cloneable>) {
      return detail::module_pointer(existing)->clone();
    } else {
      static_assert(std::default_initializable<Module>,
                    "Model(existing): this module can't be cloned nor constructed without "
                    "arguments; give a factory too: Model(existing, [] { return Net(…); })");
      return std::make_shared<Module>();
    }
  }

  std::shared_ptr<ReplicatedModule> shared_;
};

}  // namespace cohort
