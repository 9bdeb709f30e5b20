#include "cohort/distribute/differentiable_collectives.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/collectives/all_reduce.h"
#include "cohort/distribute/crew.h"
#include "cohort/distribute/strategy_extended.h"

namespace cohort::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <class Call>
std::vector<at::Tensor> meet(ReplicaContext& replica, Call call, const WaitLimits* limits) {
  attend_meeting(replica, call, limits);
  return call.take();
}

World& world_of(ReplicaContext& replica) { return replica.extended().layout().world(); }

variable_list detached(variable_list values) {
  for (at::Tensor& value : values) value = value.detach();
  return values;
}

std::vector<at::Tensor> sum_of(ReplicaContext& replica, ReduceOp op, variable_list values,
                               const WaitLimits* limits) {
  const auto& accumulation = replica.extended().cross_device_ops().accumulation();
  return meet(
      replica,
      collectives::AllReduce(world_of(replica), op, detached(std::move(values)), accumulation),
      limits);
}

/// Gradients that no path led to count as zeros, since the other replicas wait for them.
variable_list with_zeros(variable_list grads, const variable_list& like) {
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) grads[i] = at::zeros_like(like[i]);
  }
  return grads;
}

bool needs_graph(const std::vector<at::Tensor>& values) {
  return at::GradMode::is_enabled() &&
         std::any_of(values.begin(), values.end(), [](const at::Tensor& value) {
           return value.requires_grad() && !value.is_sparse();
         });
}

/// The replica that a node of the graph belongs to, which the graph may outlive.
class NodeReplica : public torch::CustomClassHolder {
 public:
  explicit NodeReplica(ReplicaContext& replica)
      : strategy_(replica.extended().weak_from_this()), replica_(replica) {}

  static at::IValue wrap(ReplicaContext& replica) {
    return at::IValue::make_capsule(c10::make_intrusive<NodeReplica>(replica));
  }
  static ReplicaContext& unwrap(const at::IValue& value) {
    const auto holder = c10::static_intrusive_pointer_cast<NodeReplica>(value.toCapsule());
    if (!holder->strategy_.expired()) return holder->replica_;
    throw RuntimeError("backward",
                       "the strategy of a collective in this graph is gone: keep a copy of the "
                       "strategy until backward is done");
  }

 private:
  std::weak_ptr<StrategyExtended> strategy_;
  ReplicaContext& replica_;
};

struct DifferentiableAllReduce : torch::autograd::Function<DifferentiableAllReduce> {
  static variable_list forward(AutogradContext* context, ReplicaContext* replica, bool mean,
                               const WaitLimits* limits, at::TensorList values) {
    context->saved_data["replica"] = NodeReplica::wrap(*replica);
    context->saved_data["mean"] = mean;
    context->save_for_backward(values.vec());
    return sum_of(*replica, mean ? ReduceOp::MEAN : ReduceOp::SUM, values.vec(), limits);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const bool mean = context->saved_data["mean"].toBool();
    auto& replica = NodeReplica::unwrap(context->saved_data["replica"]);
    auto upstream = with_zeros(std::move(grads), context->get_saved_variables());
    variable_list result =
        all_reduce(replica, mean ? ReduceOp::MEAN : ReduceOp::SUM, std::move(upstream));
    result.insert(result.begin(), 3, at::Tensor());  // for what is not a tensor
    return result;
  }
};

/// Where this replica's rows lie in the gathered tensor.
std::vector<std::int64_t> offsets_of(ReplicaContext& replica, const variable_list& values,
                                     std::int64_t axis, const WaitLimits* limits) {
  variable_list sizes;
  for (const at::Tensor& value : values) {
    sizes.push_back(at::full({1}, value.size(axis), at::kLong));
  }
  std::vector<std::int64_t> offsets;
  for (const at::Tensor& all :
       meet(replica, collectives::AllGather(world_of(replica), sizes, 0), limits)) {
    const int before = replica.replica_id_in_sync_group();
    offsets.push_back(all.slice(0, 0, before).sum().item<std::int64_t>());
  }
  return offsets;
}

