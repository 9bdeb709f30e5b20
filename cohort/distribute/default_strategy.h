#pragma once

#include "cohort/distribute/strategy.h"

namespace cohort {

/// The strategy that is current where no other is: one replica, wherever LibTorch computes, with
/// LibTorch's own settings. A process has exactly one.
///
/// Library code can call `get_strategy().reduce(…)` without asking whether anything is distributed.
const Strategy& default_strategy();

}  // namespace cohort
