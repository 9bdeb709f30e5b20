#pragma once

#include <chrono>
#include <optional>

#include "cohort/distribute/strategy.h"

namespace cohort {

/// Everything on one device: the loop of a distributed program without distribution, to compare
/// with and to debug. Runs in the caller's thread and leaves LibTorch's settings alone.
class OneDeviceStrategy : public Strategy {
 public:
  struct Options {
    /// How many logical devices the one replica is spread over (`split_to_logical_devices`).
    int logical_devices_per_replica = 1;

    /// As for other strategies. One replica never waits for others, so that they change nothing.
    std::optional<std::chrono::duration<double>> timeout = {};
    std::chrono::duration<double> warn_after = CommunicationOptions::kWarnAfter;
  };

  /// Throws ValueError for a device that does not exist, or no logical devices.
  explicit OneDeviceStrategy(const Device& device, Options options);
  explicit OneDeviceStrategy(const Device& device) : OneDeviceStrategy(device, Options{}) {}
};

}  // namespace cohort
