#include "cohort/input/input_context.h"

#include <ostream>

#include "cohort/base/error.h"

namespace cohort {

std::int64_t InputContext::per_replica_batch_size(std::int64_t global_batch_size) const {
  if (global_batch_size % num_replicas_in_sync != 0) {
    throw ValueError("InputContext.per_replica_batch_size",
                     cat("the global batch size can't be cut evenly: expected a multiple of ",
                         num_replicas_in_sync, " replicas, got ", global_batch_size));
  }
  return global_batch_size / num_replicas_in_sync;
}

std::ostream& operator<<(std::ostream& out, const InputContext& context) {
  return out << "InputContext(input pipeline id " << context.input_pipeline_id
             << ", total: " << context.num_input_pipelines << ')';
}

}  // namespace cohort
