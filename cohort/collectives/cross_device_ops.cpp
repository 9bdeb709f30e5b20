#include "cohort/collectives/cross_device_ops.h"

#include <ATen/ATen.h>

#include "cohort/collectives/tensor_reduction.h"

namespace cohort {

std::vector<at::Tensor> CrossDeviceOps::broadcast(const at::Tensor& tensor,
                                                  std::span<const Device> destinations) const {
  std::vector<at::Tensor> copies;
  for (const Device& device : destinations) {
    copies.push_back(tensor.detach().to(device.torch_device(), /*non_blocking=*/false,
                                        /*copy=*/true));
  }
  return copies;
}

std::vector<at::Tensor> ReductionToOneDevice::reduce(ReduceOp op,
                                                     std::span<const at::Tensor> values,
                                                     std::span<const Device> destinations) const {
  const at::Tensor sum = collectives::reduce_tensors(op, values);
  std::vector<at::Tensor> results{sum.to(destinations[0].torch_device())};
  for (at::Tensor& copy : broadcast(sum, destinations.subspan(1))) {
    results.push_back(std::move(copy));
  }
  return results;
}

}  // namespace cohort
