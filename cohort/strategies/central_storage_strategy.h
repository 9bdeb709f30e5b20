#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "cohort/distribute/strategy.h"

namespace cohort {

/// A replica on each compute device, with all variables in one place.
///
/// Saves memory where copies on every device would be too much, at the price of moving values on
/// each use. What replicas assign is aggregated first, then stored once.
class CentralStorageStrategy : public Strategy {
 public:
  struct Options {
    /// Empty takes the local GPUs, or without one all logical CPU devices. A device may be named
    /// twice, for two replicas on it.
    std::vector<Device> compute_devices = {};

    /// Where the variables are. None takes the compute device if there is only one, else cpu:0.
    std::optional<Device> parameter_device = {};

    /// A replica that waits longer for others, in whatever call, fails with DeadlineExceeded, which
    /// names those that have not come. None waits for ever: a thread can't be ended, so that `run`
    /// returns only when the late replica does. See CommunicationOptions.
    std::optional<std::chrono::duration<double>> timeout = {};

    /// After this long, a warning names whom the others wait for. See CommunicationOptions.
    std::chrono::duration<double> warn_after = CommunicationOptions::kWarnAfter;
  };

  /// Throws ValueError for a device that does not exist.
  explicit CentralStorageStrategy(Options options);
  CentralStorageStrategy();
};

}  // namespace cohort
