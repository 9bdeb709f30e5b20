#include "cohort/compat/strategy_extended.h"

#include "cohort/compat/deprecated.h"

namespace cohort::compat {

bool experimental_between_graph(const StrategyExtended& extended) {
  warn_deprecated("experimental_between_graph", "use extended.between_graph()");
  return extended.between_graph();
}

bool experimental_require_static_shapes(const StrategyExtended& extended) {
  warn_deprecated("experimental_require_static_shapes", "use extended.require_static_shapes()");
  return extended.require_static_shapes();
}

bool experimental_should_init(const StrategyExtended& extended) {
  warn_deprecated("experimental_should_init", "use extended.should_init()");
  return extended.should_init();
}

LogicalDeviceScope experimental_logical_device(const StrategyExtended& extended,
                                               int logical_device_id) {
  warn_deprecated("experimental_logical_device", "use extended.logical_device()");
  return extended.logical_device(logical_device_id);
}

}  // namespace cohort::compat
