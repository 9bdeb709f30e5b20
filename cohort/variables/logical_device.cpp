#include "cohort/variables/logical_device.h"

#include "cohort/base/error.h"
#include "cohort/distribute/replica_context.h"
#include "cohort/distribute/strategy.h"
#include "cohort/spmd/placement.h"
#include "cohort/variables/variable_state.h"

namespace cohort {
namespace {

thread_local std::optional<int> current;

}  // namespace

LogicalDeviceScope::LogicalDeviceScope(int logical_device)
    : before_(std::exchange(current, logical_device)) {}
LogicalDeviceScope::~LogicalDeviceScope() { current = before_; }

LogicalDeviceScope StrategyExtended::logical_device(int logical_device_id) const {
  const int devices = logical_devices_per_replica();
  if (logical_device_id < 0 || logical_device_id >= devices) {
    throw ValueError("extended.logical_device",
                     cat("a replica has ", devices, " logical devices: expected 0 to ", devices - 1,
                         ", got ", logical_device_id));
  }
  return LogicalDeviceScope(logical_device_id);
}

namespace detail {

void place_on_logical_device(VariableOptions& options) {
  if (current && !options.logical_device && options.logical_split.empty()) {
    options.logical_device = current;
  }
  if (options.logical_device && !options.logical_split.empty()) {
    throw ValueError("Variable", cat(options.name,
                                     " is placed on one logical device and split: "
                                     "set .logical_device or .logical_split"));
  }
}

at::Tensor on_logical_devices(const VariableState& variable, at::Tensor value) {
  const VariableOptions& options = variable.options;
  if (!options.logical_device && options.logical_split.empty()) return value;
  const ReplicaContext* replica = replica_context_or_null();
  if (!replica || &replica->extended() != variable.owner.get()) return value;
  const Strategy strategy = replica->strategy();
  if (options.logical_device) {
    if (replica->extended().logical_devices_per_replica() == 1) return value;
    return spmd::assign(value, spmd::mesh_of_replica("Variable"), *options.logical_device);
  }
  return strategy.split_to_logical_devices(value, options.logical_split);
}

}  // namespace detail
}  // namespace cohort
