#pragma once

#include <cstdint>
#include <iosfwd>

namespace cohort {

/// What a function that makes a dataset is told: which of the job's input pipelines it makes.
struct InputContext {
  int num_input_pipelines = 1;
  int input_pipeline_id = 0;
  int num_replicas_in_sync = 1;

  /// A replica's part of the global batch. Throws ValueError where it can't be cut evenly.
  std::int64_t per_replica_batch_size(std::int64_t global_batch_size) const;
  /// The same, by TensorFlow's name.
  std::int64_t get_per_replica_batch_size(std::int64_t global_batch_size) const {
    return per_replica_batch_size(global_batch_size);
  }

  friend std::ostream& operator<<(std::ostream& out, const InputContext& context);
};

}  // namespace cohort
