#pragma once

#include <optional>

#include "cohort/distribute/strategy.h"

namespace cohort::compat {

/// The current strategy in cross-replica context; nothing in a replica and outside of everything.
/// Now `in_cross_replica_context()` and `get_strategy()`.
std::optional<Strategy> get_cross_replica_context();

/// `set_strategy`: throws RuntimeError inside a scope.
void experimental_set_strategy(const Strategy& strategy);
void experimental_set_strategy(std::nullopt_t);

}  // namespace cohort::compat
