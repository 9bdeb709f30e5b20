#pragma once

#include <chrono>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/distribute/strategy.h"

namespace cohort {

/// Synchronous training on the devices of one machine: a replica on each, variables copied to all
/// and kept the same.
///
///     cohort::MirroredStrategy strategy;                        // every GPU; else every CPU slot
///     cohort::MirroredStrategy strategy({"cpu:0", "cpu:1"});
///     cohort::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}, .replicas = 8});
class MirroredStrategy : public Strategy {
 public:
  struct Options {
    /// Empty takes all GPUs, or without one all logical CPU devices; not more than `replicas`.
    std::vector<Device> devices = {};

    /// How many replicas share these devices; 0 means one on each. The result of a training
    /// depends on this number and not on the devices: fix it to get the same bits everywhere.
    int replicas = 0;

    /// How many logical devices each replica is spread over (`split_to_logical_devices`). They are
    /// dealt out to the devices; without `.replicas` there are as many replicas as have devices of
    /// their own.
    int logical_devices_per_replica = 1;

    /// How values are combined in cross-replica context; null chooses by the devices.
    CrossDeviceOpsOption cross_device_ops = {};

    /// Threads that LibTorch may use inside one operation of a replica on a CPU slot. More than
    /// one makes the replicas' threads fight for cores, and changes bits.
    int intra_op_threads = 1;

    /// A replica that waits longer for others, in whatever call, fails with DeadlineExceeded, which
    /// names those that have not come. None waits for ever: a thread can't be ended, so that `run`
    /// returns only when the late replica does. See CommunicationOptions.
    std::optional<std::chrono::duration<double>> timeout = {};

    /// After this long, a warning names whom the others wait for. See CommunicationOptions.
    std::chrono::duration<double> warn_after = CommunicationOptions::kWarnAfter;
  };

  /// Throws ValueError for a device that does not exist, that is named twice, or that belongs to
  /// another machine.
  explicit MirroredStrategy(Options options);
  MirroredStrategy();
  MirroredStrategy(std::initializer_list<Device> devices)
      : MirroredStrategy(std::vector<Device>(devices)) {}

  /// A template, so that no list in braces is taken for it.
  template <class List>
    requires std::same_as<List, std::vector<Device>> || std::convertible_to<List, Device>
  explicit MirroredStrategy(List devices) : MirroredStrategy(options_of(std::move(devices))) {}

 private:
  template <class List>
  static Options options_of(List devices) {
    static_assert(std::is_same_v<List, std::vector<Device>>,
                  "the devices are a list: MirroredStrategy({\"cpu:0\"})");
    return {.devices = std::move(devices)};
  }
};

}  // namespace cohort
