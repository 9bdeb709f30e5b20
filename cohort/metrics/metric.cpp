#include "cohort/metrics/metric.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <optional>

#include "cohort/base/error.h"
#include "cohort/collectives/tensor_reduction.h"
#include "cohort/distribute/strategy.h"
#include "cohort/optim/sample_weight.h"
#include "cohort/variables/variable_state.h"

namespace cohort::metrics {
namespace {

at::Tensor in_double(const at::Tensor& values) { return values.detach().to(at::kDouble); }

/// Values times weights and the weights themselves, both summed.
std::vector<at::Tensor> weighted(const Metric& metric, const at::Tensor& values,
                                 const at::Tensor& sample_weight) {
  const at::Tensor amounts = in_double(values);
  if (!sample_weight.defined()) {
    return {amounts.sum(), at::scalar_tensor(static_cast<double>(amounts.numel()), at::kDouble)};
  }
  const at::Tensor weights =
      in_shape_of(amounts, in_double(sample_weight), cat("metric ", metric.name(), ".update"));
  return {(amounts * weights).sum(), weights.sum()};
}

at::Tensor ratio(const std::vector<at::Tensor>& states) {
  return at::where(states[1].eq(0), at::zeros_like(states[0]), states[0] / states[1]);
}

}  // namespace

Metric::Metric(std::string name, int states) : name_(std::move(name)) {
  for (int i = 0; i < states; ++i) {
    states_.emplace_back(0.0, VariableOptions{.name = cat(name_, "/state_", i),
                                              .synchronization = Synchronization::ON_READ,
                                              .aggregation = Aggregation::SUM});
  }
}

void Metric::add(const std::vector<at::Tensor>& amounts) {
  if (in_cross_replica_context()) {
    throw ValueError(cat("metric ", name_, ".update"),
                     "called in cross-replica context: call it inside the function given to "
                     "strategy.run()");
  }
  const ReplicaContext* replica = replica_context_or_null();
  const StrategyExtended* owner = states_[0].owner();
  if (replica && replica->extended().metrics_must_be_own() && owner != &replica->extended()) {
    throw ValueError(cat("metric ", name_, ".update"),
                     cat("made outside of the scope of the ", replica->extended().name(),
                         " that runs this: make the metric after strategy.scope()"));
  }
  std::optional<MutexLock> lock;
  if (!owner) lock.emplace(*mutex_);
  for (std::size_t i = 0; i < amounts.size(); ++i) {
    states_[i].assign_add(amounts[i], {.read_value = false});
  }
}

at::Tensor Metric::result() const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> states;
  states.reserve(states_.size());
  for (const Variable& state : states_) states.push_back(state.value());
  ReplicaContext* replica = replica_context_or_null();
  const bool is_local = states_[0].state()->on_read();
  if (replica && has_strategy() && is_local) states = replica->all_reduce(ReduceOp::SUM, states);
  return compute(states).to(at::kFloat);
}

void Metric::reset() {
  for (Variable& state : states_) state.assign(0.0, {.read_value = false});
}

void Sum::update(const at::Tensor& values, const at::Tensor& sample_weight) {
  add({weighted(*this, values, sample_weight)[0]});
}

void Mean::update(const at::Tensor& values, const at::Tensor& sample_weight) {
  add(weighted(*this, values, sample_weight));
}

at::Tensor Mean::compute(const std::vector<at::Tensor>& states) const { return ratio(states); }

void SparseCategoricalAccuracy::update(const at::Tensor& labels, const at::Tensor& predictions,
                                       const at::Tensor& sample_weight) {
  if (predictions.dim() != labels.dim() + 1 ||
      predictions.sizes().slice(0, labels.dim()) != labels.sizes()) {
    throw InvalidArgument(
        cat("metric ", name(), ".update"),
        cat("the shapes do not fit: expected labels [batch…] and predictions "
            "[batch…, classes], got ",
            collectives::describe(labels), " and ", collectives::describe(predictions)));
  }
  add(weighted(*this, predictions.argmax(-1).eq(labels), sample_weight));
}

at::Tensor SparseCategoricalAccuracy::compute(const std::vector<at::Tensor>& states) const {
  return ratio(states);
}

}  // namespace cohort::metrics
