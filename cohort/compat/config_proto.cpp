#include "cohort/compat/config_proto.h"

#include "cohort/compat/deprecated.h"

namespace cohort::compat {

ConfigProto update_config_proto(const Strategy& strategy, const ConfigProto& config) {
  warn_deprecated("update_config_proto", "leave it out, there are no sessions");
  ConfigProto updated = config;
  const bool distributes =
      strategy.extended().variable_kind() != StrategyExtended::VariableKind::PLAIN;
  updated.isolate_session_state |= distributes;
  return updated;
}

}  // namespace cohort::compat
