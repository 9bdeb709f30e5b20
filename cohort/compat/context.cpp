#include "cohort/compat/context.h"

#include "cohort/compat/deprecated.h"
#include "cohort/distribute/context.h"

namespace cohort::compat {

std::optional<Strategy> get_cross_replica_context() {
  warn_deprecated("get_cross_replica_context", "use in_cross_replica_context() and get_strategy()");
  if (!in_cross_replica_context()) return std::nullopt;
  return get_strategy();
}

void experimental_set_strategy(const Strategy& strategy) {
  warn_deprecated("experimental_set_strategy", "use set_strategy()");
  set_strategy(strategy);
}

void experimental_set_strategy(std::nullopt_t) {
  warn_deprecated("experimental_set_strategy", "use set_strategy()");
  set_strategy(std::nullopt);
}

}  // namespace cohort::compat
