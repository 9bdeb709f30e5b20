#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/distribute/replica_context.h"

namespace cohort {

class ReplicatedModule;

/// A model in a run of another strategy than its own: one module for all replicas of the run, which
/// may evaluate it at the same time, but not change it.
///
/// Notes how often LibTorch has counted a write to each parameter and buffer when the first replica
/// uses the model. Only counts are compared, not memory, which a forward pass outside of the
/// model's own replicas exchanges. Shared by the replicas; `pause` and `resume` while all of them
/// wait.
class ForeignUse {
 public:
  ForeignUse(const ReplicaContext& replica, const ReplicatedModule& model,
             const torch::nn::Module& module);

  bool is_of(const ReplicatedModule& model) const;
  bool is_in_run_of(const ReplicaContext& replica) const {
    return &replica.extended() == &strategy_ && replica.run_serial() == run_;
  }

  /// Throws RuntimeError, which names it, if a parameter or buffer was written.
  void require_unwritten() const;

  /// Around what may be written: a merge_call's function is alone.
  void pause();
  void resume();

 private:
  struct Seen {
    std::string name;
    at::Tensor tensor;
    std::int64_t writes;      // that are allowed
    std::int64_t paused = 0;  // the count at `pause`
  };

  const StrategyExtended& strategy_;  // of the run
  const std::uint64_t run_;
  const std::weak_ptr<const ReplicatedModule> model_;
  const std::shared_ptr<StrategyExtended> models_strategy_;
  std::vector<Seen> seen_;
};

/// The foreign runs that a model is used in. Thread-safe.
class ForeignUses {
 public:
  /// The one of this replica's run, which lasts until the last replica lets go of it.
  std::shared_ptr<ForeignUse> of(const ReplicaContext& replica, const ReplicatedModule& model,
                                 const torch::nn::Module& module);

 private:
  Mutex mutex_;
  std::vector<std::weak_ptr<ForeignUse>> uses_ COHORT_GUARDED_BY(mutex_);
};

/// Throws RuntimeError for a model that was `what`, "used for training", in the run of a strategy
/// that is not its own; `remedy` is what to do to evaluate it.
[[noreturn]] void throw_used_in_foreign_run(const std::string& what, const StrategyExtended& run,
                                            StrategyExtended& own, const std::string& remedy);

}  // namespace cohort
