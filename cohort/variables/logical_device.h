#pragma once

#include "cohort/variables/variable.h"
#include "cohort/variables/variable_options.h"

namespace cohort {

/// See `StrategyExtended::logical_device`.
class LogicalDeviceScope {
 public:
  explicit LogicalDeviceScope(int logical_device);
  ~LogicalDeviceScope();
  LogicalDeviceScope(const LogicalDeviceScope&) = delete;
  LogicalDeviceScope& operator=(const LogicalDeviceScope&) = delete;

 private:
  const std::optional<int> before_;
};

namespace detail {

/// Fills in what the scope around a new variable says. Throws ValueError for both a device and a
/// split.
void place_on_logical_device(VariableOptions& options);

/// The value as a replica of the variable's strategy sees it; as it is elsewhere.
at::Tensor on_logical_devices(const VariableState& variable, at::Tensor value);

}  // namespace detail
}  // namespace cohort
