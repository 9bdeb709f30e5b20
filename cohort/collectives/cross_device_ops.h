#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "cohort/collectives/reduce_op.h"
#include "cohort/device/device.h"

namespace cohort {

/// How values are combined over the devices of one process, in cross-replica context.
///
/// The algorithms differ in which device adds and how bytes move, never in the order of addition
/// (a pairwise tree over the replica ids): all give the same bits. Stateless and thread-safe.
class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  /// The sum or mean of one tensor from each replica, on each of the destinations.
  virtual std::vector<at::Tensor> reduce(ReduceOp op, std::span<const at::Tensor> values,
                                         std::span<const Device> destinations) const = 0;

  /// A copy of the tensor on each of the destinations.
  std::vector<at::Tensor> broadcast(const at::Tensor& tensor,
                                    std::span<const Device> destinations) const;
};

/// Adds on one device and copies the result to the others. The choice for host memory, for mixed
/// devices, for sparse tensors, and for adding up in a way of one's own.
class ReductionToOneDevice : public CrossDeviceOps {
 public:
  std::vector<at::Tensor> reduce(ReduceOp op, std::span<const at::Tensor> values,
                                 std::span<const Device> destinations) const override;
};

}  // namespace cohort
