#pragma once

#include "cohort/variables/variable.h"
#include "cohort/variables/variable_options.h"

namespace cohort {

/// See `StrategyExtended::logical_device`. Holds for variables of that strategy alone.
class LogicalDeviceScope {
 public:
  LogicalDeviceScope(const StrategyExtended& strategy, int logical_device);
  ~LogicalDeviceScope();
  LogicalDeviceScope(const LogicalDeviceScope&) = delete;
  LogicalDeviceScope& operator=(const LogicalDeviceScope&) = delete;

  /// The device that the innermost scope of a strategy names.
  static std::optional<int> device_of(const StrategyExtended& strategy);

 private:
  const StrategyExtended& strategy_;
  const int logical_device_;
  const LogicalDeviceScope* const outer_;
};

namespace detail {

/// Fills in what the scope around a new variable of the strategy says. Throws ValueError for both a
/// device and a split, for a device that there is not, and for one where the strategy partitions
/// everything.
void place_on_logical_device(VariableOptions& options, const StrategyExtended& strategy);

/// Throws ValueError if a new variable of these sizes can't be split as its options say.
void check_logical_split(const VariableOptions& options, at::IntArrayRef sizes,
                         const StrategyExtended& strategy);

/// The value as a replica of the variable's strategy sees it; as it is elsewhere.
at::Tensor on_logical_devices(const VariableState& variable, at::Tensor value);

}  // namespace detail
}  // namespace cohort