collectives::AllGather gathering(ReplicaContext& replica, std::vector<at::Tensor> values,
                                 std::int64_t axis) {
  return {world_of(replica), detached(std::move(values)), axis,
          replica.extended().require_static_shapes()};
}

struct DifferentiableAllGather : torch::autograd::Function<DifferentiableAllGather> {
  static variable_list forward(AutogradContext* context, ReplicaContext* replica, std::int64_t axis,
                               const WaitLimits* limits, at::TensorList values) {
    context->saved_data["replica"] = NodeReplica::wrap(*replica);
    context->saved_data["axis"] = axis;
    auto results = meet(*replica, gathering(*replica, values.vec(), axis), limits);
    context->saved_data["offsets"] = offsets_of(*replica, values.vec(), axis, limits);
    context->save_for_backward(values.vec());
    // The results themselves will hold this node, and so would never be freed.
    context->saved_data["gathered"] = detached(results);
    return results;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    auto& replica = NodeReplica::unwrap(context->saved_data["replica"]);
    const std::int64_t axis = context->saved_data["axis"].toInt();
    const auto offsets = context->saved_data["offsets"].toIntVector();
    const auto values = context->get_saved_variables();
    auto upstream = with_zeros(std::move(grads), context->saved_data["gathered"].toTensorVector());
    const auto sums = all_reduce(replica, ReduceOp::SUM, std::move(upstream));
    variable_list result(3);  // for what is not a tensor
    for (std::size_t i = 0; i < sums.size(); ++i) {
      result.push_back(sums[i].narrow(axis, offsets[i], values[i].size(axis)));
    }
    return result;
  }
};

}  // namespace

namespace {

thread_local const char* meetings_forbidden_by = nullptr;

}  // namespace

NoMeetings::NoMeetings(const char* where) : before_(std::exchange(meetings_forbidden_by, where)) {}
NoMeetings::~NoMeetings() { meetings_forbidden_by = before_; }

void attend_meeting(ReplicaContext& replica, collectives::Contribution& contribution,
                    const WaitLimits* limits) {
  if (meetings_forbidden_by) {
    throw RuntimeError(
        contribution.describe(),
        cat("called by replica ", replica.replica_id_in_sync_group(), " inside of ",
            meetings_forbidden_by, ", where replicas can't wait for each other: call it outside"));
  }
  if (replica.in_run()) {
    collectives::Meeting& meeting = replica.crew().meeting();
    if (limits) return meeting.attend(replica.local_id(), contribution, *limits);
    return meeting.attend(replica.local_id(), contribution);
  }
  if (replica.num_replicas_in_sync() > 1) {
    throw RuntimeError(contribution.describe(),
                       cat("the run of replica ", replica.replica_id_in_sync_group(),
                           " has ended, so the others can't take part: call collectives, and "
                           "backward through them, inside the function given to strategy.run()"));
  }
  collectives::Contribution* const all[] = {&contribution};
  std::int64_t pieces = contribution.plan(all);
  while (pieces > 0) {
    for (std::int64_t piece = 0; piece < pieces; ++piece) contribution.work(piece);
    pieces = contribution.next_stage();
  }
}

std::vector<at::Tensor> all_reduce(ReplicaContext& replica, ReduceOp op,
                                   std::vector<at::Tensor> values, const WaitLimits* limits) {
  if (!needs_graph(values)) return sum_of(replica, op, std::move(values), limits);
  return DifferentiableAllReduce::apply(&replica, op == ReduceOp::MEAN, limits,
                                        at::TensorList(values));
}

std::vector<at::Tensor> all_gather(ReplicaContext& replica, std::vector<at::Tensor> values,
                                   std::int64_t axis, const WaitLimits* limits) {
  if (replica.num_replicas_in_sync() == 1) return values;
  if (!needs_graph(values)) {
    return meet(replica, gathering(replica, std::move(values), axis), limits);
  }
  return DifferentiableAllGather::apply(&replica, axis, limits, at::TensorList(values));
}

}  // namespace cohort::detail
