#include "cohort/distribute/strategy.h"

namespace cohort {

Strategy::Strategy(const std::shared_ptr<StrategyExtended>& extended)
    : extended_(extended->handle()) {}

}  // namespace cohort
