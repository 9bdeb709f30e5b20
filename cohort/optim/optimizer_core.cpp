#include "cohort/optim/optimizer_core.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstring>
#include <set>
#include <span>

#include "cohort/base/error.h"
#include "cohort/collectives/all_reduce.h"
#include "cohort/distribute/differentiable_collectives.h"
#include "cohort/optim/model_copies.h"
#include "cohort/optim/same_bits.h"

namespace cohort {
namespace {

using Models = std::vector<std::shared_ptr<ReplicatedModule>>;

struct NamedParameters {
  std::vector<at::Tensor> tensors;
  std::vector<std::string> names;
};

/// Those of one replica in all models, with the model's number in front when there are several. A
/// tensor that modules share counts once, by its first name.
NamedParameters parameters_of(const Models& models, int replica) {
  NamedParameters all;
  std::set<const void*> seen;
  for (std::size_t m = 0; m < models.size(); ++m) {
    const std::string prefix = models.size() > 1 ? cat(m, '.') : "";
    for (const auto& entry : models[m]->replica(replica)->named_parameters()) {
      if (!seen.insert(entry.value().unsafeGetTensorImpl()).second) continue;
      all.tensors.push_back(entry.value());
      all.names.push_back(prefix + entry.key());
    }
  }
  return all;
}

Models checked(Models models) {
  if (const ReplicaContext* replica = replica_context_or_null(); replica && replica->in_run()) {
    throw RuntimeError("Optimizer",
                       "made inside strategy.run(), where each replica would make one of its own: "
                       "make it once before, beside the model, and use it inside");
  }
  if (models.empty()) throw ValueError("Optimizer", "no model: give at least one");
  for (const auto& model : models) {
    if (&model->strategy() == &models[0]->strategy()) continue;
    throw ValueError("Optimizer", cat("the models belong to different strategies, ",
                                      models[0]->strategy().name(), " and ",
                                      model->strategy().name(), ": make them in the same scope"));
  }
  return models;
}

std::shared_ptr<GradientReducer> make_reducer(const Models& models,
                                              const OptimizerOptions& options) {
  const NamedParameters first = parameters_of(models, 0);
  if (first.tensors.empty()) throw ValueError("Optimizer", "the model has no parameters");
  std::vector<std::vector<at::Tensor>> parameters;
  std::vector<int> owners;
  for (int r = 0; r < models[0]->replicas(); ++r) {
    NamedParameters own = parameters_of(models, r);
    if (own.names != first.names) {
      throw ValueError("Optimizer", cat("replica ", r,
                                        " shares other parameters between its "
                                        "modules than replica 0: make the same module for each"));
    }
    parameters.push_back(std::move(own.tensors));
    owners.push_back(models[0]->owner_of(models[0]->copy_of(r)));
  }
  for (const auto& model : models) model->hand_to({});  // removes the hooks of an earlier optimizer
  return std::make_shared<GradientReducer>(models[0]->strategy(), std::move(parameters),
                                           first.names, std::move(owners), options);
}

/// Compares all copies while every replica waits.
class DriftCheck : public collectives::Contribution {
 public:
  DriftCheck(const GradientReducer& reducer, const ReplicatedModule& model)
      : reducer_(reducer), model_(model) {}
  std::string describe() const override { return "optimizer.step: drift check"; }
  std::optional<std::string> mismatch(const Contribution&) const override { return std::nullopt; }
  std::int64_t plan(std::span<Contribution* const>) override {
    compare_workers();
    return model_.copies() - 1;
  }

  void work(std::int64_t piece) override {
    const int replica = model_.owner_of(static_cast<int>(piece) + 1);
    for (std::size_t p = 0; p < reducer_.names().size(); ++p) {
      if (same_bits(reducer_.parameters(0)[p], reducer_.parameters(replica)[p])) continue;
      throw_drifted(p, model_.strategy().layout().id_of(replica));
    }
  }

 private:
  /// By a hash of each parameter, of each worker's first replica.
  void compare_workers() const {
    World& world = model_.strategy().world();
    if (world.holds_root()) return;
    std::vector<std::uint64_t> mine;
    for (const at::Tensor& own : reducer_.parameters(0)) mine.push_back(hash_of_bits(own));
    const auto all = world.replicas_lane().all_gather(describe(), std::as_bytes(std::span(mine)));
    for (int w = 1; w < world.workers(); ++w) {
      if (all[w].size() != all[0].size()) throw_drifted(0, world.first_of(w));
      for (std::size_t p = 0; p < mine.size(); ++p) {
        const std::size_t at = p * sizeof(std::uint64_t);
        if (std::memcmp(&all[w][at], &all[0][at], sizeof(std::uint64_t)) == 0) continue;
        throw_drifted(p, world.first_of(w));
      }
    }
  }

