#pragma once

#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/optim/gradient_reducer.h"
#include "cohort/optim/once_per_copy.h"
#include "cohort/optim/replicated_module.h"

namespace cohort {

/// The part of `Optimizer` that does not depend on its type: a `torch::optim` optimizer for each
/// copy of the parameters, stepped with gradients that are summed over all replicas.
class OptimizerCore {
 public:
  using Closure = std::function<at::Tensor()>;

  /// Makes a copy's optimizer from its parameters and their names.
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(
      const std::vector<at::Tensor>&, const std::vector<std::string>&)>;

  /// Throws ValueError for no model, for models of different strategies, or no parameters, and
  /// RuntimeError inside of strategy.run().
  OptimizerCore(std::vector<std::shared_ptr<ReplicatedModule>> models, const Make& make,
                const OptimizerOptions& options);

  /// In a replica: sums the gradients, then updates the replica's copy. Outside of everything:
  /// applies replica 0's gradients to all copies. Throws RuntimeError in cross-replica context, and
  /// when another optimizer was made for a model since.
  void step();

  /// For optimizers that evaluate the loss several times. The closure computes the replica's share
  /// of the loss and its gradients; both are reduced over replicas. Returns the first loss,
  /// reduced. Outside of everything the closure computes the whole loss.
  at::Tensor step(const Closure& closure);

  /// Of the calling replica; outside of replicas, of all.
  void zero_grad(bool set_to_none);

  /// Sets the learning rate of a parameter group, or of all groups, in all copies. In a run it is a
  /// collective, to which all replicas bring the same rate.
  void set_lr(double lr, std::optional<std::size_t> group = {});

  /// Stops summing during backward in the calling replica, or starts it again.
  void set_syncing(bool on);
  bool syncing() const;

  int copies() const { return static_cast<int>(copies_.size()); }
  torch::optim::Optimizer& copy(int i) { return *copies_[i]; }

  /// Calls action for every copy, once. In a run it is a collective.
  void for_each_copy(OncePerCopy& once, const std::function<void(int copy)>& action);

  const ReplicatedModule& model() const { return *models_[0]; }
  StrategyExtended& strategy() const { return models_[0]->strategy(); }

 private:
  ReplicaContext* calling_replica(const char* where) const;
  ReplicaContext* stepping_replica() const;
  void step_copy(int copy);
  void begin_writing(int copy);
  void end_writing(int copy);
  void step_everywhere();
  at::Tensor step_everywhere(const Closure& closure);
  at::Tensor evaluate(ReplicaContext& replica, const Closure& closure);
  void clip_gradients(int copy);
  void check_drift(ReplicaContext& replica);

  std::vector<std::shared_ptr<ReplicatedModule>> models_;
  const OptimizerOptions options_;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> copies_;
  std::shared_ptr<GradientReducer> reducer_;
  OncePerCopy once_, once_lr_;
};

}  // namespace cohort
