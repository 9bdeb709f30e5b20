#pragma once

#include "cohort/distribute/strategy_extended.h"
#include "cohort/variables/logical_device.h"

namespace cohort::compat {

/// `StrategyExtended::between_graph`. Throws NotImplementedError for the default strategy.
bool experimental_between_graph(const StrategyExtended& extended);

/// `StrategyExtended::require_static_shapes`.
bool experimental_require_static_shapes(const StrategyExtended& extended);

/// `StrategyExtended::should_init`. Throws NotImplementedError for the default strategy.
bool experimental_should_init(const StrategyExtended& extended);

/// `StrategyExtended::logical_device`. Throws ValueError for one that there is not.
[[nodiscard]] LogicalDeviceScope experimental_logical_device(const StrategyExtended& extended,
                                                             int logical_device_id);

}  // namespace cohort::compat
