// What a ReplicatedModule does depends on where it is called: in a replica, outside, or elsewhere.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/optim/gradient_reducer.h"
#include "cohort/optim/model_copies.h"
#include "cohort/optim/model_update.h"
#include "cohort/optim/replica_training.h"
#include "cohort/optim/replicated_module.h"

namespace cohort {

ReplicaContext* ReplicatedModule::running_replica() const {
  ReplicaContext* const replica = replica_context_or_null();
  const bool is_own = replica && &replica->extended() == strategy_.get() && replica->in_run();
  return is_own ? replica : nullptr;
}

int ReplicatedModule::index_of_current() const {
  ReplicaContext* const replica = replica_context_or_null();
  if (!replica || &replica->extended() != strategy_.get()) {
    if (is_in_foreign_run()) ReplicaTraining::of(*replica).use_foreign(*this);
    return 0;
  }
  if (replica->in_run()) model_copies_->enter_run(*replica);
  return replica->local_id();
}

const std::shared_ptr<torch::nn::Module>& ReplicatedModule::replica(int local_id) const {
  if (!running_replica()) model_copies_->settle();
  return replicas_[local_id];
}

void ReplicatedModule::require_outside_of_replicas(const char* where) const {
  if (!running_replica()) return;
  throw RuntimeError(where,
                     "called inside strategy.run(), but it concerns all replicas at once: "
                     "call it outside");
}

bool ReplicatedModule::is_in_foreign_run() const {
  const ReplicaContext* const replica = replica_context_or_null();
  return replica && replica->in_run() && &replica->extended() != strategy_.get() && has_strategy();
}

namespace {

/// Batch normalization, LibTorch's, Cohort's or one's own, that would change its statistics.
bool changes_statistics(const torch::nn::Module& module) {
  const auto modules = module.modules();
  return std::any_of(modules.begin(), modules.end(), [](const auto& each) {
    return each->is_training() && each->named_buffers(/*recurse=*/false).contains("running_mean");
  });
}

}  // namespace

void ReplicatedModule::require_evaluation() const {
  const torch::nn::Module& module = *replicas_[0];
  const auto parameters = module.parameters();
  const bool has_gradients =
      at::GradMode::is_enabled() &&
      std::any_of(parameters.begin(), parameters.end(),
                  [](const at::Tensor& parameter) { return parameter.requires_grad(); });
  if (!has_gradients && !changes_statistics(module)) return;
  throw_used_in_foreign_run(
      "used for training", replica_context_or_null()->extended(), *strategy_,
      has_gradients ? "use torch::NoGradGuard or model.freeze()" : "call model.eval() before");
}

std::shared_ptr<ForeignUse> ReplicatedModule::foreign_use(const ReplicaContext& replica) const {
  return foreign_uses_.of(replica, *this, *replicas_[0]);
}

void ReplicatedModule::update(Change fn, const ReplicatedModule* other) {
  model_update_->run(fn, other);
}

void ReplicatedModule::to(at::ScalarType type) {
  require_outside_of_replicas("Model.to");
  model_copies_->settle();
  for (const auto& replica : replicas_) replica->to(type);
  if (replicas_[0]->parameters().empty()) return model_copies_->note_buffers();
  model_copies_->note_buffers();
  model_copies_->hand_out_parameters();
  model_copies_->settle();
  hand_to({});
}

void ReplicatedModule::train(bool on) {
  const ReplicaContext* replica = replica_context_or_null();
  if (replica && &replica->extended() == strategy_.get()) return current().train(on);
  model_copies_->settle();
  for (const auto& each : replicas_) each->train(on);
}

void ReplicatedModule::set_trainable(const std::string& prefix, bool trainable) {
  require_outside_of_replicas(trainable ? "Model.unfreeze" : "Model.freeze");
  model_copies_->settle();
  bool any = false;
  for (const auto& replica : replicas_) {
    for (auto& entry : replica->named_parameters()) {
      if (entry.key().rfind(prefix, 0) != 0) continue;
      entry.value().set_requires_grad(trainable);
      any = true;
    }
  }
  if (!any) throw ValueError("Model", cat("no parameter's name begins with \"", prefix, '"'));
}

void ReplicatedModule::hand_to(std::weak_ptr<GradientReducer> reducer) {
  if (const auto before = reducer_.lock()) before->retire();
  reducer_ = std::move(reducer);
}

void ReplicatedModule::clear_gradients_as_first() const {
  const auto reducer = reducer_.lock();
  if (reducer && !reducer->is_retired()) reducer->clear_as_first();
}

bool ReplicatedModule::has_reducer() const {
  const auto reducer = reducer_.lock();
  return reducer && !reducer->is_retired();
}

}  // namespace cohort
