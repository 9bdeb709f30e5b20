#pragma once

#include <optional>

#include "cohort/cluster/tpu_cluster_resolver.h"
#include "cohort/strategies/tpu_strategy.h"

namespace cohort::compat {

/// `cohort::TPUStrategy`, whose arguments TensorFlow calls experimental:
///
///     compat::TPUStrategy strategy(resolver, {.experimental_device_assignment = assignment});
class TPUStrategy : public cohort::TPUStrategy {
 public:
  struct Options {
    std::optional<tpu::DeviceAssignment> experimental_device_assignment = std::nullopt;
    bool experimental_spmd_xla_partitioning = false;
  };
  TPUStrategy(const cluster::TPUClusterResolver& resolver, const Options& options);
};

/// Does nothing for a simulated system, which is in this process. Throws RuntimeError for the
/// address of a real one, which can't be reached.
void experimental_connect_to_cluster(const cluster::TPUClusterResolver& resolver);

}  // namespace cohort::compat
