#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

#include "cohort/base/random.h"

namespace cohort::detail {

// LibTorch's default generator is one for all threads: its mutex makes replicas wait for each
// other, and who draws first is chance. Inside of `run`, every random function of LibTorch that is
// not given a generator therefore draws from its replica's own (`ReplicaContext::generator`), by a
// dispatch mode that costs other functions nothing.

/// The dispatch key of the mode: unused by LibTorch itself.
constexpr auto kRandomKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// The seed of one replica in one run.
std::uint64_t replica_seed(std::uint64_t seed, std::uint64_t run, int replica);

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

/// Suspends the mode: a merge_call's function is not in a replica.
class OutsideOfReplica {
 public:
  OutsideOfReplica() : exclude_(kRandomKey) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard exclude_;
};

}  // namespace cohort::detail
