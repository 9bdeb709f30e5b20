#pragma once

#include "cohort/cluster/tpu_cluster_resolver.h"
#include "cohort/tpu/topology.h"

/// Starting and stopping a TPU system. Both functions may be called from any thread.
namespace cohort::tpu {

/// Starts the system that the resolver found, and says what it looks like.
///
/// Throws RuntimeError for the address of a real one, which nothing here can reach.
///
/// To start a system twice is allowed, but the log has a warning: on a TPU, the variables of before
/// are lost. Systems are the same if their resolvers' `tpu()` is.
Topology initialize_system(const cluster::TPUClusterResolver& resolver);

/// What the system looks like, started or not. Throws as `initialize_system`.
Topology topology_of(const cluster::TPUClusterResolver& resolver);

/// Stops the system, after which `initialize_system` is a first call again. Warns if the system was
/// not started.
void shutdown_system(const cluster::TPUClusterResolver& resolver);

}  // namespace cohort::tpu
