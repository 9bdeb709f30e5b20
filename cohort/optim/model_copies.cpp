#include "cohort/optim/model_copies.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/hash.h"
#include "cohort/collectives/world_tensors.h"
#include "cohort/optim/module_structure.h"
#include "cohort/optim/replica_training.h"
#include "cohort/optim/replicated_module.h"
#include "cohort/optim/same_bits.h"
#include "cohort/spmd/placement.h"
#include "cohort/spmd/sharded_tensor.h"

namespace cohort {
namespace {

bool fits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         spmd::is_sharded(a) == spmd::is_sharded(b);
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  if (!fits(a, b)) return false;
  if (!spmd::is_sharded(a)) return a.data_ptr() == b.data_ptr() && a.strides() == b.strides();
  const auto& ours = spmd::impl(a)->tiles();
  const auto& theirs = spmd::impl(b)->tiles();
  return std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(), same_memory);
}

/// Tensors that are made in here are ordinary ones, whatever mode the thread is in.
struct PlainMode {
  const c10::InferenceMode ordinary{false};
  const at::NoGradGuard no_grad;
};

}  // namespace

ModelCopies::ModelCopies(ReplicatedModule& model)
    : model_(model),
      is_watched_(!model.strategy().standing_context()),
      watches_(model.replicas_.size()),
      has_chief_(!model.strategy().world().holds_root()),
      epoch_(model.strategy().world().epoch()) {
  for (std::size_t r = 0; r < watches_.size(); ++r) watches_[r].look_at(*model.replicas_[r]);
}

const ModuleWatch& ModelCopies::copy(int copy) const { return watches_[model_.owner_of(copy)]; }

// Runs.

/// What can't be settled is an error of those who use the model.
void ModelCopies::prepare_run(std::uint64_t run_serial) {
  const MutexLock lock(mutex_);
  try {
    settle_locked();
  } catch (const ValueError&) {
    return;
  }
  follow_chief_locked("strategy.run");
  run_.store(run_serial, std::memory_order_release);
}

void ModelCopies::enter_run(ReplicaContext& replica) {
  if (!is_watched_) return;
  ReplicaTraining& training = ReplicaTraining::of(replica);
  if (training.uses(model_)) return;
  const std::uint64_t run = replica.run_serial();
  if (run_.load(std::memory_order_acquire) != run) {
    const MutexLock lock(mutex_);
    if (run_.load(std::memory_order_relaxed) != run) {
      settle_locked();
      run_.store(run, std::memory_order_release);
    }
  }
  training.use(model_);
}

void ModelCopies::leave_run(int replica) {
  ModuleWatch& watch = watches_[replica];
  const int written = watch.written_parameter();
  if (written >= 0) refuse_write(replica, written);
  if (replica > 0) return;
  const MutexLock lock(mutex_);  // another run may settle what it has found
  watch.note_buffers();
  watch.note_settings();
}

void ModelCopies::leave_failed_run(int replica) noexcept {
  if (replica == 0) note_buffers();
  modes_may_differ_.store(true, std::memory_order_relaxed);
  note_half_written();
}

void ModelCopies::refuse_write(int replica, int parameter) {
  note_half_written();
  throw RuntimeError(
      "Model", cat("parameter ", watches_[replica].name(parameter), " of replica ",
                   model_.strategy().layout().id_of(replica),
                   " was written to inside strategy.run(), but the replicas of a device share its "
                   "memory: change it by model.update(fn), which calls fn once for each copy, by "
                   "an optimizer, or outside of run"));
}

void ModelCopies::begin_writing(int copy) {
  if (!is_watched_) return;
  ReplicaContext* const replica = model_.running_replica();
  if (!replica) return settle();
  enter_run(*replica);
  const int owner = model_.owner_of(copy);
  const int written = watches_[owner].written_parameter();
  if (written >= 0) refuse_write(owner, written);
}

void ModelCopies::end_writing(int copy) {
  if (!is_watched_) return;
  ModuleWatch& watch = watches_[model_.owner_of(copy)];
  const int moved = watch.moved_parameter();
  watch.note_parameters();
  if (moved < 0) return;
  note_half_written();
  throw RuntimeError("Model", cat("parameter ", watch.name(moved),
                                  " got other memory (set_data) inside of an update: write into "
                                  "the memory that it has, by copy_ and the like"));
}

// Outside of replicas.

/// What is read on one worker only must not be taken for a change.
void ModelCopies::hand_out_parameters() {
  if (is_watched_ && has_chief_) {
    const MutexLock lock(mutex_);
    if (handed_out_hash_ == 0) handed_out_hash_ = hash_of_parameters();
  }
  may_differ_.store(true, std::memory_order_relaxed);
}

