#pragma once

#include <cstdint>
#include <optional>

#include "cohort/collectives/reduce_op.h"

namespace cohort {

/// What `Optimizer` does beyond its `torch::optim` optimizer.
struct OptimizerOptions {
  /// SUM adds up the gradients of all replicas, for losses that are divided by the global batch
  /// (`average_loss`). MEAN divides the sum by the number of replicas, for losses that are means
  /// over the replica's batch, as in a plain LibTorch loop; replicas with fewer rows, or none,
  /// count as much as the others.
  ReduceOp reduce = ReduceOp::SUM;

  /// A parameter that got a gradient on some replicas only counts as zero on the others. Without,
  /// that is an error, since it is a mistake more often than not.
  bool allow_unused = false;

  /// Scales the summed gradients so that their norm, over all parameters, is at most this.
  std::optional<double> clip_global_norm = {};

  /// Every so many steps, compares the copies of the parameters bit by bit and throws RuntimeError
  /// with the name of the first that differs. 0 never does.
  int check_drift_every = 0;

  /// Sums gradients while backward still runs. Without, they are summed when it ends: for graphs in
  /// which a backward pass inside of another makes a second gradient of the same parameter.
  bool overlap = true;

  /// How many bytes of gradients are summed at a time. The first bucket is small, so that summing
  /// starts early.
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
};

}  // namespace cohort
