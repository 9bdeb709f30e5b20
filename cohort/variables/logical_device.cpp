#include "cohort/variables/logical_device.h"

#include "cohort/base/error.h"
#include "cohort/distribute/replica_context.h"
#include "cohort/distribute/strategy.h"
#include "cohort/spmd/placement.h"
#include "cohort/variables/variable_state.h"

namespace cohort {
namespace {

thread_local const LogicalDeviceScope* innermost = nullptr;

std::string range_of(int devices) {
  return cat("a replica has ", devices, devices == 1 ? " logical device" : " logical devices",
             ": expected 0 to ", devices - 1);
}

}  // namespace

LogicalDeviceScope::LogicalDeviceScope(const StrategyExtended& strategy, int logical_device)
    : strategy_(strategy),
      logical_device_(logical_device),
      outer_(std::exchange(innermost, this)) {}

LogicalDeviceScope::~LogicalDeviceScope() { innermost = outer_; }

std::optional<int> LogicalDeviceScope::device_of(const StrategyExtended& strategy) {
  for (const LogicalDeviceScope* scope = innermost; scope; scope = scope->outer_) {
    if (&scope->strategy_ == &strategy) return scope->logical_device_;
  }
  return std::nullopt;
}

LogicalDeviceScope StrategyExtended::logical_device(int logical_device_id) const {
  const int devices = logical_devices_per_replica();
  if (logical_device_id < 0 || logical_device_id >= devices) {
    throw ValueError("extended.logical_device",
                     cat(range_of(devices), ", got ", logical_device_id));
  }
  return {*this, logical_device_id};
}

namespace detail {

void place_on_logical_device(VariableOptions& options, const StrategyExtended& strategy) {
  const int devices = strategy.logical_devices_per_replica();
  const bool is_placed = options.logical_device || !options.logical_split.empty();
  // Partitioned programs have no tensors on one device: there the scope says nothing.
  if (!is_placed && !strategy.use_spmd_partitioning()) {
    options.logical_device = LogicalDeviceScope::device_of(strategy);
  }
  if (!options.logical_device) return;
  const auto refuse = [&](const std::string& why) {
    throw ValueError("Variable", cat("'", options.name, "' can't be placed on logical device ",
                                     *options.logical_device, ": ", why));
  };
  if (!options.logical_split.empty()) {
    refuse("it is split too; set .logical_device or .logical_split");
  }
  if (strategy.use_spmd_partitioning()) {
    refuse("the strategy partitions all tensors itself; set .logical_split");
  }
  if (*options.logical_device < 0 || *options.logical_device >= devices) refuse(range_of(devices));
}

void check_logical_split(const VariableOptions& options, at::IntArrayRef sizes,
                         const StrategyExtended& strategy) {
  if (options.logical_split.empty()) return;
  spmd::check_split("Variable", cat("'", options.name, "' of sizes ", sizes), sizes,
                    options.logical_split, strategy.logical_devices_per_replica());
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