std::uint64_t ModelCopies::hash_of_parameters() const {
  Hash hash;
  for (int p = 0; p < watches_[0].parameters(); ++p) {
    const at::Tensor& own = watches_[0].parameter(p);
    if (own.defined()) hash.add_number(hash_of_bits(own));
  }
  return std::max<std::uint64_t>(hash.value(), 1);
}

void ModelCopies::note_chiefs() {
  const MutexLock lock(mutex_);
  for (ModuleWatch& watch : watches_) watch.note_parameters();
  watches_[0].note_buffers();
  parameters_changed_ = false;
  buffers_changed_.clear();
  handed_out_.clear();
  handed_out_hash_ = 0;
}

void ModelCopies::note_changed_parameters() {
  const MutexLock lock(mutex_);
  parameters_changed_ = has_chief_;
}

void ModelCopies::note_changed_buffer(int buffer) {
  const MutexLock lock(mutex_);
  if (has_chief_) buffers_changed_.insert(buffer);
}

void ModelCopies::follow_chief(std::string_view where) {
  if (!is_watched_) return;
  const World::Turn turn = model_.strategy().take_turn();
  const MutexLock lock(mutex_);
  follow_chief_locked(where);
}

void ModelCopies::follow_chief_locked(std::string_view where) {
  if (has_chief_ && epoch_ != model_.strategy().world().epoch()) agree_on_changes(where);
  if (!parameters_changed_ && buffers_changed_.empty()) return;
  const PlainMode plain;
  if (parameters_changed_) {
    model_.take_chiefs_parameters(where);
    for (ModuleWatch& watch : watches_) watch.note_parameters();
    parameters_changed_ = false;
  }
  if (buffers_changed_.empty()) return;
  std::vector<at::Tensor> values;
  for (const int b : buffers_changed_) values.push_back(watches_[0].buffer(b).data());
  broadcast_over_world(model_.strategy().world().replicas_lane(),
                       cat(where, ": the buffers of a model that were written to"), values);
  for (const int b : buffers_changed_) follow_buffer(b);
  buffers_changed_.clear();
  watches_[0].note_buffers();
}

/// What any worker has changed, or has other values of, all take from the chief.
void ModelCopies::agree_on_changes(std::string_view where) {
  World& world = model_.strategy().world();
  std::vector<std::uint64_t> mine{hash_of_parameters(), parameters_changed_};
  mine.insert(mine.end(), buffers_changed_.begin(), buffers_changed_.end());
  const auto all = world.replicas_lane().all_gather(
      cat(where, ": what was changed in a model by a run that failed"),
      std::as_bytes(std::span(mine)));
  for (const auto& bytes : all) {
    std::vector<std::uint64_t> theirs(bytes.size() / sizeof(std::uint64_t));
    std::memcpy(theirs.data(), bytes.data(), bytes.size());
    if (theirs[0] != mine[0] || theirs[1] != 0) parameters_changed_ = true;
    buffers_changed_.insert(theirs.begin() + 2, theirs.end());
  }
  epoch_ = world.epoch();
}

void ModelCopies::hand_out_buffers() {
  if (!is_watched_) return;
  settle_buffers();
  const PlainMode plain;
  const MutexLock lock(mutex_);
  handed_out_.clear();
  for (int b = 0; b < watches_[0].buffers(); ++b) {
    handed_out_.push_back(watches_[0].buffer(b).detach().clone());
  }
}

void ModelCopies::settle() {
  if (!is_watched_) return;
  const MutexLock lock(mutex_);
  settle_locked();
}

void ModelCopies::settle_buffers() {
  if (!is_watched_) return;
  const MutexLock lock(mutex_);
  settle_buffers_locked();
}

void ModelCopies::settle_counted() noexcept {
  if (!is_watched_) return;
  const ModuleWatch& watch = watches_[0];
  const bool is_changed =
      watch.written_parameter() >= 0 || watch.has_other_parameters() || watch.has_other_settings();
  try {
    model_.clear_gradients_as_first();
    if (is_changed) settle();
  } catch (const std::exception&) {  // thrown again by the next call that needs the copies
    may_differ_.store(true, std::memory_order_relaxed);
  }
}

void ModelCopies::note_buffers() {
  const MutexLock lock(mutex_);
  watches_[0].note_buffers();
}