  [[noreturn]] void throw_drifted(std::size_t parameter, int replica) const {
    throw RuntimeError("optimizer.step",
                       cat("the copies of the parameters have drifted apart: ",
                           reducer_.names()[parameter], " on replica ", replica,
                           " differs from replica 0; change parameters only through the "
                           "optimizer or load_state_dict()"));
  }

  const GradientReducer& reducer_;
  const ReplicatedModule& model_;
};

}  // namespace

OptimizerCore::OptimizerCore(std::vector<std::shared_ptr<ReplicatedModule>> models,
                             const Make& make, const OptimizerOptions& options)
    : models_(checked(std::move(models))),
      options_(options),
      reducer_(make_reducer(models_, options)),
      once_(*models_[0], "optimizer.step"),
      once_lr_(*models_[0], "optimizer.set_lr") {
  for (int c = 0; c < models_[0]->copies(); ++c) {
    copies_.push_back(make(reducer_->parameters(models_[0]->owner_of(c)), reducer_->names()));
  }
  for (const auto& model : models_) model->hand_to(reducer_);
  reducer_->enlist();
}

/// Null outside of everything.
ReplicaContext* OptimizerCore::calling_replica(const char* where) const {
  ReplicaContext* replica = replica_context_or_null();
  if (!replica) {
    throw RuntimeError(where,
                       "cannot be called in cross-replica context: call it inside the "
                       "function given to strategy.run()");
  }
  if (&replica->extended() == &strategy()) return replica;
  if (!has_strategy()) return nullptr;
  throw RuntimeError(
      where, cat("Mixing different tf.distribute.Strategy objects: the model belongs to a ",
                 strategy().name(), ", the calling replica to another ", replica->extended().name(),
                 "; make the model and its optimizer after `auto scope = strategy.scope()` of the "
                 "strategy that uses them"));
}

ReplicaContext* OptimizerCore::stepping_replica() const {
  ReplicaContext* replica = calling_replica("optimizer.step");
  if (!reducer_->is_retired()) return replica;
  throw RuntimeError("optimizer.step",
                     "another optimizer was made for the same model since, or its parameters were "
                     "replaced: step that one, give one optimizer all models, or make another");
}

void OptimizerCore::step() {
  ReplicaContext* replica = stepping_replica();
  if (!replica) return step_everywhere();
  reducer_->leave_to_owner(*replica);
  reducer_->synchronize(*replica);
  once_.run(*replica, [this](int copy) { step_copy(copy); });
  check_drift(*replica);
}

void OptimizerCore::step_copy(int copy) {
  const int owner = models_[0]->owner_of(copy);
  begin_writing(copy);
  reducer_->begin_step(owner);
  clip_gradients(copy);
  copies_[copy]->step();
  reducer_->end_step(owner);
  end_writing(copy);
}

void OptimizerCore::begin_writing(int copy) {
  for (const auto& model : models_) model->model_copies().begin_writing(copy);
}

void OptimizerCore::end_writing(int copy) {
  for (const auto& model : models_) model->model_copies().end_writing(copy);
}

namespace {

std::vector<at::Tensor> copies_of_grads(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> grads;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& grad = parameter.grad();
    grads.push_back(grad.defined() ? grad.clone() : grad);
  }
  return grads;
}

void set_grads(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& grads) {
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const bool has_one = grads[p].defined();
    parameters[p].mutable_grad() =
        has_one ? grads[p].to(parameters[p].device(), false, /*copy=*/true) : at::Tensor();
  }
}

}  // namespace

/// Outside of replicas there is one gradient, replica 0's: every copy gets it.
void OptimizerCore::step_everywhere() {
  std::vector<at::Tensor> grads;
  if (copies() > 1) grads = copies_of_grads(reducer_->parameters(0));
  for (int c = 0; c < copies(); ++c) {
    if (c > 0) set_grads(reducer_->parameters(models_[0]->owner_of(c)), grads);
    step_copy(c);
  }
  for (const auto& model : models_) model->model_copies().note_changed_parameters();
  reducer_->start_over();
}

