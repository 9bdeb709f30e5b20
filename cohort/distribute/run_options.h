#pragma once

#include <optional>

namespace cohort {

/// Settings of the compiler XLA.
struct XLAOptions {
  bool use_spmd_for_xla_partitioning = true;
  bool enable_xla_dynamic_padder = true;
};

/// How TensorFlow compiles what `run` calls. Here nothing is compiled, and shapes may change from
/// call to call: programs that come from there keep their settings, which change nothing.
struct RunOptions {
  bool enable_dynamic_batch_size = true;
  bool bucketizing_dynamic_shape = false;
  std::optional<XLAOptions> xla_options = std::nullopt;
};

}  // namespace cohort
