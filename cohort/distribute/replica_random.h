#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

#include "cohort/base/random.h"

namespace cohort::detail {

// LibTorch's default generator is one for all threads: its mutex makes replicas wait for each
// other, and who draws first is chance. Inside of `run`, every random function of LibTorch that is
// not given a generator therefore draws from its replica's own (`ReplicaContext::generator`), by a
// dispatch mode that costs other functions nothing. So do the threads of `run_workers`, each from
// its worker's own.

/// The dispatch key of the mode: unused by LibTorch itself.
constexpr auto kRandomKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// The seed of one replica in one run.
std::uint64_t replica_seed(std::uint64_t seed, std::uint64_t run, int replica);

/// What the calling thread draws from: the innermost OwnGenerator; in a replica, the replica's; in
/// a worker's thread, the worker's; LibTorch's default generator elsewhere.
const at::Generator& thread_generator();

/// The same without regard to replicas and OwnGenerator.
const at::Generator& generator_outside_of_runs();

/// Puts the mode into effect for a replica's thread, for a block.
class ReplicaRandom {
 public:
  ReplicaRandom();

 private:
  c10::impl::IncludeDispatchKeyGuard include_;
};

/// Puts it into effect for a thread that works for a replica, with a generator of its own.
class OwnGenerator {
 public:
  explicit OwnGenerator(at::Generator generator);
  ~OwnGenerator();
  OwnGenerator(const OwnGenerator&) = delete;
  OwnGenerator& operator=(const OwnGenerator&) = delete;

 private:
  ReplicaRandom mode_;
  at::Generator generator_;
  const at::Generator* before_;
};

/// Puts it into effect for the thread of a worker, for what it does outside of replicas.
class WorkersGenerator {
 public:
  explicit WorkersGenerator(at::Generator generator);
  ~WorkersGenerator();
  WorkersGenerator(const WorkersGenerator&) = delete;
  WorkersGenerator& operator=(const WorkersGenerator&) = delete;

 private:
  ReplicaRandom mode_;
  at::Generator generator_;
  const at::Generator* before_;
};

/// Suspends an OwnGenerator around it: a merge_call's function, which has left its replica's
/// context, draws what the thread drew before the run.
class OutsideOfReplica {
 public:
  OutsideOfReplica();
  ~OutsideOfReplica();
  OutsideOfReplica(const OutsideOfReplica&) = delete;
  OutsideOfReplica& operator=(const OutsideOfReplica&) = delete;

 private:
  const at::Generator* own_;
};

}  // namespace cohort::detail
