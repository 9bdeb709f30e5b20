#pragma once

#include <memory>
#include <vector>

#include "cohort/distribute/replica_context.h"

namespace cohort {

class GradientReducer;

/// The backward pass that a replica is in: which reducers it has reached so far. When it ends, the
/// replicas exchange gradients, before `backward()` returns.
///
/// A backward pass inside of another one (a function that calls backward in its own derivative) is
/// part of it, if the outer one has reached a parameter before; else it is a pass of its own.
class BackwardPass {
 public:
  explicit BackwardPass(ReplicaContext& replica) : replica_(replica) {}
  ~BackwardPass();
  BackwardPass(const BackwardPass&) = delete;
  BackwardPass& operator=(const BackwardPass&) = delete;

  /// The pass of a replica that runs; begins with the first reducer that is added.
  static BackwardPass& of(ReplicaContext& replica);

  /// Called by the reducer, inside of backward.
  void add(GradientReducer& reducer);

  /// Forgets a pass that a run before has not finished.
  void start_over();

 private:
  class End;  // lives as long as LibTorch's record of the pass

  void finish();
  void abandon();

  ReplicaContext& replica_;
  std::vector<GradientReducer*> reached_;
  std::weak_ptr<End> end_;
};

}  // namespace cohort
