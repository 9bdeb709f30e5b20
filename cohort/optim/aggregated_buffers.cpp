#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "cohort/collectives/tensor_reduction.h"
#include "cohort/collectives/world_tensors.h"
#include "cohort/optim/model_copies.h"
#include "cohort/optim/replicated_module.h"
#include "cohort/optim/same_bits.h"

namespace cohort {

namespace {

bool all_have_same_bits(const std::vector<at::Tensor>& values) {
  return std::all_of(values.begin(), values.end(),
                     [&](const at::Tensor& value) { return same_bits(value, values[0]); });
}

/// What a worker says of a buffer, so that all know whether it is the same on all replicas.
std::uint64_t summary_of(const std::vector<at::Tensor>& values) {
  constexpr std::uint64_t kDiffers = 0;
  return all_have_same_bits(values) ? hash_of_bits(values[0]) : kDiffers;
}

}  // namespace

/// The buffers that differ between any two replicas of the job, of those of floating point.
std::vector<bool> ReplicatedModule::averaged_buffers(
    const char* where, const std::vector<std::vector<at::Tensor>>& buffers) const {
  WorldLane& lane = strategy_->world().replicas_lane();
  std::vector<bool> averaged;
  if (strategy_->world().holds_root()) {
    for (const auto& values : buffers) averaged.push_back(!all_have_same_bits(values));
  } else {
    std::vector<std::uint64_t> mine;
    for (const auto& values : buffers) mine.push_back(summary_of(values));
    const auto all =
        lane.all_gather(cat(where, ", which needs ", buffers.size(), " buffers of all replicas"),
                        std::as_bytes(std::span(mine)));
    for (std::size_t b = 0; b < mine.size(); ++b) {
      averaged.push_back(mine[b] == 0);
      for (const auto& other : all) {
        std::uint64_t theirs = 0;
        std::memcpy(&theirs, other.data() + b * sizeof theirs, sizeof theirs);
        if (theirs != mine[b]) averaged[b] = true;
      }
    }
  }
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (!buffers[b][0].is_floating_point()) averaged[b] = false;
  }
  return averaged;
}

std::vector<at::Tensor> ReplicatedModule::aggregated_buffers(const char* where) const {
  std::vector<std::vector<at::Tensor>> buffers;  // of each replica
  for (const auto& replica : replicas_) {
    const auto own = replica->buffers();
    buffers.resize(own.size());
    for (std::size_t b = 0; b < own.size(); ++b) buffers[b].push_back(own[b].detach());
  }
  if (buffers.empty()) return {};
  const World::Turn turn = strategy_->take_turn();
  WorldLane& lane = strategy_->world().replicas_lane();
  const auto averaged = averaged_buffers(where, buffers);
  std::vector<at::Tensor> aggregated;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const at::Tensor& first = buffers[b][0];
    aggregated.push_back(averaged[b] ? reduce_over_world(lane, where, ReduceOp::MEAN, buffers[b])
                                     : first.clone());
  }
  std::vector<at::Tensor> chiefs;  // counters, of which the first replica's count
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (!averaged[b]) chiefs.push_back(aggregated[b]);
  }
  broadcast_over_world(lane, where, chiefs);
  return aggregated;
}

ReplicatedModule::AggregatedBuffers::AggregatedBuffers(const ReplicatedModule& model,
                                                       const char* where)
    : model_(model) {
  if (model.strategy().num_replicas_in_sync() > 1) model.show_aggregated_buffers(where);
}

ReplicatedModule::AggregatedBuffers::~AggregatedBuffers() {
  if (model_.strategy().num_replicas_in_sync() > 1) model_.hide_aggregated_buffers();
}

void ReplicatedModule::show_aggregated_buffers(const char* where) const {
  const MutexLock lock(aggregated_mutex_);
  if (aggregated_users_ == 0 && model_copies_->replica(0).buffers() > 0) {
    model_copies_->settle_buffers();
    model_copies_->follow_chief(where);
    const at::NoGradGuard no_grad;
    const auto values = aggregated_buffers(where);
    std::size_t next = 0;
    for (auto& entry : replicas_[0]->named_buffers()) {
      at::Tensor& buffer = entry.value();
      const at::Tensor own = buffer.data();
      const at::Tensor& aggregated = values[next++];
      aggregated_.push_back({entry.key(), buffer, own, aggregated});
      buffer.set_data(aggregated.clone());
    }
  }
  ++aggregated_users_;
}

/// What was written meanwhile goes to all replicas; in another type or shape (`to`) as well.
void ReplicatedModule::hide_aggregated_buffers() const {
  const MutexLock lock(aggregated_mutex_);
  if (--aggregated_users_ > 0) return;
  const at::NoGradGuard no_grad;
  for (std::size_t b = 0; b < aggregated_.size(); ++b) {
    const Aggregated& entry = aggregated_[b];
    const at::Tensor value = entry.buffer.data();
    entry.buffer.set_data(entry.own);
    const bool is_same_kind =
        value.scalar_type() == entry.own.scalar_type() && value.sizes() == entry.own.sizes();
    if (is_same_kind && same_bits(value, entry.aggregated)) continue;
    model_copies_->note_changed_buffer(static_cast<int>(b));
    for (const auto& replica : replicas_) {
      at::Tensor own = replica->named_buffers()[entry.name];
      if (is_same_kind) {
        own.data().copy_(value);
      } else {
        own.set_data(value.clone());
      }
    }
  }
  aggregated_.clear();
  model_copies_->note_buffers();
}

}  // namespace cohort
