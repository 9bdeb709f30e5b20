#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cohort/base/never.h"
#include "cohort/collectives/reduce_op.h"
#include "cohort/collectives/tensor_reduction.h"
#include "cohort/device/device.h"

namespace cohort {

/// How values are combined over the devices of one process, in cross-replica context.
///
/// The algorithms differ in which device adds and how bytes move, never in the order of addition
/// (a pairwise tree over the replica ids): all give the same bits. Only an accumulation of one's
/// own (ReductionToOneDevice) is outside of that promise. Thread-safe.
class CrossDeviceOps {
 public:
  using Accumulation = collectives::Accumulation;

  virtual ~CrossDeviceOps() = default;

  /// The class's own name.
  virtual const char* name() const = 0;

  /// The sum or mean of one tensor from each replica, on each of the destinations. Throws
  /// InvalidArgument when the tensors do not fit together.
  virtual std::vector<at::Tensor> reduce(ReduceOp op, std::span<const at::Tensor> values,
                                         std::span<const Device> destinations) const = 0;

  /// `reduce` for many values, each of which has one tensor from each replica; the results in the
  /// same order. Where bytes have to travel, faster than one at a time.
  virtual std::vector<std::vector<at::Tensor>> batch_reduce(
      ReduceOp op, std::span<const std::vector<at::Tensor>> values,
      std::span<const Device> destinations) const;

  /// A copy of the tensor on each of the destinations.
  std::vector<at::Tensor> broadcast(const at::Tensor& tensor,
                                    std::span<const Device> destinations) const;

  /// What takes the place of addition, also in the collectives of replicas; empty for addition.
  virtual const Accumulation& accumulation() const;
};

/// An algorithm as an option of a strategy: a pointer to one, or null for the strategy's own
/// choice.
///
///     MirroredStrategy strategy({.cross_device_ops = std::make_shared<ReductionToOneDevice>()});
class CrossDeviceOpsOption : public std::shared_ptr<CrossDeviceOps> {
 public:
  CrossDeviceOpsOption() = default;
  template <class T>
  CrossDeviceOpsOption(T algorithm)  // NOLINT(google-explicit-constructor)
      : std::shared_ptr<CrossDeviceOps>(checked(std::move(algorithm))) {}

 private:
  template <class T>
  static std::shared_ptr<CrossDeviceOps> checked(T algorithm) {
    if constexpr (std::convertible_to<T, std::shared_ptr<CrossDeviceOps>>) {
      return algorithm;
    } else {
      static_assert(kNever<T>,
                    ".cross_device_ops is an algorithm, not its name: "
                    "std::make_shared<cohort::ReductionToOneDevice>(), or of "
                    "HierarchicalCopyAllReduce, NcclAllReduce or a CrossDeviceOps of your own");
    }
  }
};

/// Adds on one device and copies the result to the others. The choice for mixed devices, for
/// sparse tensors and int32, and for adding up in a way of one's own:
///
///     ReductionToOneDevice largest({.accumulation_fn = [](auto values) { … }});
///
/// The accumulation gets one tensor from each replica, in their order; MEAN divides its result by
/// their number. The first ten reductions are logged.
class ReductionToOneDevice : public CrossDeviceOps {
 public:
  struct Options {
    /// None adds on the first of the destinations.
    std::optional<Device> reduce_to_device = {};
    /// Empty adds.
    Accumulation accumulation_fn = {};
  };

  explicit ReductionToOneDevice(Options options);
  ReductionToOneDevice() = default;

  const char* name() const override { return "ReductionToOneDevice"; }
  std::vector<at::Tensor> reduce(ReduceOp op, std::span<const at::Tensor> values,
                                 std::span<const Device> destinations) const override;
  const Accumulation& accumulation() const override { return options_.accumulation_fn; }

 private:
  Options options_;
  mutable std::atomic<int> logged_{0};
};

/// What a strategy on these devices takes if it is not told: ReductionToOneDevice for devices of
/// different types, else CollectiveAllReduce.
std::shared_ptr<CrossDeviceOps> default_cross_device_ops(std::span<const Device> devices);

/// TensorFlow's older choice: NcclAllReduce for GPUs where there is NCCL, else, with a warning,
/// ReductionToOneDevice.
std::shared_ptr<CrossDeviceOps> select_cross_device_ops(std::span<const Device> devices);

}  // namespace cohort
