#pragma once

#include <cstdint>
#include <optional>

namespace cohort {

/// What `Optimizer` does beyond its `torch::optim` optimizer.
struct OptimizerOptions {
  /// A parameter that got a gradient on some replicas only counts as zero on the others. Without,
  /// that is an error, since it is a mistake more often than not.
  bool allow_unused = false;

  /// Scales the summed gradients so that their norm, over all parameters, is at most this.
  std::optional<double> clip_global_norm = {};

  /// Every so many steps, compares the copies of the parameters bit by bit and throws RuntimeError
  /// with the name of the first that differs. 0 never does.
  int check_drift_every = 0;

  /// Sums gradients while backward still runs. Without, `step` sums them all, and several backward
  /// passes may come before it without `no_sync`.
  bool overlap = true;

  /// How many bytes of gradients are summed at a time. The first bucket is small, so that summing
  /// starts early.
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
};

}  // namespace cohort
