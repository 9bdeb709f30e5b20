#include "cohort/optim/optimizer_core.h"

#include <ATen/ATen.h>

#include <cstring>

#include "cohort/base/error.h"
#include "cohort/distribute/differentiable_collectives.h"

namespace cohort {
namespace {

/// The parameters of one replica in all models, or their names, with the model's number in front
/// when there are several.
std::vector<at::Tensor> parameters_of(
    const std::vector<std::shared_ptr<ReplicatedModule>>& models, int replica) {
  std::vector<at::Tensor> all;
  for (const auto& model : models) {
    for (auto& parameter : model->replica(replica)->parameters()) all.push_back(parameter);
  }
  return all;
}

std::vector<std::string> names_of(const std::vector<std::shared_ptr<ReplicatedModule>>& models) {
  std::vector<std::string> all;
  for (std::size_t m = 0; m < models.size(); ++m) {
    const std::string prefix = models.size() > 1 ? cat(m, '.') : "";
    for (const auto& entry : models[m]->replica(0)->named_parameters()) {
      all.push_back(prefix + entry.key());
    }
  }
  return all;
}

std::vector<std::shared_ptr<ReplicatedModule>> checked(
    std::vector<std::shared_ptr<ReplicatedModule>> models) {
  if (models.empty()) throw ValueError("Optimizer", "no model: give at least one");
  for (const auto& model : models) {
    if (&model->strategy() == &models[0]->strategy()) continue;
    throw ValueError("Optimizer", cat("the models belong to different strategies, ",
                                      models[0]->strategy().name(), " and ",
                                      model->strategy().name(),
                                      ": make them in the same scope"));
  }
  return models;
}

std::unique_ptr<GradientReducer> make_reducer(
    const std::vector<std::shared_ptr<ReplicatedModule>>& models, const OptimizerOptions& options) {
  std::vector<std::vector<at::Tensor>> parameters;
  std::vector<int> owners;
  for (int r = 0; r < models[0]->replicas(); ++r) {
    parameters.push_back(parameters_of(models, r));
    owners.push_back(models[0]->owner_of(models[0]->copy_of(r)));
  }
  if (parameters[0].empty()) throw ValueError("Optimizer", "the model has no parameters");
  return std::make_unique<GradientReducer>(models[0]->strategy(), std::move(parameters),
                                           names_of(models), std::move(owners), options);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.detach().cpu().contiguous(), right = b.detach().cpu().contiguous();
  return left.nbytes() == right.nbytes() &&
         std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

/// Compares all copies while every replica waits.
class DriftCheck : public collectives::Contribution {
 public:
  DriftCheck(const GradientReducer& reducer, const ReplicatedModule& model)
      : reducer_(reducer), model_(model) {}
  std::string describe() const override { return "optimizer.step: drift check"; }
  std::optional<std::string> mismatch(const Contribution&) const override { return std::nullopt; }
  std::int64_t plan(std::span<Contribution* const>) override { return model_.copies() - 1; }

  void work(std::int64_t piece) override {
    const int replica = model_.owner_of(static_cast<int>(piece) + 1);
    for (std::size_t p = 0; p < reducer_.names().size(); ++p) {
      if (same_bits(reducer_.parameters(0)[p], reducer_.parameters(replica)[p])) continue;
      throw RuntimeError("optimizer.step",
                         cat("the copies of the parameters have drifted apart: ",
                             reducer_.names()[p], " on replica ", replica,
                             " differs from replica 0; change parameters only through the "
                             "optimizer or load_state_dict()"));
    }
  }

 private:
  const GradientReducer& reducer_;
  const ReplicatedModule& model_;
};

}  // namespace

OptimizerCore::OptimizerCore(std::vector<std::shared_ptr<ReplicatedModule>> models,
                             const Make& make, const OptimizerOptions& options)
    : models_(checked(std::move(models))),
      options_(options),
      reducer_(make_reducer(models_, options)),
      once_(*models_[0]),
      steps_(models_[0]->replicas(), 0) {
  for (int c = 0; c < models_[0]->copies(); ++c) {
    copies_.push_back(make(reducer_->parameters(models_[0]->owner_of(c)), reducer_->names()));
  }
}

/// Null outside of everything.
ReplicaContext* OptimizerCore::calling_replica(const char* where) const {
  ReplicaContext* replica = replica_context_or_null();
  if (!replica) {
    throw RuntimeError(where, "cannot be called in cross-replica context: call it inside the "
                              "function given to strategy.run()");
  }
  if (&replica->extended() == &strategy()) return replica;
  if (!has_strategy()) return nullptr;
  throw RuntimeError(where, cat("Mixing different tf.distribute.Strategy objects: the model "
                                "belongs to a ", strategy().name(), ", the calling replica to a ",
                                replica->extended().name()));
}

void OptimizerCore::step() {
  ReplicaContext* replica = calling_replica("optimizer.step");
  if (!replica) return step_everywhere();
  reducer_->synchronize(*replica);
  once_.run(*replica, [this](int copy) { step_copy(copy); });
  check_drift(*replica);
}

void OptimizerCore::step_copy(int copy) {
  clip_gradients(copy);
  copies_[copy]->step();
}

/// Outside of replicas there is one gradient, replica 0's: every copy gets it.
void OptimizerCore::step_everywhere() {
  const auto& first = reducer_->parameters(0);
  for (int c = 0; c < copies(); ++c) {
    const auto& own = reducer_->parameters(models_[0]->owner_of(c));
    for (std::size_t p = 0; c > 0 && p < own.size(); ++p) {
      const at::Tensor& grad = first[p].grad();
      own[p].mutable_grad() =
          grad.defined() ? grad.to(own[p].device(), false, /*copy=*/true) : at::Tensor();
    }
  }
  for (int c = 0; c < copies(); ++c) step_copy(c);
}

at::Tensor OptimizerCore::evaluate(ReplicaContext& replica, const Closure& closure) {
  const c10::AutoGradMode grad(true);
  const at::Tensor loss = closure().detach();
  reducer_->synchronize(replica);
  return detail::all_reduce(replica, ReduceOp::SUM, {loss})[0];
}

/// The first replica of each copy drives its optimizer, which evaluates the closure as often as it
/// likes: as often on every copy, since all see the same numbers. Before each evaluation, and after
/// the last, it tells the copy's other replicas whether there is one more.
at::Tensor OptimizerCore::step(const Closure& closure) {
  ReplicaContext* replica = calling_replica("optimizer.step");
  if (!replica || models_[0]->replicas() == 1) return copies_[0]->step(closure);
  const auto one_more = [&](std::int64_t mine) {
    const at::Tensor flag = at::scalar_tensor(mine, at::kLong);
    return detail::all_reduce(*replica, ReduceOp::SUM, {flag})[0].item<std::int64_t>() > 0;
  };
  const int copy = models_[0]->copy_of(replica->local_id());
  at::Tensor loss;
  if (models_[0]->owner_of(copy) == replica->local_id()) {
    loss = copies_[copy]->step([&] {
      one_more(1);
      return evaluate(*replica, closure);
    });
    one_more(0);
  } else {
    while (one_more(0)) {
      const at::Tensor next = evaluate(*replica, closure);
      if (!loss.defined()) loss = next;
    }
  }
  return loss;
}

void OptimizerCore::zero_grad(bool set_to_none) {
  const ReplicaContext* replica = replica_context_or_null();
  if (replica && &replica->extended() == &strategy()) {
    return reducer_->zero_grad(replica->local_id(), set_to_none);
  }
  for (int r = 0; r < models_[0]->replicas(); ++r) reducer_->zero_grad(r, set_to_none);
}

void OptimizerCore::set_syncing(bool on) {
  if (const ReplicaContext* replica = calling_replica("optimizer.no_sync")) {
    reducer_->set_syncing(replica->local_id(), on);
  }
}

bool OptimizerCore::syncing() const {
  const ReplicaContext* replica = calling_replica("optimizer.no_sync");
  return !replica || reducer_->syncing(replica->local_id());
}

void OptimizerCore::for_each_copy(OncePerCopy& once, const std::function<void(int)>& action) {
  ReplicaContext* replica = replica_context_or_null();
  if (replica && &replica->extended() == &strategy()) return once.run(*replica, action);
  for (int c = 0; c < copies(); ++c) action(c);
}

void OptimizerCore::clip_gradients(int copy) {
  if (!options_.clip_global_norm) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> grads, norms;
  for (const auto& parameter : reducer_->parameters(models_[0]->owner_of(copy))) {
    at::Tensor grad = parameter.grad();
    if (!grad.defined()) continue;
    if (grad.is_sparse()) grad = parameter.mutable_grad() = grad.coalesce();
    grads.push_back(grad.is_sparse() ? grad._values() : grad);
    norms.push_back(grads.back().norm());
  }
  if (grads.empty()) return;
  const double total = at::stack(norms).norm().item<double>();
  const double factor = *options_.clip_global_norm / (total + 1e-6);
  if (!(factor < 1)) return;
  for (at::Tensor& grad : grads) grad.mul_(factor);
}

void OptimizerCore::check_drift(ReplicaContext& replica) {
  if (options_.check_drift_every <= 0) return;
  if (++steps_[replica.local_id()] % options_.check_drift_every != 0) return;
  DriftCheck check(*reducer_, *models_[0]);
  detail::attend_meeting(replica, check);
}

}  // namespace cohort
