#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "cohort/collectives/worker.h"
#include "cohort/distribute/run_workers.h"
#include "cohort/distribute/strategy.h"

namespace cohort {

/// MirroredStrategy over several workers: a replica on each device of each worker, variables copied
/// to all and kept the same. The same program runs on every worker, and gives the bits of a
/// MirroredStrategy with as many replicas.
///
///     cohort::run_workers(3, [](const cohort::Worker& worker) {
///       cohort::MultiWorkerMirroredStrategy strategy({.worker = worker, .replicas = 8});
///       auto scope = strategy.scope();
///       …
///     });
///
/// What concerns all replicas is a call of all workers: `run` with a collective inside, `reduce`,
/// `gather`, making a variable or a model, `state_dict`, `fingerprint`. Each worker must make these
/// calls in the same order. What concerns the replicas of this process is not: `local_results`,
/// `merge_call`, `worker_devices`.
class MultiWorkerMirroredStrategy : public Strategy {
 public:
  struct Options {
    /// Which worker of which job this is; none is a job of this process alone.
    std::optional<Worker> worker = {};

    /// Of this worker. Empty takes all GPUs, or without one all logical CPU devices; not more than
    /// the worker has replicas.
    std::vector<Device> devices = {};

    /// How many replicas the whole job has, on all workers: they are dealt out in blocks, the first
    /// workers take one more. 0 means one on each device of each worker. The result of a training
    /// depends on this number alone: fix it to get the same bits everywhere.
    int replicas = 0;

    /// How many logical devices each replica is spread over. See MirroredStrategy.
    int logical_devices_per_replica = 1;

    /// How values are combined in cross-replica context; null chooses by the devices.
    CrossDeviceOpsOption cross_device_ops = {};

    /// Threads that LibTorch may use inside one operation of a replica on a CPU slot.
    int intra_op_threads = 1;

    /// A wait for other replicas or workers that takes longer fails with DeadlineExceeded, which
    /// names those that have not come.
    std::optional<std::chrono::duration<double>> timeout = std::chrono::minutes(10);

    /// After this long, a warning names whom the others wait for. See CommunicationOptions.
    std::chrono::duration<double> warn_after = CommunicationOptions::kWarnAfter;
  };

  /// Returns when all workers of the job have come. Throws ValueError for fewer replicas than
  /// workers, for devices as MirroredStrategy does, and where the workers' options differ;
  /// DeadlineExceeded and Unavailable for workers that do not come.
  explicit MultiWorkerMirroredStrategy(Options options);
  MultiWorkerMirroredStrategy();
};

}  // namespace cohort
