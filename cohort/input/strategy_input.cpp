#include "cohort/input/strategy_input.h"

#include "cohort/base/error.h"

namespace cohort::detail {

InputReplicas input_replicas(const StrategyExtended& strategy) {
  InputReplicas replicas{*strategy.layout().replica_devices(), strategy.input_workers()};
  if (!replicas.workers) replicas.workers = only_worker();
  if (replicas.global() != strategy.num_replicas_in_sync()) {
    throw ValueError("distribute_dataset",
                     cat("input needs every worker to have the same number of replicas: expected ",
                         replicas.global(), " on ", replicas.workers->count(), " workers, got ",
                         strategy.num_replicas_in_sync()));
  }
  return replicas;
}

bool takes_dataset_per_replica(const StrategyExtended& strategy) {
  return strategy.variable_kind() == StrategyExtended::VariableKind::MIRRORED &&
         !strategy.require_static_shapes();  // a TPUStrategy
}

}  // namespace cohort::detail
