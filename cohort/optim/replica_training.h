#pragma once

#include <memory>
#include <vector>

#include "cohort/distribute/replica_context.h"
#include "cohort/optim/backward_pass.h"
#include "cohort/optim/foreign_use.h"

namespace cohort {

class GradientReducer;
class ReplicatedModule;

/// What training keeps for a replica, from run to run.
class ReplicaTraining : public ReplicaContext::Attachment {
 public:
  explicit ReplicaTraining(ReplicaContext& replica) : replica_(replica), pass_(replica) {}

  /// That of a replica, which is made on the first call.
  static ReplicaTraining& of(ReplicaContext& replica);

  BackwardPass& pass() { return pass_; }

  /// The models that the replica has used in this run, which look after themselves when it ends.
  bool uses(const ReplicatedModule& model) const;
  void use(const ReplicatedModule& model);

  /// A model of another strategy, which the replica may only evaluate: that its tensors are not
  /// written to is checked when the run ends.
  void use_foreign(const ReplicatedModule& model);

  /// The replica has begun a backward pass that the reducer sums. If its run fails, the replica
  /// lets the reducer clean up before anything else in the next one.
  void note_reducer(GradientReducer& reducer);

  void begin_run() override;
  void end_run() override;
  void fail_run() noexcept override;
  void pause_run() override;
  void resume_run() override;

 private:
  struct Used {
    const ReplicatedModule* model;
    std::weak_ptr<const ReplicatedModule> alive;
  };

  ReplicaContext& replica_;
  BackwardPass pass_;
  std::vector<Used> used_;
  std::vector<std::shared_ptr<ForeignUse>> foreign_;
  std::vector<std::weak_ptr<GradientReducer>> reducers_;
};

}  // namespace cohort
