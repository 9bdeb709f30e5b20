#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <memory>
#include <optional>
#include <ostream>
#include <type_traits>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/optim/model_copies.h"
#include "cohort/optim/module_file.h"
#include "cohort/optim/module_structure.h"
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

/// A function that gives a holder or a shared pointer. (A holder and a Model can be called too: not
/// asked.)
template <class F>
concept ModuleFactory = !ModuleHolder<F> && (!requires { typename F::Existing; }) &&
                        requires(F make) { module_pointer(make()); };

/// What a constructor of Model takes beside the module's own arguments.
template <class M, class... Args>
concept ModelArguments =
    std::constructible_from<typename ModuleClass<M>::type, const Args&...> ||
    (ModuleFactory<std::remove_cvref_t<Args>> || ...) ||
    (std::convertible_to<const Args&, typename ModuleClass<M>::pointer> || ...) ||
    (std::same_as<std::remove_cvref_t<Args>, ModelOptions> || ...);

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
/// Made in a strategy's scope; made elsewhere it is a plain module, which inside of a strategy's
/// run may be evaluated only. A forward pass outside of replicas uses the parameters as they are
/// and the buffers aggregated over replicas. Cheap to copy: copies are the same model.
///
/// What is written to it outside of replicas reaches all of them: `model->apply(init)`,
/// `torch::nn::init::zeros_(model->head->bias)` and the like when the statement ends, tensors from
/// `parameters()`, `named_parameters()` and `named_buffers()` when a run next uses the model. Of
/// tensors that were kept from earlier, writes that LibTorch counts (`_version`; not those through
/// `.data()`). Inside of replicas, `update` writes; a direct write to a parameter is an error.
template <class M>
class Model {
 public:
  using Module = typename detail::ModuleClass<M>::type;
  static_assert(std::derived_from<Module, torch::nn::Module>,
                "Model<M>: M must be a torch::nn module, the holder of TORCH_MODULE or the class "
                "itself. A torch::jit::Module can't be: write its layers as a torch::nn module");
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

