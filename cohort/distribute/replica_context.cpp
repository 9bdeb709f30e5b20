#include "cohort/distribute/replica_context.h"

#include <ATen/CPUGeneratorImpl.h>

#include "cohort/base/error.h"
#include "cohort/base/whole_tensor.h"
#include "cohort/collectives/tensor_reduction.h"
#include "cohort/collectives/world_lane.h"
#include "cohort/distribute/crew.h"
#include "cohort/distribute/differentiable_collectives.h"
#include "cohort/distribute/replica_random.h"
#include "cohort/distribute/strategy.h"

namespace cohort {

ReplicaContext::ReplicaContext(StrategyExtended& strategy, int local_id)
    : strategy_(strategy), local_id_(local_id) {}

ReplicaContext::~ReplicaContext() = default;

Strategy ReplicaContext::strategy() const { return Strategy(strategy_.shared_from_this()); }

int ReplicaContext::num_replicas_in_sync() const { return strategy_.num_replicas_in_sync(); }

int ReplicaContext::replica_id_in_sync_group() const { return strategy_.layout().id_of(local_id_); }

std::vector<Device> ReplicaContext::devices() const {
  return {strategy_.layout().device(local_id_)};
}

ReplicaContext::Running::Running(ReplicaContext& replica, Crew& crew, std::uint64_t run,
                                 std::uint64_t serial)
    : replica_(replica) {
  replica.crew_ = &crew;
  replica.run_ = run;
  replica.run_serial_ = serial;
  replica.seeded_ = false;
  if (replica.attachment_) replica.attachment_->begin_run();
}

const at::Generator& ReplicaContext::generator() {
  if (!crew_) return detail::generator_outside_of_runs();
  if (!generator_.defined()) generator_ = at::detail::createCPUGenerator();
  if (!seeded_) {
    generator_.set_current_seed(
        detail::replica_seed(strategy_.layout().world().seed(), run_, replica_id_in_sync_group()));
    seeded_ = true;
  }
  return generator_;
}

namespace {

/// A meeting for its own sake.
class Barrier : public collectives::Contribution {
 public:
  explicit Barrier(World& world) : world_(world) {}
  std::string describe() const override { return "replica_context.barrier"; }
  std::optional<std::string> mismatch(const Contribution&) const override { return std::nullopt; }
  std::int64_t plan(std::span<Contribution* const>) override {
    world_.replicas_lane().all_gather(describe(), {});
    return 0;
  }
  void work(std::int64_t) override {}

 private:
  World& world_;
};

void check_leaves(const char* where, const std::vector<at::Tensor>& leaves, int replica) {
  if (leaves.empty()) throw ValueError(where, "the nest has no tensors");
  for (const at::Tensor& leaf : leaves) collectives::check_defined(where, {&leaf, 1}, replica);
}

}  // namespace

void ReplicaContext::barrier(const CommunicationOptions& options) {
  require_replica_context(*this, "replica_context.barrier");
  options.validate();
  const auto limits = strategy_.communication().merged_with(options).wait_limits();
  Barrier barrier(strategy_.layout().world());
  detail::attend_meeting(*this, barrier, &limits);
}

void ReplicaContext::take_turn(const char* where) {
  if (crew_) crew_->meeting().take_turn(local_id_, where);
}

std::vector<at::Tensor> ReplicaContext::all_reduce_tensors(ReduceOp op,
                                                           std::vector<at::Tensor> values,
                                                           const CommunicationOptions& options) {
  require_replica_context(*this, "replica_context.all_reduce");
  options.validate();
  check_leaves("replica_context.all_reduce", values, replica_id_in_sync_group());
  strategy_.check_one_algorithm("replica_context.all_reduce", values);
  const auto limits = strategy_.communication().merged_with(options).wait_limits();
  return detail::all_reduce(*this, op, whole(std::move(values)), &limits);
}

std::vector<at::Tensor> ReplicaContext::all_gather_tensors(std::vector<at::Tensor> values,
                                                           std::int64_t axis,
                                                           const CommunicationOptions& options) {
  require_replica_context(*this, "replica_context.all_gather");
  options.validate();
  check_leaves("replica_context.all_gather", values, replica_id_in_sync_group());
  for (const at::Tensor& value : values) {
    if (value.is_sparse()) {
      throw NotImplementedError("replica_context.all_gather",
                                "all_gather does not support IndexedSlices or sparse tensors: "
                                "give it to_dense() of them");
    }
  }
  const auto limits = strategy_.communication().merged_with(options).wait_limits();
  return detail::all_gather(*this, whole(std::move(values)), axis, &limits);
}

}  // namespace cohort
