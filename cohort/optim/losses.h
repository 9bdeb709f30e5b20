#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <optional>

namespace cohort {

/// A batch's share of the average loss over the global batch: sum of the losses of its examples,
/// each times its weight, divided by `global_batch_size`. Summed over replicas, as gradients are,
/// this gives the average, however unevenly the examples are spread.
///
/// Without a global batch size it is the number of local examples times the number of replicas,
/// which needs a replica to be in: RuntimeError in cross-replica context. Throws ValueError for a
/// loss without a batch dimension, InvalidArgument for a negative batch size or weights that do not
/// fit. A batch size of 0 gives 0, not NaN.
at::Tensor average_loss(const at::Tensor& per_example_loss,
                        std::optional<std::int64_t> global_batch_size = std::nullopt,
                        const at::Tensor& sample_weight = {});
template <std::floating_point T>
at::Tensor average_loss(const at::Tensor& per_example_loss, T global_batch_size) = delete;

/// The replica's share of a loss that does not depend on the batch: its sum divided by the number
/// of replicas, so that the sum over replicas counts it once. RuntimeError in cross-replica
/// context.
at::Tensor scale_regularization_loss(const at::Tensor& regularization_loss);

}  // namespace cohort
