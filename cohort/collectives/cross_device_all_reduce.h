#pragma once

#include <vector>

#include "cohort/collectives/communication_options.h"
#include "cohort/collectives/cross_device_ops.h"

namespace cohort {

/// What the all-reduce algorithms have in common. They are for dense values that go back to the
/// devices that they come from; sparse tensors, int32 and other destinations take
/// ReductionToOneDevice's way.
class CrossDeviceAllReduce : public CrossDeviceOps {
 public:
  std::vector<at::Tensor> reduce(ReduceOp op, std::span<const at::Tensor> values,
                                 std::span<const Device> destinations) const override;

 protected:
  /// Whether `all_reduce` may be asked.
  virtual bool can_reduce(std::span<const at::Tensor> values,
                          std::span<const Device> destinations) const;

  /// The sum or mean, added on the device of `main`, with a copy on each of the devices.
  static std::vector<at::Tensor> all_reduce(ReduceOp op, std::span<const at::Tensor> values,
                                            std::span<const Device> devices, std::size_t main);

 private:
  ReductionToOneDevice fallback_;
};

/// Joins the gradients of each replica end to end, cuts that into a number of packs, and reduces
/// pack by pack. What NcclAllReduce and HierarchicalCopyAllReduce have in common.
class PackedAllReduce : public CrossDeviceAllReduce {
 public:
  int num_packs() const { return num_packs_; }

  std::vector<std::vector<at::Tensor>> batch_reduce(
      ReduceOp op, std::span<const std::vector<at::Tensor>> values,
      std::span<const Device> destinations) const override;

 protected:
  /// Throws ValueError for a negative number; `name` is the class's.
  PackedAllReduce(const char* name, int num_packs);

 private:
  const int num_packs_;
};

/// Adds each pack on another device, by turns, and copies the sum back from there: for machines
/// whose GPUs reach each other at different speeds.
class HierarchicalCopyAllReduce : public PackedAllReduce {
 public:
  /// 0 packs means that every value is reduced on its own. Throws ValueError if negative.
  explicit HierarchicalCopyAllReduce(int num_packs = 1) : PackedAllReduce(kName, num_packs) {}
  const char* name() const override { return kName; }

 private:
  static constexpr const char* kName = "HierarchicalCopyAllReduce";
};

/// Leaves the moving to NCCL. On CPUs, and in a build without NCCL, values are added on one device;
/// the log says so once.
class NcclAllReduce : public PackedAllReduce {
 public:
  /// As HierarchicalCopyAllReduce.
  explicit NcclAllReduce(int num_packs = 1) : PackedAllReduce(kName, num_packs) {}
  const char* name() const override { return kName; }

 protected:
  bool can_reduce(std::span<const at::Tensor> values,
                  std::span<const Device> destinations) const override;

 private:
  static constexpr const char* kName = "NcclAllReduce";
};

/// The collectives of replicas, for values in cross-replica context. On CPUs it reads the values
/// where they lie; between other devices it sends packs of `bytes_per_pack`.
class CollectiveAllReduce : public CrossDeviceAllReduce {
 public:
  /// `group_size` counts the devices of all workers. Throws ValueError unless it is a multiple of
  /// the number of devices, and for options that are not valid.
  CollectiveAllReduce(const std::vector<Device>& devices, int group_size,
                      CommunicationOptions options = {});
  const char* name() const override { return "CollectiveAllReduce"; }

  std::vector<std::vector<at::Tensor>> batch_reduce(
      ReduceOp op, std::span<const std::vector<at::Tensor>> values,
      std::span<const Device> destinations) const override;

 private:
  const CommunicationOptions options_;
};

}  // namespace cohort
