#include "cohort/compat/tpu.h"

#include "cohort/compat/deprecated.h"

namespace cohort::compat {

TPUStrategy::TPUStrategy(const cluster::TPUClusterResolver& resolver, const Options& options)
    : cohort::TPUStrategy(resolver, options.experimental_device_assignment,
                          {.spmd_xla_partitioning = options.experimental_spmd_xla_partitioning}) {
  warn_deprecated("TPUStrategy",
                  "use cohort::TPUStrategy(resolver, device_assignment, "
                  "{.spmd_xla_partitioning = …})");
}

void experimental_connect_to_cluster(const cluster::TPUClusterResolver& resolver) {
  warn_deprecated("experimental_connect_to_cluster",
                  "leave it out, a simulated system is in this process");
  resolver.mesh_shape();
}

}  // namespace cohort::compat
