#pragma once

#include <algorithm>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/optim/model.h"
#include "cohort/optim/optimizer_core.h"

namespace cohort {

/// Options for the parameters whose name begins with `prefix`; or only their learning rate, where
/// the optimizer itself is given just that.
template <class Options>
struct ParameterGroup {
  std::string prefix;
  Options options;
};

/// A list of them. (Not a plain vector, so that `{.check_drift_every = 100}` can't be one.)
template <class Options>
class ParameterGroups : public std::vector<ParameterGroup<Options>> {
 public:
  ParameterGroups() = default;
  ParameterGroups(std::initializer_list<ParameterGroup<Options>> groups)
      : std::vector<ParameterGroup<Options>>(groups) {}
  template <std::same_as<std::vector<ParameterGroup<Options>>> Groups>
  ParameterGroups(Groups groups)  // NOLINT(google-explicit-constructor)
      : std::vector<ParameterGroup<Options>>(std::move(groups)) {}
};

/// Any `torch::optim` optimizer, for a model that is replicated.
///
///     cohort::Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.1));
///     …                                    // inside strategy.run:
///     optimizer.zero_grad();
///     loss.backward();                     // gradients are summed meanwhile
///     optimizer.step();
///
/// `step` sums gradients over all replicas, so the loss must be divided by the global batch
/// (`average_loss` does). A parameter that no replica's loss used is skipped, as in LibTorch. A
/// model has one optimizer at a time: making another one ends the first.
template <class O>
class Optimizer {
 public:
  /// `options` are those of the optimizer itself, or a number: the learning rate.
  template <class M, class Options>
  Optimizer(const Model<M>& model, const Options& options, const OptimizerOptions& more = {})
      : Optimizer({model.shared()}, options, ParameterGroups<Options>{}, more) {}

  /// Of several models, `optimizer({encoder, decoder}, options)`; parameters of the second are
  /// named "1.…" in groups and errors.
  template <class Options>
  Optimizer(std::vector<std::shared_ptr<ReplicatedModule>> models, const Options& options,
            const OptimizerOptions& more = {})
      : Optimizer(std::move(models), options, ParameterGroups<Options>{}, more) {}

  /// With options of their own for some parameters. The first group whose prefix fits counts.
  template <class M, class Options>
  Optimizer(const Model<M>& model, const Options& options,
            const std::type_identity_t<ParameterGroups<Options>>& groups,
            const OptimizerOptions& more = {})
      : Optimizer({model.shared()}, options, groups, more) {}
  template <class Options>
  Optimizer(std::vector<std::shared_ptr<ReplicatedModule>> models, const Options& options,
            const std::type_identity_t<ParameterGroups<Options>>& groups,
            const OptimizerOptions& more = {})
      : core_(std::make_shared<OptimizerCore>(
            std::move(models),
            [&](const auto& parameters, const auto& names) {
              return make(grouped(parameters, names, options, groups), options, groups);
            },
            more)) {
    for (const auto& group : groups) prefixes_.push_back(group.prefix);
  }

  /// Updates every copy with the gradients, which `backward()` has summed over replicas. Those that
  /// it has not, from passes inside `no_sync` or put into `.grad` by hand, are summed first. Inside
  /// of replicas; outside of everything it applies the gradients of the one forward pass there was
  /// to all copies.
  void step() { core_->step(); }

  /// For LBFGS: the closure clears the gradients, computes the replica's share of the loss, calls
  /// backward and returns the loss. Returns the first loss, reduced over replicas as gradients are.
  at::Tensor step(const OptimizerCore::Closure& closure) { return core_->step(closure); }

  /// Forgets the gradients of the calling replica; outside of replicas, of all.
  void zero_grad(bool set_to_none = true) { core_->zero_grad(set_to_none); }