/// Until everything is done, `may_differ_` stays set: what throws in between is done again.
void ModelCopies::settle_locked() {
  if (apart_ > 0) return;
  ModuleWatch& first = watches_[0];
  const bool compare = may_differ_.load(std::memory_order_relaxed);
  const bool is_rebuilt =
      compare ? first.has_other_modules(*model_.replicas_[0]) : first.has_other_parameters();
  const bool is_written = compare || is_rebuilt || first.written_parameter() >= 0;
  const bool is_set =
      modes_may_differ_.load(std::memory_order_relaxed) || first.has_other_settings();
  if (is_written || is_set) {
    const PlainMode plain;
    may_differ_.store(true, std::memory_order_relaxed);
    const bool was_written = is_rebuilt || first.written_parameter() >= 0;
    if (is_rebuilt) follow_structure();
    const auto handed_out = std::exchange(handed_out_hash_, 0);
    if (has_chief_ && (was_written || (handed_out != 0 && handed_out != hash_of_parameters()))) {
      parameters_changed_ = true;
    }
    bool is_other_kind = is_rebuilt;
    for (int r = 1; r < model_.replicas(); ++r) {
      for (int p = 0; p < first.parameters(); ++p) {
        if (follow_parameter(r, p, compare || first.is_written(p))) is_other_kind = true;
      }
      if (is_set || is_rebuilt) follow_modes(*model_.replicas_[0], *model_.replicas_[r]);
    }
    for (ModuleWatch& watch : watches_) {
      watch.note_parameters();
      watch.note_settings();
    }
    if (is_other_kind) model_.hand_to({});
    modes_may_differ_.store(false, std::memory_order_relaxed);
    may_differ_.store(false, std::memory_order_relaxed);
  }
  settle_buffers_locked();
}

/// Returns true if it was of another type or shape.
bool ModelCopies::follow_parameter(int replica, int parameter, bool compare) {
  const at::Tensor& from = watches_[0].parameter(parameter);
  const at::Tensor& own = watches_[replica].parameter(parameter);
  if (!from.defined() || watches_[0].is_repeated(parameter)) return false;
  const bool is_other_kind = !fits(own, from);
  const int owner = model_.owner_of(model_.copy_of(replica));
  const at::Tensor& source = watches_[owner].parameter(parameter);
  if (owner != replica) {
    if (!same_memory(own, source)) own.set_data(source.data());
  } else if (is_other_kind) {
    own.set_data(model_.shared_data(from, replica));
  } else if (compare && !same_bits(own, from)) {
    copy_values(own, from);
  }
  if (own.requires_grad() != from.requires_grad()) own.set_requires_grad(from.requires_grad());
  return is_other_kind;
}

/// Those that the module did not have before become the chief's.
void ModelCopies::note_other_buffers(const std::vector<at::Tensor>& before) {
  for (int b = 0; has_chief_ && b < watches_[0].buffers(); ++b) {
    const at::Tensor& own = watches_[0].buffer(b);
    const bool is_known = std::any_of(before.begin(), before.end(),
                                      [&](const at::Tensor& known) { return known.is_same(own); });
    if (!is_known) buffers_changed_.insert(b);
  }
}

void ModelCopies::follow_structure() {
  std::vector<at::Tensor> buffers;
  for (int b = 0; b < watches_[0].buffers(); ++b) buffers.push_back(watches_[0].buffer(b));
  for (int r = 1; r < model_.replicas(); ++r) {
    cohort::follow_structure(*model_.replicas_[0], watches_[0], *model_.replicas_[r]);
  }
  if (model_.strategy().logical_devices_per_replica() > 1) model_.lay_out_first();
  for (int r = 1; r < model_.replicas(); ++r) {
    check_same_structure(*model_.replicas_[0], *model_.replicas_[r]);
    model_.share_parameters(r, ReplicatedModule::Which::ALL);
  }
  if (model_.strategy().logical_devices_per_replica() > 1) {
    for (int r = 0; r < model_.replicas(); ++r) model_.place_gradients(r, watches_[r]);
  }
  for (int r = 0; r < model_.replicas(); ++r) watches_[r].look_at(*model_.replicas_[r]);
  note_other_buffers(buffers);
}

// Buffers.

bool ModelCopies::is_buffer_changed(int buffer) const {
  const ModuleWatch& first = watches_[0];
  if (first.is_buffer_written(buffer)) return true;
  return !handed_out_.empty() && !same_bits(handed_out_[buffer], first.buffer(buffer));
}

void ModelCopies::settle_buffers_locked() {
  ModuleWatch& first = watches_[0];
  const bool is_asked = !handed_out_.empty() || first.written_buffer() >= 0;
  if (!is_asked || model_.has_aggregated_buffers()) return;
  const PlainMode plain;
  for (int b = 0; b < first.buffers(); ++b) {
    if (!is_buffer_changed(b)) continue;
    follow_buffer(b);
    if (has_chief_) buffers_changed_.insert(b);
  }
  handed_out_.clear();
  first.note_buffers();
}

void ModelCopies::follow_buffer(int buffer) {
  const at::Tensor& from = watches_[0].buffer(buffer);
  for (int r = 1; r < model_.replicas(); ++r) {
    const at::Tensor& own = watches_[r].buffer(buffer);
    if (fits(own, from)) {
      own.data().copy_(from.data());
    } else {
      own.set_data(from.data().to(own.device(), from.scalar_type(), false, /*copy=*/true));
    }
  }
}

}  // namespace cohort