/// The first copy's optimizer evaluates the closure; those of the other copies are shown the same
/// losses and gradients, in the same order.
at::Tensor OptimizerCore::step_everywhere(const Closure& closure) {
  struct Evaluation {
    at::Tensor loss;
    std::vector<at::Tensor> grads;
  };
  std::vector<Evaluation> evaluations;
  for (int c = 0; c < copies(); ++c) begin_writing(c);
  std::vector<std::unique_ptr<ModelCopies::Apart>> apart;
  for (const auto& model : models_) {
    apart.push_back(std::make_unique<ModelCopies::Apart>(model->model_copies()));
  }
  at::Tensor first = copies_[0]->step([&] {
    at::Tensor loss = closure().detach();
    reducer_->start_over();
    clip_gradients(0);
    if (copies() > 1) evaluations.push_back({loss, copies_of_grads(reducer_->parameters(0))});
    return loss;
  });
  for (int c = 1; c < copies(); ++c) {
    auto next = evaluations.begin();
    copies_[c]->step([&] {
      set_grads(reducer_->parameters(models_[0]->owner_of(c)), next->grads);
      return (next++)->loss;
    });
  }
  for (int c = 0; c < copies(); ++c) end_writing(c);
  for (const auto& model : models_) model->model_copies().note_changed_parameters();
  return first;
}

namespace {

/// An all_reduce that says which call it is part of.
class ReduceInStep : public collectives::AllReduce {
 public:
  using AllReduce::AllReduce;
  std::string describe() const override {
    return cat("optimizer.step(closure): ", AllReduce::describe());
  }
};

at::Tensor reduce_in_step(ReplicaContext& replica, ReduceOp op, const at::Tensor& value) {
  const auto& accumulation = replica.extended().cross_device_ops().accumulation();
  ReduceInStep sum(replica.extended().world(), op, {value}, accumulation);
  detail::attend_meeting(replica, sum);
  return sum.take()[0];
}

}  // namespace

at::Tensor OptimizerCore::evaluate(ReplicaContext& replica, const Closure& closure) {
  const c10::AutoGradMode grad(true);
  const at::Tensor loss = closure().detach();
  reducer_->synchronize(replica);
  const int copy = models_[0]->copy_of(replica.local_id());
  if (models_[0]->owner_of(copy) == replica.local_id()) clip_gradients(copy);
  return reduce_in_step(replica, options_.reduce, loss);
}

/// The first replica of each copy drives its optimizer, which evaluates the closure as often as it
/// likes: as often on every copy, since all see the same numbers. Before each evaluation, and after
/// the last, it tells the copy's other replicas whether there is one more.
at::Tensor OptimizerCore::step(const Closure& closure) {
  ReplicaContext* replica = stepping_replica();
  if (!replica) return step_everywhere(closure);
  const auto one_more = [&](std::int64_t mine) {
    const at::Tensor flag = at::scalar_tensor(mine, at::kLong);
    return reduce_in_step(*replica, ReduceOp::SUM, flag).item<std::int64_t>() > 0;
  };
  const int copy = models_[0]->copy_of(replica->local_id());
  at::Tensor loss;
  if (models_[0]->owner_of(copy) == replica->local_id()) {
    begin_writing(copy);
    loss = copies_[copy]->step([&] {
      one_more(1);
      return evaluate(*replica, closure);
    });
    end_writing(copy);
    one_more(0);
  } else {
    while (one_more(0)) {
      const at::Tensor next = evaluate(*replica, closure);
      if (!loss.defined()) loss = next;
    }
  }
  check_drift(*replica);
  return loss;
}

void OptimizerCore::zero_grad(bool set_to_none) {
  const ReplicaContext* replica = replica_context_or_null();
  if (replica && &replica->extended() == &strategy()) {
    return reducer_->zero_grad(replica->local_id(), set_to_none);
  }
  for (int r = 0; r < models_[0]->replicas(); ++r) reducer_->zero_grad(r, set_to_none);
  reducer_->start_over();
}

void OptimizerCore::set_lr(double lr, std::optional<std::size_t> group) {
  for_each_copy(once_lr_, [&](int copy) {
    auto& groups = copies_[copy]->param_groups();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (!group || g == *group) groups[g].options().set_lr(lr);
    }
  });
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
  if (replica && &replica->extended() == &strategy()) return once.run_together(*replica, action);
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
  if (reducer_->count_step(replica.local_id()) % options_.check_drift_every != 0) return;
  DriftCheck check(*reducer_, *models_[0]);
  detail::attend_meeting(replica, check);
}

}  // namespace cohort
