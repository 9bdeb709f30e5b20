#include "cohort/optim/model_update.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/random.h"
#include "cohort/distribute/differentiable_collectives.h"
#include "cohort/distribute/replica_random.h"
#include "cohort/optim/gradient_reducer.h"
#include "cohort/optim/model_copies.h"

namespace cohort {

/// All replicas have come to the same update.
class ModelUpdate::Meeting : public collectives::Contribution {
 public:
  explicit Meeting(ModelUpdate& update) : update_(update) {}
  bool is_summed() const { return is_summed_; }

  std::string describe() const override { return "model.update"; }
  std::optional<std::string> mismatch(const Contribution& contribution) const override {
    const auto& other = static_cast<const Meeting&>(contribution);
    if (&update_ == &other.update_) return std::nullopt;
    return "the replicas must update the same model";
  }
  std::int64_t plan(std::span<Contribution* const> all) override {
    const bool is_summed = update_.decide_on_summing();
    for (Contribution* each : all) static_cast<Meeting*>(each)->is_summed_ = is_summed;
    return 0;
  }
  void work(std::int64_t) override {}

 private:
  ModelUpdate& update_;
  bool is_summed_ = false;
};

struct ModelUpdate::Call {
  ReplicatedModule::Change fn;
  const ReplicatedModule* other;
  bool is_summed;
  std::uint64_t serial, run;
};

namespace {

/// The other model's parameter of the same name; mostly it is in the same place.
const at::Tensor& parameter_of(const ModuleWatch& other, const ModuleWatch& own, int parameter) {
  const std::string& name = own.name(parameter);
  int found = parameter;
  if (found >= other.parameters() || other.name(found) != name) {
    found = 0;
    while (found < other.parameters() && other.name(found) != name) ++found;
  }
  if (found < other.parameters() && other.parameter(found).defined()) return other.parameter(found);
  throw ValueError("model.update", cat("the other model has no parameter \"", name, '"'));
}

bool has_gradient(const ModuleWatch& replica) {
  for (int p = 0; p < replica.parameters(); ++p) {
    const at::Tensor& parameter = replica.parameter(p);
    if (parameter.defined() && parameter.grad().defined()) return true;
  }
  return false;
}

std::shared_ptr<GradientReducer> make_reducer(const ReplicatedModule& model) {
  TensorTable parameters(model.replicas());
  std::vector<std::string> names;
  std::vector<int> owners;
  const ModuleWatch& first = model.model_copies().copy(0);
  for (int p = 0; p < first.parameters(); ++p) {
    if (first.is_repeated(p) || !first.parameter(p).defined()) continue;
    names.push_back(first.name(p));
    for (int r = 0; r < model.replicas(); ++r) {
      parameters[r].push_back(model.model_copies().replica(r).parameter(p));
    }
  }
  for (int r = 0; r < model.replicas(); ++r) owners.push_back(model.owner_of(model.copy_of(r)));
  return std::make_shared<GradientReducer>(model.strategy(), std::move(parameters),
                                           std::move(names), std::move(owners), OptimizerOptions{});
}

}  // namespace

ModelUpdate::ModelUpdate(ReplicatedModule& model)
    : model_(model), once_(model, "model.update"), random_(model.copies()) {}

ModelUpdate::~ModelUpdate() = default;

void ModelUpdate::run(ReplicatedModule::Change fn, const ReplicatedModule* other) {
  if (other && &other->strategy() != &model_.strategy()) {
    throw ValueError(
        "model.update",
        cat("the other model belongs to another strategy, ", other->strategy().name(),
            ", than this one, ", model_.strategy().name(), ": make both in the same scope"));
  }
  ReplicaContext* const replica = model_.running_replica();
  if (!replica) return run_outside(fn, other);
  model_.model_copies().enter_run(*replica);
  if (other) other->model_copies().enter_run(*replica);
  Meeting meeting(*this);
  if (model_.strategy().num_replicas_in_sync() > 1) detail::attend_meeting(*replica, meeting);
  if (meeting.is_summed()) {
    reducer_->leave_to_owner(*replica);
    reducer_->synchronize(*replica);
  }
  const Call call{fn, other, meeting.is_summed(), replica->run_serial(), replica->run()};
  const auto change = [this, &call](int copy) { change_copy_in_run(copy, call); };
  once_.run(*replica, [&change](int copy) { change(copy); });
}

/// Called while all replicas wait. An optimizer that was made since sums the gradients itself.
bool ModelUpdate::decide_on_summing() {
  if (reducer_ && !reducer_->is_retired()) return true;
  reducer_ = nullptr;
  if (model_.has_reducer()) return false;
  bool any = false;
  for (int r = 0; r < model_.replicas(); ++r) {
    any = any || has_gradient(model_.model_copies().replica(r));
  }
  const WorldLane::Bytes mine{std::byte{any}};
  for (const auto& each :
       model_.strategy().world().replicas_lane().all_gather("model.update", mine)) {
    any = any || each[0] != std::byte{0};
  }
  if (!any) return false;
  reducer_ = make_reducer(model_);
  reducer_->enlist();
  model_.hand_to(reducer_);
  return true;
}

void ModelUpdate::change_copy_in_run(int copy, const Call& call) {
  const detail::OwnGenerator random(generator_for(copy, call));
  const int owner = model_.owner_of(copy);
  if (call.is_summed) reducer_->begin_step(owner);
  change_copy(copy, call.fn, call.other);
  if (call.is_summed) reducer_->end_step(owner);
}

/// A function of the seed, the run, and how many updates there were in it.
const at::Generator& ModelUpdate::generator_for(int copy, const Call& call) {
  Random& random = random_[copy];
  if (!random.generator.defined()) random.generator = at::detail::createCPUGenerator();
  if (std::exchange(random.serial, call.serial) != call.serial) random.updates = 0;
  random.generator.set_current_seed(
      mix(model_.strategy().world().seed(), call.run + 1, ~random.updates++));
  return random.generator;
}

/// One copy is changed; the others take its values.
void ModelUpdate::run_outside(ReplicatedModule::Change fn, const ReplicatedModule* other) {
  if (model_.is_in_foreign_run()) {
    throw RuntimeError("model.update",
                       "called inside the run of another strategy than the model's: call it in a "
                       "run of the model's own, or outside");
  }
  if (other) other->model_copies().settle();
  change_copy(0, fn, other);
  model_.model_copies().note_changed_parameters();
  model_.model_copies().hand_out_parameters();
  model_.model_copies().settle();
}

void ModelUpdate::change_copy(int copy, ReplicatedModule::Change fn,
                              const ReplicatedModule* other) {
  const detail::NoMeetings no_meetings("model.update");
  const at::NoGradGuard no_grad;
  ModelCopies& copies = model_.model_copies();
  copies.begin_writing(copy);
  const ModuleWatch& own = copies.copy(copy);
  for (int p = 0; p < own.parameters(); ++p) {
    if (own.is_repeated(p) || !own.parameter(p).defined()) continue;
    at::Tensor parameter = own.parameter(p);
    const at::Tensor none;
    fn(own.name(p), parameter,
       other ? parameter_of(other->model_copies().copy(copy), own, p) : none);
  }
  copies.end_writing(copy);
}

}  // namespace cohort
