#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "cohort/cluster/tpu_cluster_resolver.h"
#include "cohort/distribute/strategy.h"
#include "cohort/tpu/device_assignment.h"

namespace cohort {

/// Synchronous training on a TPU system, or on one that this machine's cores simulate: replicas of
/// one core each, or of blocks of cores, over which a replica's tensors can be spread.
///
///     cohort::cluster::TPUClusterResolver resolver("local:2x2x1x2");
///     auto topology = cohort::tpu::initialize_system(resolver);
///     cohort::TPUStrategy strategy(resolver);                    // 8 replicas
///
///     auto assignment = cohort::tpu::DeviceAssignment::build(
///         topology, {.computation_shape = {1, 2, 1, 2}, .num_replicas = 2});
///     cohort::TPUStrategy strategy(resolver, assignment);        // 2 of 4 logical devices
///
/// The simulated cores are dealt out to this machine's CPU slots in blocks. Results depend on the
/// replicas and their logical devices, and not on the slots.
///
/// Replicas may read variables of another TPUStrategy on the same system: they see the component on
/// their own core. Variables are lost when the system is started again or stopped (tpu_system.h).
class TPUStrategy : public Strategy {
 public:
  struct Options {
    /// Tensors are partitioned by `split_to_logical_devices` and can't be assigned to one device.
    bool spmd_xla_partitioning = false;

    /// A replica that waits longer for others, in whatever call, fails with DeadlineExceeded, which
    /// names those that have not come. None waits for ever: a thread can't be ended, so that `run`
    /// returns only when the late replica does. See CommunicationOptions.
    std::optional<std::chrono::duration<double>> timeout = {};

    /// After this long, a warning names whom the others wait for. See CommunicationOptions.
    std::chrono::duration<double> warn_after = CommunicationOptions::kWarnAfter;
  };

  /// On the system that the environment names: see TPUClusterResolver.
  TPUStrategy();
  /// A replica on each core, in the order of tasks and devices. Throws RuntimeError for the address
  /// of a real TPU, which can't be reached.
  explicit TPUStrategy(const cluster::TPUClusterResolver& resolver);
  /// Throws ValueError for an assignment without replicas, over another mesh than the system's, or
  /// on devices that are missing.
  TPUStrategy(const cluster::TPUClusterResolver& resolver,
              const tpu::DeviceAssignment& device_assignment);
  TPUStrategy(const cluster::TPUClusterResolver& resolver,
              const std::optional<tpu::DeviceAssignment>& device_assignment,
              const Options& options);

  /// A copy of the resolver that the strategy was made with: `cluster_resolver()` by its own type.
  const cluster::TPUClusterResolver& tpu_cluster_resolver() const;

  /// Which core each logical device of each replica is.
  const tpu::DeviceAssignment& device_assignment() const;

  /// The hosts that have the first logical device of a replica.
  int num_hosts() const;
  /// The replicas whose first logical device a host has, at most.
  int num_replicas_per_host() const;

  /// The names of the first logical devices of the replicas, as TensorFlow lists worker_devices:
  /// "/job:localhost/replica:0/task:0/device:TPU:7". `extended().worker_devices()` are the CPU
  /// slots that play them, one for each replica.
  std::vector<std::string> tpu_devices() const;

 private:
  class Extended;
  const Extended& own() const;
};

}  // namespace cohort
