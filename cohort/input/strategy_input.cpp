#include "cohort/input/strategy_input.h"

#include "cohort/base/error.h"
#include "cohort/distribute/context.h"

namespace cohort::detail {

/// Holds the strategy, whose world it is.
InputReplicas input_replicas(const StrategyExtended& strategy) {
  // Replicas would ask for lanes in any order.
  if (strategy.world().workers() > 1) refuse_in_replica("strategy.distribute_dataset");
  return InputReplicas(*strategy.layout().replica_devices(),
                       std::shared_ptr<World>(strategy.shared_from_this(), &strategy.world()));
}

bool takes_dataset_per_replica(const StrategyExtended& strategy) {
  return strategy.variable_kind() == StrategyExtended::VariableKind::MIRRORED &&
         !strategy.require_static_shapes();  // a TPUStrategy
}

}  // namespace cohort::detail
