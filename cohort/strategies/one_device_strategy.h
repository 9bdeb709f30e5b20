#pragma once

#include "cohort/distribute/strategy.h"

namespace cohort {

/// Everything on one device: the loop of a distributed program without distribution, to compare
/// with and to debug. Runs in the caller's thread and leaves LibTorch's settings alone.
class OneDeviceStrategy : public Strategy {
 public:
  /// Throws ValueError for a device that does not exist.
  explicit OneDeviceStrategy(const Device& device);
};

}  // namespace cohort
