#include "cohort/variables/reading.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/distribute/context.h"
#include "cohort/distribute/strategy.h"

namespace cohort {

VariableSyncOnReadContext::VariableSyncOnReadContext()
    : before_(std::exchange(detail::thread_context().sync_on_read, true)) {}

VariableSyncOnReadContext::~VariableSyncOnReadContext() {
  detail::thread_context().sync_on_read = before_;
}

namespace detail {
namespace {

[[noreturn]] void throw_not_aggregated(const VariableState& variable) {
  throw ValueError(
      "variable.value",
      cat("Could not convert from aggregation NONE to a reduction: reading ", variable.describe(),
          " outside of replicas needs aggregation SUM, MEAN or ONLY_FIRST_REPLICA; "
          "or take its components()"));
}

/// In a replica that wants the aggregate: a collective, so that all replicas must be here.
at::Tensor aggregate_in_replica(const VariableState& variable, const Access& access) {
  const at::Tensor& own = variable.components[access.component];
  ReplicaContext& replica = *access.replica;
  switch (variable.options.aggregation) {
    case Aggregation::NONE:
      throw_not_aggregated(variable);
    case Aggregation::ONLY_FIRST_REPLICA:
      return replica.merge_call(
          [](Strategy& strategy, const PerReplica<at::Tensor>& values) {
            return strategy.extended().of_first_replica(strategy.local_results(values)[0],
                                                        "variable.value");
          },
          own);
    case Aggregation::SUM:
      return replica.all_reduce(ReduceOp::SUM, own);
    case Aggregation::MEAN:
      return replica.all_reduce(ReduceOp::MEAN, own);
  }
  return {};
}

/// The component on the device that a DeviceScope asks for; the first if there is none.
int preferred_component(const VariableState& variable, Reader reader) {
  const ThreadContext& context = thread_context();
  const bool heeded = reader == Reader::READ_VALUE || has_strategy();
  if (context.devices.empty() || !heeded) return 0;
  const auto& copies = variable.placement.copies;
  Device wanted = context.devices.back();
  if (wanted.is_local()) wanted = wanted.on_task(copies[0].job(), copies[0].task());  // this one's
  const auto found = std::find(copies.begin(), copies.end(), wanted);
  return found == copies.end() ? 0 : variable.placement.first_of[found - copies.begin()];
}

const char* where_of(Reader reader) {
  return reader == Reader::READ_VALUE ? "variable.read_value" : "variable.value";
}

}  // namespace

at::Tensor aggregate(const VariableState& variable) {
  const Aggregation aggregation = variable.options.aggregation;
  if (aggregation == Aggregation::NONE) throw_not_aggregated(variable);
  if (aggregation == Aggregation::ONLY_FIRST_REPLICA) {
    return variable.owner->of_first_replica(variable.components[0],
                                            cat("variable.value of ", variable.describe()));
  }
  const ReduceOp op = aggregation == Aggregation::SUM ? ReduceOp::SUM : ReduceOp::MEAN;
  const at::NoGradGuard no_grad;
  return variable.owner->reduce_leaf(
      op, {Reducible::PER_REPLICA, variable.components, variable.placement.devices}, Axis());
}

at::Tensor read(const VariableState& variable, Reader reader) {
  const Access access = read_access(variable, where_of(reader));
  if (!variable.on_read()) {
    const bool cross = access.where == Access::CROSS_REPLICA;
    return variable.components[cross ? preferred_component(variable, reader) : access.component];
  }
  if (thread_context().sync_on_read && reader != Reader::CONVERSION) {
    throw NotImplementedError(where_of(reader),
                              cat("call `variable.value()` inside variable_sync_on_read_context is "
                                  "not supported for ",
                                  variable.describe(), ": use the variable itself as a tensor"));
  }
  switch (access.where) {
    case Access::CROSS_REPLICA:
      return aggregate(variable);
    case Access::UPDATE:
      return variable.components[access.component];
    case Access::REPLICA:
      return thread_context().sync_on_read ? aggregate_in_replica(variable, access)
                                           : variable.components[access.component];
  }
  return {};
}

}  // namespace detail
}  // namespace cohort
