#pragma once

#include <functional>

#include "cohort/collectives/threads/thread_network.h"
#include "cohort/collectives/worker.h"

namespace cohort {

/// Calls fn(worker) for so many workers, each in a thread of its own, all at the same time, and
/// returns when all have ended: several workers in one process, for tests, tutorials and what-if
/// questions before there is a cluster.
///
///     cohort::run_workers(3, [](const cohort::Worker& worker) {
///       cohort::MultiWorkerMirroredStrategy strategy({.worker = worker, .replicas = 8});
///       …                                                  // the program of one machine
///     });
///
/// Random numbers that a worker draws outside of `run` (initial weights) are its own: they begin
/// where LibTorch's default generator stood when `run_workers` was called, on every worker alike,
/// and the other workers do not disturb them. That generator is left as it was.
/// `torch::manual_seed` is for the caller, before.
///
/// An exception of a worker ends all: the others' waits for it throw Unavailable. When all have
/// ended, the first exception that is not just that is rethrown, with its type and a note that
/// names the worker. Throws ValueError for less than one worker, and for options that are not
/// valid.
void run_workers(int workers, const std::function<void(const Worker&)>& fn,
                 const NetworkOptions& options = {});

}  // namespace cohort
