#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cohort/distribute/strategy.h"
#include "cohort/optim/replicated_module.h"

namespace cohort {

/// Does something to each copy of a model's parameters once, however many replicas use the copy.
///
/// It is done to all copies or to none, also in a run that throws, unless it throws itself: copies
/// that were changed by halves would never be alike again, since an optimizer's state and learning
/// rates go with them.
class OncePerCopy {
 public:
  /// `what` is the call that the user made, for errors.
  OncePerCopy(const ReplicatedModule& model, const char* what);

  /// All replicas call it at the same point, after a collective. The replicas of a device take
  /// turns, so the first one that goes on does it before the others see the copy. A copy that
  /// replicas of several devices share is done while all of them wait.
  void run(ReplicaContext& replica, const std::function<void(int copy)>& action);

  /// The same where no collective comes before: it is one itself, and all copies are done by one
  /// thread while the replicas wait.
  void run_together(ReplicaContext& replica, const std::function<void(int copy)>& action);

 private:
  class Together;

  void start_run(const ReplicaContext& replica, int copy);

  // The entries of a copy and of its replicas are touched by one thread at a time.
  const ReplicatedModule& model_;
  const char* const what_;
  std::vector<std::uint64_t> run_;    // in which each copy was used last
  std::vector<std::uint64_t> calls_;  // of each replica in that run
  std::vector<std::uint64_t> done_;   // of each copy
  std::vector<std::uint8_t> failed_;  // of each copy: the last one has thrown
};

}  // namespace cohort
