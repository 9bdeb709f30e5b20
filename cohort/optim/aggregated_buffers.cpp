#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "cohort/collectives/tensor_reduction.h"
#include "cohort/optim/model_copies.h"
#include "cohort/optim/replicated_module.h"
#include "cohort/optim/same_bits.h"

namespace cohort {

at::Tensor ReplicatedModule::aggregated_buffer(const std::string& name) const {
  std::vector<at::Tensor> values;
  values.reserve(replicas_.size());
  for (const auto& replica : replicas_) values.push_back(replica->named_buffers()[name].detach());
  const bool averaged = values[0].is_floating_point() &&
                        !std::all_of(values.begin(), values.end(), [&](const at::Tensor& value) {
                          return same_bits(value, values[0]);
                        });
  return averaged ? collectives::reduce_tensors(ReduceOp::MEAN, values) : values[0].clone();
}

ReplicatedModule::AggregatedBuffers::AggregatedBuffers(const ReplicatedModule& model)
    : model_(model) {
  if (model.replicas() > 1) model.show_aggregated_buffers();
}

ReplicatedModule::AggregatedBuffers::~AggregatedBuffers() {
  if (model_.replicas() > 1) model_.hide_aggregated_buffers();
}

void ReplicatedModule::show_aggregated_buffers() const {
  const MutexLock lock(aggregated_mutex_);
  if (aggregated_users_ == 0) {
    model_copies_->settle_buffers();
    const at::NoGradGuard no_grad;
    for (auto& entry : replicas_[0]->named_buffers()) {
      at::Tensor& buffer = entry.value();
      const at::Tensor own = buffer.data();
      const at::Tensor aggregated = aggregated_buffer(entry.key());
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
  for (Aggregated& entry : aggregated_) {
    const at::Tensor value = entry.buffer.data();
    entry.buffer.set_data(entry.own);
    const bool is_same_kind =
        value.scalar_type() == entry.own.scalar_type() && value.sizes() == entry.own.sizes();
    if (is_same_kind && same_bits(value, entry.aggregated)) continue;
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
