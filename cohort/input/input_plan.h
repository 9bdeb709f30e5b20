#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/data/auto_shard.h"
#include "cohort/input/input_options.h"
#include "cohort/input/input_replicas.h"
#include "cohort/input/step.h"

namespace cohort {

/// How a dataset gets to the replicas of one worker: which pipelines it runs, and how their
/// elements are shared out.
struct InputPlan {
  enum class How {
    CUT,   ///< One pipeline; each of its batches is cut into pieces.
    DEAL,  ///< One pipeline; its elements go to the replicas in turn.
    OWN,   ///< A pipeline for each replica.
  };

  How how = How::DEAL;
  std::vector<data::NodePtr> pipelines;
  BatchCut cut{1};
  PieceChoice choice;
  data::AutoShardPolicy policy = data::AutoShardPolicy::OFF;
  std::string reason;               ///< Why that policy.
  bool depends_on_workers = false;  ///< Whether other numbers of workers give other data.
  bool in_order = false;            ///< Stages that may give elements out of order must not.
  /// Whether elements are cut as batches that no stage has made, so that they may be rows.
  bool cuts_unbatched = false;
  std::string position_stages;  ///< What positions are of: see data::position_stages.
};

/// The plan of `distribute_dataset`. Throws NotFound for the policy FILE where there are no files,
/// InvalidArgument for fewer files than replicas under FILE_BY_REPLICA, ValueError where workers
/// have different numbers of replicas and the policy is neither DATA nor FILE_BY_REPLICA, and
/// ValueError and NotImplementedError for options that do not go together.
InputPlan plan_dataset(const data::NodePtr& dataset, data::AutoShardPolicy policy,
                       const InputReplicas& replicas, const InputOptions& options);

/// Throws for options that `distribute_datasets_from_function` can't take.
void check_function_options(const InputOptions& options, bool can_be_per_replica);

/// Throws ValueError where workers have different numbers of replicas, which `what` can't take.
void check_even_workers(const char* where, const std::string& what, const InputReplicas& replicas);

/// Steps of a plan, or what is known of them: kInfinite, kUnknownCardinality.
std::int64_t count_steps(const InputPlan& plan, const InputReplicas& replicas);

/// What a replica's elements look like.
data::ElementSpec replica_spec(const InputPlan& plan, const InputReplicas& replicas);

/// What happens to the dataset, in a few lines for people.
std::string explain_plan(const data::NodePtr& dataset, const InputPlan& plan,
                         const InputReplicas& replicas, const InputOptions& options);

const char* policy_name(data::AutoShardPolicy policy);

}  // namespace cohort
