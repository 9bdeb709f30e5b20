#include "cohort/optim/foreign_use.h"

#include "cohort/base/error.h"
#include "cohort/distribute/strategy_extended.h"
#include "cohort/optim/replicated_module.h"
#include "cohort/optim/write_count.h"

namespace cohort {

ForeignUse::ForeignUse(const ReplicaContext& replica, const ReplicatedModule& model,
                       const torch::nn::Module& module)
    : strategy_(replica.extended()),
      run_(replica.run_serial()),
      model_(model.weak_from_this()),
      models_strategy_(model.strategy().shared_from_this()) {
  for (const auto& tensors : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& entry : tensors) {
      seen_.push_back({entry.key(), entry.value(), write_count(entry.value())});
    }
  }
}

bool ForeignUse::is_of(const ReplicatedModule& model) const {
  const auto other = model.weak_from_this();
  return !model_.owner_before(other) && !other.owner_before(model_);
}

void ForeignUse::require_unwritten() const {
  for (const Seen& seen : seen_) {
    if (write_count(seen.tensor) == seen.writes) continue;
    throw_used_in_foreign_run(cat("changed (\"", seen.name, "\" was written)"), strategy_,
                              *models_strategy_, "let nothing write to its parameters and buffers");
  }
}

void ForeignUse::pause() {
  for (Seen& seen : seen_) seen.paused = write_count(seen.tensor);
}

void ForeignUse::resume() {
  for (Seen& seen : seen_) seen.writes += write_count(seen.tensor) - seen.paused;
}

std::shared_ptr<ForeignUse> ForeignUses::of(const ReplicaContext& replica,
                                            const ReplicatedModule& model,
                                            const torch::nn::Module& module) {
  const MutexLock lock(mutex_);
  std::erase_if(uses_, [](const auto& use) { return use.expired(); });
  for (const auto& each : uses_) {
    auto use = each.lock();
    if (use && use->is_in_run_of(replica)) return use;
  }
  auto use = std::make_shared<ForeignUse>(replica, model, module);
  uses_.push_back(use);
  return use;
}

void throw_used_in_foreign_run(const std::string& what, const StrategyExtended& run,
                               StrategyExtended& own, const std::string& remedy) {
  throw RuntimeError(
      "Model",
      cat(what, " inside the strategy.run() of a ", run.name(),
          ", but it was made in the scope of ",
          own.standing_context() ? "no strategy" : "another " + own.name(),
          ", so that replicas would change one module at the same time: make it while `auto scope "
          "= strategy.scope();` lives; to evaluate it, ",
          remedy));
}

}  // namespace cohort