  /// Sets the learning rate: of all parameters, or of the group that was given with this prefix. In
  /// a run it is a collective: every replica calls it, with the same rate. Throws ValueError for a
  /// prefix that no group has.
  void set_lr(double lr) { core_->set_lr(lr); }
  void set_lr(double lr, std::string_view prefix) {
    const auto group = std::find(prefixes_.begin(), prefixes_.end(), prefix);
    if (group == prefixes_.end()) {
      throw ValueError("optimizer.set_lr",
                       cat("no parameter group has the prefix \"", prefix,
                           "\": give the optimizer a group with that prefix when it is made, or "
                           "set the rate of all parameters"));
    }
    core_->set_lr(lr, group - prefixes_.begin());
  }

  /// While the result lives, gradients of the calling replica add up over backward passes without
  /// being summed over replicas: for gradient accumulation, in all passes but the last. The next
  /// pass outside of it, or a step, sums what has gathered.
  class NoSync {
   public:
    explicit NoSync(std::shared_ptr<OptimizerCore> core)
        : core_(std::move(core)), before_(core_->syncing()) {
      core_->set_syncing(false);
    }
    ~NoSync() { core_->set_syncing(before_); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    std::shared_ptr<OptimizerCore> core_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(core_); }

  /// The optimizer of a copy, to look at its state or its groups. Change all copies alike.
  O& copy(int i = 0) { return static_cast<O&>(core_->copy(i)); }
  int copies() const { return core_->copies(); }

  // For the layers above.
  const std::shared_ptr<OptimizerCore>& core() const { return core_; }

 private:
  template <class Options>
  static std::vector<torch::optim::OptimizerParamGroup> grouped(
      const std::vector<at::Tensor>& parameters, const std::vector<std::string>& names,
      const Options& options, const ParameterGroups<Options>& groups) {
    std::vector<std::vector<at::Tensor>> members(groups.size() + 1);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      std::size_t g = 0;
      while (g < groups.size() && names[p].rfind(groups[g].prefix, 0) != 0) ++g;
      members[g].push_back(parameters[p]);
    }
    std::vector<torch::optim::OptimizerParamGroup> result;
    for (std::size_t g = 0; g < members.size(); ++g) {
      if (members[g].empty() && g == groups.size()) continue;
      if (members[g].empty()) {
        throw ValueError("Optimizer", cat("no parameter's name begins with \"", groups[g].prefix,
                                          "\", the prefix of a parameter group"));
      }
      if constexpr (std::is_arithmetic_v<Options>) {
        result.emplace_back(members[g]);  // with the optimizer's own; `make` sets learning rates
      } else {
        const Options& own = g < groups.size() ? groups[g].options : options;
        result.emplace_back(members[g], std::make_unique<Options>(own));
      }
    }
    return result;
  }

  template <class Options>
  static std::unique_ptr<O> make(std::vector<torch::optim::OptimizerParamGroup> parameters,
                                 const Options& options, const ParameterGroups<Options>& groups) {
    auto optimizer = std::make_unique<O>(std::move(parameters), options);
    if constexpr (std::is_arithmetic_v<Options>) {
      for (std::size_t g = 0; g < groups.size(); ++g) {
        optimizer->param_groups()[g].options().set_lr(groups[g].options);
      }
    }
    return optimizer;
  }

  std::shared_ptr<OptimizerCore> core_;
  std::vector<std::string> prefixes_;  // of the parameter groups, in their order
};

/// A `torch::optim` learning-rate scheduler for all copies of a replicated model's optimizer.
///
///     cohort::Scheduler<torch::optim::StepLR> scheduler(optimizer, /*step_size=*/10, 0.1);
///     scheduler.step();     // by every replica, after optimizer.step(); or outside of replicas
///
/// In a run `step` is a collective.
template <class S>
class Scheduler {
 public:
  template <class O, class... Args>
  explicit Scheduler(Optimizer<O>& optimizer, const Args&... args)
      : core_(optimizer.core()), once_(core_->model(), "scheduler.step") {
    for (int c = 0; c < core_->copies(); ++c) {
      schedulers_.push_back(std::make_unique<S>(core_->copy(c), args...));
    }
  }

  void step() {
    core_->for_each_copy(once_, [this](int copy) { schedulers_[copy]->step(); });
  }

 private:
  std::shared_ptr<OptimizerCore> core_;
  OncePerCopy once_;
  std::vector<std::unique_ptr<S>> schedulers_;
};

}  // namespace cohort
