#include "cohort/input/input_plan.h"

#include <algorithm>
#include <sstream>

#include "cohort/base/error.h"
#include "cohort/base/log.h"

namespace cohort {
namespace {

using data::AutoShardPolicy;
using data::NodePtr;
using data::ShardOf;

constexpr const char* kWhere = "distribute_dataset";

void check_options(const InputOptions& options) {
  if (options.per_replica_buffer_size < 0) {
    throw ValueError("InputOptions", cat("per_replica_buffer_size must not be negative, got ",
                                         options.per_replica_buffer_size));
  }
  const bool per_replica = options.replication_mode == InputReplicationMode::PER_REPLICA;
  if (options.place_dataset_on_device && !per_replica) {
    throw ValueError("InputOptions",
                     "place_dataset_on_device needs the replication mode PER_REPLICA");
  }
  if (options.place_dataset_on_device && options.fetch_to_device) {
    throw ValueError("InputOptions",
                     "fetch_to_device and place_dataset_on_device exclude each other: set one of "
                     "them to false");
  }
}

/// Each worker cuts its own batches, and takes its replicas' number of pieces a step.
InputPlan cut_all(NodePtr pipeline, const InputReplicas& replicas) {
  InputPlan plan;
  plan.how = InputPlan::How::CUT;
  plan.cut = BatchCut(replicas.global(), data::full_batch_of(*pipeline));
  plan.choice.per_step = replicas.local();
  plan.pipelines = {std::move(pipeline)};
  return plan;
}

/// Every worker makes the same batches and keeps the pieces of its own replicas.
InputPlan cut_by_data(const NodePtr& pipeline, const InputReplicas& replicas) {
  InputPlan plan = cut_all(pipeline, replicas);
  plan.choice.first = replicas.first();
  if (replicas.workers() == 1) return plan;
  plan.in_order = true;
  if (data::has_unordered_stage(*pipeline) && log::first("input-unordered")) {
    log::warning(kWhere,
                 ": unordered stages run in order, as all workers must make the same batches");
  }
  if (!plan.cut.full_batch()) return plan;
  const std::int64_t full = *plan.cut.full_batch();
  const data::WantedRows rows{plan.cut.begin(replicas.first(), full),
                              plan.cut.begin(replicas.id_of(replicas.local()), full)};
  if (NodePtr part = data::with_wanted_rows(pipeline, rows)) {
    plan.pipelines = {part};
    plan.choice.only_those_read = true;
  }
  return plan;
}

InputPlan by_files_of_replica(const NodePtr& pipeline, const InputReplicas& replicas) {
  const int n = replicas.global();
  InputPlan plan;
  plan.how = InputPlan::How::OWN;
  const auto full = data::full_batch_of(*pipeline);
  const auto files = static_cast<int>(data::files_of(*pipeline, n).size());
  if (files < n) {
    throw InvalidArgument(kWhere, cat("there are fewer files than replicas: expected at least ", n,
                                      " for FILE_BY_REPLICA, got ", files,
                                      "; write more files, or use the policy DATA"));
  }
  const BatchCut cut(n, full);
  for (int i = 0; i < replicas.local(); ++i) {
    const int id = replicas.id_of(i);
    NodePtr own = data::shard_files(pipeline, ShardOf{n, id, /*strict=*/true});
    const std::int64_t rows = full ? cut.begin(id + 1, *full) - cut.begin(id, *full) : 0;
    if (rows > 0) own = data::with_batch_size(own, rows);
    plan.pipelines.push_back(std::move(own));
  }
  return plan;
}

/// FILE or DATA, whichever the pipeline is fit for.
std::pair<AutoShardPolicy, std::string> chosen_policy(const NodePtr& pipeline,
                                                      AutoShardPolicy policy) {
  if (policy != AutoShardPolicy::AUTO) return {policy, "as asked for"};
  const data::Node* obstacle = data::obstacle_to_file_shards(*pipeline);
  if (!obstacle) return {AutoShardPolicy::FILE, "AUTO: every source of the pipeline is files"};
  if (obstacle->role() == data::Node::Role::SOURCE) {
    return {AutoShardPolicy::DATA, "AUTO: not every source of the pipeline is files"};
  }
  return {AutoShardPolicy::DATA,
          cat("AUTO: ", obstacle->name(), " depends on the elements of all files")};
}

/// Elements that no stage has put together, other than those that are known to have no dimension:
/// these can't be cut, which is an error.
bool is_unbatched(const data::Node& pipeline) {
  if (pipeline.times_batched() != 0) return false;
  const data::ElementSpec spec = pipeline.spec();
  const auto& leaves = spec.leaves();
  return !spec.known() || std::any_of(leaves.begin(), leaves.end(),
                                      [](const auto& leaf) { return !leaf.shape.empty(); });
}

InputPlan planned(const NodePtr& pipeline, AutoShardPolicy policy, const InputReplicas& replicas) {
  const ShardOf shard{replicas.workers(), replicas.worker(), /*strict=*/true};
  const bool several = shard.count > 1;
  switch (policy) {
    case AutoShardPolicy::DATA:
      return cut_by_data(pipeline, replicas);
    case AutoShardPolicy::FILE:
      return cut_all(several ? data::shard_files(pipeline, shard) : pipeline, replicas);
    case AutoShardPolicy::FILE_BY_REPLICA:
      return by_files_of_replica(pipeline, replicas);
    case AutoShardPolicy::HINT:
      return cut_all(data::shard_hints(pipeline, ShardOf{shard.count, shard.index}), replicas);
    default:
      return cut_all(pipeline, replicas);
  }
}

}  // namespace

const char* policy_name(AutoShardPolicy policy) {
  switch (policy) {
    case AutoShardPolicy::OFF:
      return "OFF";
    case AutoShardPolicy::AUTO:
      return "AUTO";
    case AutoShardPolicy::FILE:
      return "FILE";
    case AutoShardPolicy::DATA:
      return "DATA";
    case AutoShardPolicy::HINT:
      return "HINT";
    case AutoShardPolicy::FILE_BY_REPLICA:
      return "FILE_BY_REPLICA";
  }
  return "?";
}

InputPlan plan_dataset(const NodePtr& dataset, AutoShardPolicy policy,
                       const InputReplicas& replicas, const InputOptions& options) {
  if (options.replication_mode == InputReplicationMode::PER_REPLICA) {
    throw NotImplementedError(kWhere,
                              "the replication mode PER_REPLICA needs a dataset for each replica: "
                              "use distribute_datasets_from_function");
  }
  check_options(options);
  auto [chosen, reason] = chosen_policy(dataset, policy);
  const bool depends_on_workers =
      chosen != AutoShardPolicy::DATA && chosen != AutoShardPolicy::FILE_BY_REPLICA;
  if (depends_on_workers) {
    check_even_workers(kWhere, cat("the policy ", policy_name(chosen), " (", reason, ")"),
                       replicas);
  }
  InputPlan plan;
  if (replicas.global() == 1) {  // nothing to share out
    plan.pipelines = {dataset};
  } else {
    plan = planned(dataset, chosen, replicas);
  }
  plan.policy = chosen;
  plan.reason = std::move(reason);
  plan.position_stages = cat(data::position_stages(*dataset), ".distribute_dataset");
  plan.cuts_unbatched = plan.how == InputPlan::How::CUT && is_unbatched(*dataset);
  if (plan.cuts_unbatched) {
    log::warning(kWhere, ": no stage of the dataset makes batches: each element is cut along its ",
                 "first dimension, as if it were a batch; use .batch(global_batch_size), unless ",
                 "the elements are batches already");
  }
  plan.depends_on_workers = depends_on_workers;
  return plan;
}

void check_even_workers(const char* where, const std::string& what, const InputReplicas& replicas) {
  const World& world = replicas.world();
  std::string counts;
  bool is_even = true;
  for (int w = 0; w < world.workers(); ++w) {
    const int own = world.first_of(w + 1) - world.first_of(w);
    counts += cat(w ? ", " : "", own);
    is_even = is_even && own == world.first_of(1);
  }
  if (is_even) return;
  throw ValueError(where,
                   cat(what, " needs every worker to have the same number of replicas: expected ",
                       world.first_of(1), " on each of ", world.workers(), " workers, got ", counts,
                       "; use what takes uneven workers: the policy DATA or "
                       "FILE_BY_REPLICA, or a function with PER_REPLICA"));
}

void check_function_options(const InputOptions& options, bool can_be_per_replica) {
  check_options(options);
  if (options.replication_mode == InputReplicationMode::PER_REPLICA && !can_be_per_replica) {
    throw NotImplementedError("distribute_datasets_from_function",
                              "the replication mode PER_REPLICA needs a mirrored strategy");
  }
}

std::int64_t count_steps(const InputPlan& plan, const InputReplicas& replicas) {
  std::int64_t most = 0;
  for (const NodePtr& pipeline : plan.pipelines) {
    const std::int64_t elements = pipeline->cardinality();
    if (elements < 0) return elements;
    most = std::max(most, elements);
  }
  if (plan.choice.first) return most;
  if (replicas.workers() > 1) return data::kUnknownCardinality;  // another's may be longer
  if (plan.how != InputPlan::How::DEAL) return most;
  return (most + replicas.local() - 1) / replicas.local();
}

data::ElementSpec replica_spec(const InputPlan& plan, const InputReplicas& replicas) {
  data::ElementSpec spec = plan.pipelines[0]->spec();
  if (replicas.global() == 1 || !spec.known()) return spec;
  const bool endless = plan.pipelines[0]->cardinality() == data::kInfinite;
  if (plan.how != InputPlan::How::CUT) {
    return endless ? spec : spec.with_rows(data::LeafSpec::kUnknown);
  }
  std::int64_t rows = data::LeafSpec::kUnknown;
  // Another worker may have data when this one has none left.
  const bool may_end_early = plan.depends_on_workers && replicas.workers() > 1 && !endless;
  if (may_end_early) return spec.with_rows(rows);
  for (const data::LeafSpec& leaf : spec.leaves()) {
    const std::int64_t all = leaf.shape.empty() ? rows : leaf.shape[0];
    if (all > 0 && all % plan.cut.pieces() == 0) rows = all / plan.cut.pieces();
  }
  return spec.with_rows(rows);
}

namespace {

void explain_files(std::ostream& out, const NodePtr& dataset, const InputPlan& plan,
                   const InputReplicas& replicas) {
  constexpr std::size_t kShown = 8;
  const bool by_replica = plan.policy == AutoShardPolicy::FILE_BY_REPLICA;
  const int readers = by_replica ? replicas.global() : replicas.workers();
  const auto files = data::files_of(*dataset, 10'000);
  for (int i = 0; i < readers; ++i) {
    out << "  " << (by_replica ? "replica " : "worker ") << i << " reads";
    std::size_t shown = 0;
    for (std::size_t f = i; f < files.size(); f += readers) {
      if (++shown <= kShown) out << ' ' << files[f];
    }
    if (shown > kShown) out << " and " << shown - kShown << " more";
    out << (shown == 0 ? " nothing\n" : "\n");
  }
}

void explain_batches(std::ostream& out, const InputPlan& plan, const InputReplicas& replicas) {
  const int n = replicas.global();
  if (plan.how == InputPlan::How::DEAL) {
    out << "  each replica takes the next element in turn\n";
  } else if (plan.how == InputPlan::How::OWN) {
    out << "  each replica takes the next element of its own pipeline\n";
  } else if (plan.cuts_unbatched) {
    out << "  no stage makes batches: each element is cut along its first dimension, as if it were "
        << "a batch, into " << n << " pieces\n";
  } else if (!plan.cut.full_batch()) {
    out << "  each batch is cut evenly by its own size into " << n << " pieces\n";
  } else {
    const std::int64_t full = *plan.cut.full_batch();
    out << "  a batch of " << full << " is cut into";
    for (int i = 0; i < n; ++i) {
      out << (i ? ", " : " ") << plan.cut.begin(i + 1, full) - plan.cut.begin(i, full);
    }
    out << " for replicas 0 to " << n - 1 << '\n';
  }
}

}  // namespace

std::string explain_plan(const NodePtr& dataset, const InputPlan& plan,
                         const InputReplicas& replicas, const InputOptions& options) {
  std::ostringstream out;
  const int workers = replicas.workers();
  out << "input for " << replicas.global() << " replicas on " << workers << " worker"
      << (workers == 1 ? "" : "s") << ", this is "
      << (workers == 1 ? "worker 0" : replicas.world().name(replicas.worker())) << '\n'
      << "  policy " << policy_name(plan.policy) << " (" << plan.reason << ")\n";
  const bool by_file = plan.policy == AutoShardPolicy::FILE && workers > 1;
  if (by_file || plan.policy == AutoShardPolicy::FILE_BY_REPLICA) {
    explain_files(out, dataset, plan, replicas);
  } else if (plan.choice.only_those_read) {
    out << "  every worker reads the rows of its own replicas only\n";
  } else if (workers > 1) {
    out << "  every worker reads everything\n";
  }
  explain_batches(out, plan, replicas);
  out << "  " << options.per_replica_buffer_size << " steps are made ahead\n"
      << "  the data " << (plan.depends_on_workers ? "depends" : "does not depend")
      << " on the number of workers\n";
  return out.str();
}

}  // namespace cohort
