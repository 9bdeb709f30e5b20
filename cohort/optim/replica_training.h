#pragma once

#include "cohort/distribute/replica_context.h"
#include "cohort/optim/backward_pass.h"

namespace cohort {

/// What training keeps for a replica, from run to run.
class ReplicaTraining : public ReplicaContext::Attachment {
 public:
  explicit ReplicaTraining(ReplicaContext& replica) : pass_(replica) {}

  /// That of a replica, which is made on the first call.
  static ReplicaTraining& of(ReplicaContext& replica);

  BackwardPass& pass() { return pass_; }

  void begin_run() override { pass_.start_over(); }
  void end_run() override {}

 private:
  BackwardPass pass_;
};

}  // namespace cohort