  /// Says what is wrong with other arguments.
  template <class... Args>
    requires(!detail::ModelArguments<M, Args...>)
  explicit Model(const Args&...) {
    static_assert(!std::derived_from<Module, torch::nn::Module> ||
                      std::constructible_from<Module, const Args&...>,
                  "the module can't be constructed from these arguments: give Model those that its "
                  "constructor takes, as in Model<Net> model(64, 10), or a factory, as in "
                  "Model<Net> model([] { return Net(64, 10); })");
  }

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
    const Access module(*shared_, Access::READS);
    if (!shared_->options().channels_last) return module->forward(std::forward<Args>(args)...);
    return module->forward(detail::in_channels_last(std::forward<Args>(args))...);
  }
  template <class... Args>
  auto forward(Args&&... args) const {
    return operator()(std::forward<Args>(args)...);
  }

  /// The current replica's module, for its other methods, until the end of the statement. What the
  /// statement does to it outside of replicas then holds for all of them.
  class Access {
   public:
    enum Purpose { READS, WRITES };
    Access(const ReplicatedModule& model, Purpose purpose)
        : model_(model), module_(dynamic_cast<Module&>(model.current())) {
      if (model.running_replica()) return;
      const bool is_foreign = model.is_in_foreign_run();
      if (is_foreign) model.require_evaluation();
      // Those of all workers only for a forward pass: what else is asked for may be asked by one.
      const bool is_collective = !model.strategy().world().holds_root();
      if (purpose == READS || !is_collective) {
        buffers_.emplace(model, "a forward pass outside of strategy.run");
      }
      spreads_ = purpose == WRITES && !is_foreign;
      if (spreads_) model.model_copies().hand_out_parameters();
    }
    ~Access() {
      buffers_.reset();
      if (!spreads_) return;
      model_.model_copies().hand_out_parameters();
      model_.model_copies().settle_counted();
    }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;
    Module* operator->() const { return &module_; }

   private:
    const ReplicatedModule& model_;
    Module& module_;
    std::optional<ReplicatedModule::AggregatedBuffers> buffers_;
    bool spreads_ = false;
  };
  Access operator->() const { return Access(*shared_, Access::WRITES); }

  /// Changes the parameters: calls fn(name, parameter), without gradients, for each parameter of
  /// each copy, once however many replicas share the copy. In a run, all replicas must call it with
  /// functions that do the same; `parameter.grad()` is the sum over replicas. Outside of replicas
  /// fn changes one copy, and the others take its values.
  ///
  ///     model.update([](const std::string&, torch::Tensor p) { p.clamp_(-1, 1); });
  template <class F>
  void update(F&& fn) {
    static_assert(std::invocable<F&, const std::string&, at::Tensor&>,
                  "model.update(fn): fn must take (const std::string& name, torch::Tensor "
                  "parameter)");
    shared_->update([&](const std::string& name, at::Tensor& parameter, const at::Tensor&) {
      fn(name, parameter);
    });
  }

  /// The same with fn(name, parameter, the other model's parameter of that name, in the same copy).
  /// Throws ValueError for a name that the other model does not have.
  ///
  ///     target.update([](const std::string&, torch::Tensor t, const torch::Tensor& p) {
  ///       t.lerp_(p, 0.01);
  ///     }, online);
  template <class F, class Other>
  void update(F&& fn, const Model<Other>& other) {
    static_assert(std::invocable<F&, const std::string&, at::Tensor&, const at::Tensor&>,
                  "model.update(fn, other): fn must take (const std::string& name, torch::Tensor "
                  "parameter, const torch::Tensor& of_other)");
    shared_->update([&](const std::string& name, at::Tensor& parameter,
                        const at::Tensor& of_other) { fn(name, parameter, of_other); },
                    other.shared().get());
  }

  /// Converts all parameters and buffers to another type, on all replicas, as `torch::nn::Module`
  /// does. An optimizer must be made after it. Where they lie is for the strategy to say.
  void to(at::ScalarType type) { shared_->to(type); }

  /// Of the calling replica; outside of replicas, of all.
  void train(bool on = true) { shared_->train(on); }
  void eval() { shared_->train(false); }
  bool is_training() const { return shared_->current().is_training(); }

  /// Stops or starts the training of parameters whose name begins with `prefix`, on all replicas.
  void freeze(const std::string& prefix = "") { shared_->set_trainable(prefix, false); }
  void unfreeze(const std::string& prefix = "") { shared_->set_trainable(prefix, true); }

  /// The current replica's own tensors; replica 0's outside of replicas. What is written to those
  /// is spread when a run next uses the model.
  std::vector<at::Tensor> parameters() const { return handed_out().parameters(); }
  auto named_parameters() const { return handed_out().named_parameters(); }
  auto named_buffers() const {
    if (!shared_->running_replica()) shared_->model_copies().hand_out_buffers();
    return shared_->current().named_buffers();
  }

  /// All parameters and buffers by name, and setting them from such: see ReplicatedModule.
  StateDict state_dict() const { return shared_->state_dict(); }
  void load_state_dict(const StateDict& state) { shared_->load_state_dict(state); }

  /// Writes them to a file, in LibTorch's own format: `torch::load(module, path)` reads it too. Of
  /// several workers the chief writes it; it is there when the call returns on any of them.
  /// Throws NotFound when it can't be written, and ValueError for names that LibTorch writes but
  /// can't read again, such as "in".
  void save(const std::string& path) const { save_module(*shared_, path); }

  /// Sets all of them, on all replicas, from such a file; any strategy, and any number of replicas,
  /// may have written it. Of several workers the chief reads it. Throws NotFound or InvalidArgument
  /// when it can't be read, and ValueError for tensors that do not fit, before anything is changed.
  void load(const std::string& path) { load_module(*shared_, path); }

  /// Prints the module's layers.
  friend std::ostream& operator<<(std::ostream& out, const Model& model) {
    return out << model.shared_->current();
  }

  // For the layers above.
  const std::shared_ptr<ReplicatedModule>& shared() const { return shared_; }
  operator std::shared_ptr<ReplicatedModule>() const { return shared_; }

 private:
  struct Built {};

  template <class Make>
  Model(Built, Make&& make, const ModelOptions& options)
      : shared_(std::make_shared<ReplicatedModule>(make, options)) {
    shared_->enlist();
  }
  template <class Make>
  Model(Built, std::shared_ptr<Module> first, Make&& make, const ModelOptions& options)
      : shared_(std::make_shared<ReplicatedModule>(std::move(first), make, options)) {
    shared_->enlist();
  }

  torch::nn::Module& handed_out() const {
    if (!shared_->running_replica()) shared_->model_copies().hand_out_parameters();
    return shared_->current();
  }

  static std::shared_ptr<torch::nn::Module> another(const Existing& existing) {
    using Cloneable = torch::nn::Cloneable<Module>;
    if constexpr (std::derived_from<Module, Cloneable>) {
      return detail::module_pointer(existing)->clone();
    } else {
      static_assert(std::default_initializable<Module>,
                    "Model(existing): this module can't be cloned nor constructed without "
                    "arguments; give the arguments, as in Model<Net> model(64, 10), or a factory "
                    "too: Model(existing, [] { return Net(64, 10); })");
      const auto made = std::make_shared<Module>();
      check_same_options(*detail::module_pointer(existing), *made);
      return made;
    }
  }

  std::shared_ptr<ReplicatedModule> shared_;
};

// Model model(Net(64, 10)), and what else names the module's type.
template <detail::ModuleHolder M, class... More>
Model(const M&, const More&...) -> Model<M>;
template <std::derived_from<torch::nn::Module> M, class... More>
Model(const std::shared_ptr<M>&, const More&...) -> Model<M>;

}  // namespace cohort
