#include "cohort/optim/losses.h"

#include <ATen/ATen.h>

#include "cohort/base/error.h"
#include "cohort/distribute/replica_context.h"
#include "cohort/optim/sample_weight.h"

namespace cohort {
namespace {

const ReplicaContext& replica_or_throw(const char* where, const char* instead) {
  if (const ReplicaContext* replica = replica_context_or_null()) return *replica;
  throw RuntimeError(where, cat("called in cross-replica context: call it inside the function "
                                "given to strategy.run()",
                                instead));
}

at::Tensor floating(const at::Tensor& loss) {
  return loss.is_floating_point() ? loss : loss.to(at::kDouble);
}

}  // namespace

at::Tensor average_loss(const at::Tensor& per_example_loss,
                        std::optional<std::int64_t> global_batch_size,
                        const at::Tensor& sample_weight) {
  if (per_example_loss.dim() == 0) {
    throw ValueError("average_loss",
                     "the loss has no batch dimension: expected one loss for each "
                     "example (reduction none), got a scalar");
  }
  if (!global_batch_size) {
    const auto& replica = replica_or_throw("average_loss", ", or give the global batch size");
    global_batch_size = per_example_loss.size(0) * replica.num_replicas_in_sync();
  }
  if (*global_batch_size < 0) {
    throw InvalidArgument("average_loss", cat("the global batch size must be non-negative, got ",
                                              *global_batch_size));
  }
  at::Tensor losses = floating(per_example_loss);
  if (sample_weight.defined()) {
    losses = losses * in_shape_of(losses, sample_weight.to(losses.scalar_type()), "average_loss");
  }
  if (*global_batch_size == 0) return (losses.sum() * 0).nan_to_num();
  return losses.sum() / static_cast<double>(*global_batch_size);
}

at::Tensor scale_regularization_loss(const at::Tensor& regularization_loss) {
  const auto& replica = replica_or_throw("scale_regularization_loss", "");
  return floating(regularization_loss).sum() / replica.num_replicas_in_sync();
}

}  // namespace cohort
