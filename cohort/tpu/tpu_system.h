#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "cohort/cluster/tpu_cluster_resolver.h"
#include "cohort/tpu/topology.h"

/// Starting and stopping a TPU system. All functions may be called from any thread.
namespace cohort::tpu {

/// Starts the system that the resolver found, and says what it looks like. Without a resolver it is
/// the system that the environment names, as for TPUStrategy.
///
/// Throws RuntimeError for the address of a real one, which nothing here can reach.
///
/// To start a system twice is allowed, but the log has a warning: the variables of before are lost,
/// and throw RuntimeError when they are used. Systems are the same if their resolvers' `tpu()` is.
Topology initialize_system(
    const cluster::TPUClusterResolver& resolver = cluster::TPUClusterResolver());

/// What the system looks like, started or not. Throws as `initialize_system`.
Topology topology_of(const cluster::TPUClusterResolver& resolver);

/// Stops the system, whose variables are lost, and after which `initialize_system` is a first call
/// again. Warns if the system was not started. Without a resolver as `initialize_system`.
void shutdown_system(const cluster::TPUClusterResolver& resolver = cluster::TPUClusterResolver());

/// How many times variables of the system were lost: it was started again, or stopped. The counter
/// goes on for as long as the process.
std::shared_ptr<const std::atomic<std::uint64_t>> losses_of(
    const cluster::TPUClusterResolver& resolver);

}  // namespace cohort::tpu
