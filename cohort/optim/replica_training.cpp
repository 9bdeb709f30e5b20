#include "cohort/optim/replica_training.h"

#include <algorithm>
#include <memory>

#include "cohort/optim/gradient_reducer.h"
#include "cohort/optim/model_copies.h"
#include "cohort/optim/replicated_module.h"

namespace cohort {

ReplicaTraining& ReplicaTraining::of(ReplicaContext& replica) {
  if (!replica.attachment()) replica.attach(std::make_unique<ReplicaTraining>(replica));
  return static_cast<ReplicaTraining&>(*replica.attachment());
}

bool ReplicaTraining::uses(const ReplicatedModule& model) const {
  return std::any_of(used_.begin(), used_.end(),
                     [&](const Used& used) { return used.model == &model; });
}

void ReplicaTraining::use(const ReplicatedModule& model) {
  used_.push_back({&model, model.weak_from_this()});
}

void ReplicaTraining::use_foreign(const ReplicatedModule& model) {
  const bool is_known = std::any_of(foreign_.begin(), foreign_.end(),
                                    [&](const auto& use) { return use->is_of(model); });
  if (!is_known) foreign_.push_back(model.foreign_use(replica_));
}

void ReplicaTraining::note_reducer(GradientReducer& reducer) {
  const bool is_known = std::any_of(reducers_.begin(), reducers_.end(), [&](const auto& noted) {
    return !noted.owner_before(reducer.weak_from_this()) &&
           !reducer.weak_from_this().owner_before(noted);
  });
  if (!is_known) reducers_.push_back(reducer.weak_from_this());
}

/// Reducers that are still there are from a run that has thrown.
void ReplicaTraining::begin_run() {
  pass_.start_over();
  for (const auto& noted : reducers_) {
    if (const auto reducer = noted.lock()) reducer->enter_run(replica_);
  }
  reducers_.clear();
}

void ReplicaTraining::end_run() {
  for (const auto& use : foreign_) use->require_unwritten();
  foreign_.clear();
  for (; !used_.empty(); used_.pop_back()) {
    if (const auto model = used_.back().alive.lock()) {
      model->model_copies().leave_run(replica_.local_id());
    }
  }
  std::erase_if(reducers_, [this](const auto& noted) {
    const auto reducer = noted.lock();
    return !reducer || !reducer->is_abandoned(replica_.local_id());
  });
}

void ReplicaTraining::fail_run() noexcept {
  foreign_.clear();
  for (; !used_.empty(); used_.pop_back()) {
    if (const auto model = used_.back().alive.lock()) {
      model->model_copies().leave_failed_run(replica_.local_id());
    }
  }
}

/// What replicas have written to buffers until now is their own; what a merge_call's function
/// writes reaches all, and nobody else is writing then.
void ReplicaTraining::pause_run() {
  for (const Used& used : used_) {
    if (const auto model = used.alive.lock()) model->model_copies().note_buffers();
  }
  for (const auto& use : foreign_) use->pause();
}

void ReplicaTraining::resume_run() {
  for (const Used& used : used_) {
    if (const auto model = used.alive.lock()) model->model_copies().settle_buffers();
  }
  for (const auto& use : foreign_) use->resume();
}

}  // namespace cohort
