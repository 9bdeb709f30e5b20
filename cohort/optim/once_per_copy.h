#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cohort/distribute/strategy.h"
#include "cohort/optim/replicated_module.h"

namespace cohort {

/// Does something to each copy of a model's parameters once, however many replicas use the copy.
///
/// All replicas call `run` at the same point, after a collective. The replicas of a device take
/// turns, so the first one that goes on does it before the others see the copy. A copy that
/// replicas of several devices share is done while all of them wait.
class OncePerCopy {
 public:
  /// `what` is the call that the user made, for errors.
  OncePerCopy(const ReplicatedModule& model, const char* what);

  void run(ReplicaContext& replica, const std::function<void(int copy)>& action);

 private:
  void start_run(const ReplicaContext& replica, int copy);

  // The entries of a copy and of its replicas are touched by one thread at a time.
  const ReplicatedModule& model_;
  const char* const what_;
  std::vector<std::uint64_t> run_;    // in which each copy was used last
  std::vector<std::uint64_t> calls_;  // of each replica in that run
  std::vector<std::uint64_t> done_;   // of each copy
};

}  // namespace cohort
