#pragma once

#include "cohort/distribute/strategy_extended.h"

namespace cohort::compat {

/// `StrategyExtended::between_graph`. Throws NotImplementedError for the default strategy.
bool experimental_between_graph(const StrategyExtended& extended);

/// `StrategyExtended::require_static_shapes`.
bool experimental_require_static_shapes(const StrategyExtended& extended);

/// `StrategyExtended::should_init`. Throws NotImplementedError for the default strategy.
bool experimental_should_init(const StrategyExtended& extended);

}  // namespace cohort::compat
