#include "cohort/distribute/strategy_extended.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/base/whole_tensor.h"
#include "cohort/collectives/tensor_reduction.h"
#include "cohort/collectives/world_lane.h"
#include "cohort/collectives/world_tensors.h"
#include "cohort/device/intra_op_threads.h"
#include "cohort/distribute/caller_state.h"
#include "cohort/distribute/replica_random.h"
#include "cohort/distribute/strategy.h"

namespace cohort {

/// A crew with the contexts of its replicas. A strategy has one for each run at the same time.
struct StrategyExtended::Team {
  explicit Team(StrategyExtended& strategy)
      : crew(strategy.layout().copy_of_each(), strategy.world(),
             strategy.communication().wait_limits()) {
    for (int i = 0; i < strategy.layout().local(); ++i) {
      replicas.push_back(std::make_unique<ReplicaContext>(strategy, i));
    }
  }
  Crew crew;
  std::vector<std::unique_ptr<ReplicaContext>> replicas;
};

namespace {

bool all_zero(const at::Tensor& tensor) { return tensor.eq(0).all().item<bool>(); }

void check_axes(const at::Tensor& tensor, const Axis& axis) {
  if (tensor.scalar_type() == at::kBool) {
    throw TypeError("strategy.reduce",
                    "values of type Bool cannot be added along an axis: cast "
                    "them to a number type");
  }
  const std::int64_t rank = tensor.dim();
  std::set<std::int64_t> seen;
  for (const std::int64_t a : axis.axes()) {
    if (a < -rank || a >= rank) {
      throw ValueError("strategy.reduce", cat("axis out of range: expected ", -rank, " to ",
                                              rank - 1, " for rank ", rank, ", got ", a));
    }
    if (!seen.insert(a < 0 ? a + rank : a).second) {
      throw InvalidArgument("strategy.reduce", cat("expected each axis once, got ", a, " twice"));
    }
  }
}

/// LibTorch takes no axes for all of them. Sparse rows are the tensor that they are rows of.
at::Tensor sum_along(const at::Tensor& tensor, const Axis& axis) {
  const at::Tensor dense = tensor.is_sparse() ? tensor.to_dense() : tensor;
  if (axis.axes().empty()) return dense;
  return dense.sum(axis.axes(), /*keepdim=*/false, dense.scalar_type());
}

/// The number of elements that a sum over the axes takes together.
std::int64_t count_along(const at::Tensor& tensor, const Axis& axis) {
  std::int64_t count = 1;
  for (const std::int64_t a : axis.axes()) count *= tensor.size(a);
  return count;
}

/// Throws ValueError for an undefined tensor, and says whose it is.
void check_defined(const char* where, const Reducible& value, int first_replica) {
  if (value.kind == Reducible::PER_REPLICA) {
    return collectives::check_defined(where, value.values, first_replica);
  }
  if (!value.values[0].defined()) throw ValueError(where, "the value is an undefined tensor");
}

void check_same_shapes(const std::string& strategy, const std::vector<at::Tensor>& values) {
  for (std::size_t r = 1; r < values.size(); ++r) {
    if (values[0].is_nested() || values[r].is_nested()) return;  // refused by the gathering itself
    if (values[r].sizes() == values[0].sizes()) continue;
    throw InvalidArgument(
        "strategy.gather",
        cat(strategy, " gathers tensors of one shape: expected ", values[0].sizes(),
            " as on replica 0, got ", values[r].sizes(), " on replica ", r, "; pad them first"));
  }
}

void warn_if_different(const std::vector<Destinations>& destinations) {
  const auto differs = [&](const Destinations& other) {
    return *other.devices() != *destinations[0].devices();
  };
  if (std::none_of(destinations.begin(), destinations.end(), differs)) return;
  if (log::first("batch-destinations")) {
    log::warning(
        "extended.batch_reduce_to: the destinations of the values differ, but all results "
        "are mirrored on all worker devices");
  }
}

}  // namespace

StrategyExtended::StrategyExtended(Settings settings)
    : settings_([&] {
        if (!settings.cross_device_ops) {
          settings.cross_device_ops = default_cross_device_ops(settings.layout.devices());
        }
        settings.communication.validate();
        return std::move(settings);
      }()) {}

StrategyExtended::~StrategyExtended() = default;

std::vector<Device> StrategyExtended::worker_devices() const { return layout().devices(); }
std::vector<Device> StrategyExtended::parameter_devices() const {
  return settings_.parameter_devices.empty() ? layout().devices() : settings_.parameter_devices;
}

std::shared_ptr<StrategyExtended> StrategyExtended::handle() {
  const MutexLock lock(handle_mutex_);
  auto handle = handle_.lock();
  if (!handle) {
    handle = {this, [owner = shared_from_this()](StrategyExtended* self) mutable {
                self->wait_until_idle();
                owner.reset();  // the deleter itself lives on, as long as handle_ does
              }};
    handle_ = handle;
  }
  return handle;
}

void StrategyExtended::wait_until_idle() {
  for (const detail::Mode& mode : detail::thread_context().modes) {
    if (mode.strategy == this && mode.replica) return;
  }
  if (!process_.is_current()) return;  // they are in flight in the parent
  for (int n = runs_in_flight_.load(); n > 0; n = runs_in_flight_.load()) runs_in_flight_.wait(n);
}

int StrategyExtended::logical_devices_per_replica() const {
  return settings_.logical_devices.empty() ? 1
                                           : static_cast<int>(settings_.logical_devices[0].size());
}

std::vector<Device> StrategyExtended::logical_devices(int copy) const {
  if (settings_.logical_devices.empty()) return {layout().devices()[copy]};
  return settings_.logical_devices[copy];
}

std::shared_ptr<spmd::Mesh> StrategyExtended::logical_mesh(
    int copy, FunctionRef<std::shared_ptr<spmd::Mesh>()> make) {
  const MutexLock lock(meshes_mutex_);
  meshes_.resize(layout().copies());
  if (!meshes_[copy]) meshes_[copy] = make();
  return meshes_[copy];
}

StrategyExtended::Team& StrategyExtended::take_team() {
  const MutexLock lock(teams_mutex_);
  if (free_teams_.empty()) {
    free_teams_.reserve(teams_.size() + 1);  // giving it back can't fail then
    teams_.push_back(std::make_unique<Team>(*this));
    return *teams_.back();
  }
  Team* team = free_teams_.back();
  free_teams_.pop_back();
  return *team;
}

void StrategyExtended::give_back(Team& team) {
  if (!process_.is_current() && layout().local() > 1) return;  // never taken again
  const MutexLock lock(teams_mutex_);
  free_teams_.push_back(&team);
}

/// Counts the run as one in flight from its beginning, whatever fails then.
class StrategyExtended::TeamInUse {
 public:
  explicit TeamInUse(StrategyExtended& strategy)
      : in_flight_{strategy}, team(strategy.take_team()) {}
  ~TeamInUse() { in_flight_.strategy.give_back(team); }
  TeamInUse(const TeamInUse&) = delete;
  TeamInUse& operator=(const TeamInUse&) = delete;

 private:
  struct InFlight {
    explicit InFlight(StrategyExtended& strategy) : strategy(strategy) {
      strategy.runs_in_flight_.fetch_add(1);
    }
    ~InFlight() {
      strategy.runs_in_flight_.fetch_sub(1);
      strategy.runs_in_flight_.notify_all();
    }
    StrategyExtended& strategy;
  };
  const InFlight in_flight_;

 public:
  Team& team;
};

bool StrategyExtended::is_in_own_run() const {
  const auto& modes = detail::thread_context().modes;
  return std::any_of(modes.begin(), modes.end(), [this](const detail::Mode& mode) {
    return mode.strategy == this && mode.replica;
  });
}

World::Turn StrategyExtended::take_turn() const {
  return is_in_own_run() ? World::Turn() : world().take_turn();
}

/// Counts it; after a failed run, as the workers agree.
std::uint64_t StrategyExtended::begin_run() {
  const std::uint64_t next = runs_.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t run = world().begin_run(next);
  if (run != next) set_runs(run + 1);
  return run;
}

void StrategyExtended::prepare_before_runs(std::weak_ptr<Preparation> preparation) {
  const MutexLock lock(preparations_mutex_);
  std::erase_if(preparations_, [](const auto& each) { return each.expired(); });
  preparations_.push_back(std::move(preparation));
}

void StrategyExtended::prepare_run(std::uint64_t run_serial) {
  std::vector<std::weak_ptr<Preparation>> all;
  {
    const MutexLock lock(preparations_mutex_);
    all = preparations_;
  }
  try {
    for (const auto& each : all) {
      if (const auto preparation = each.lock()) preparation->prepare_run(run_serial);
    }
  } catch (...) {
    detail::thread_context().failed_replica = world().first();
    throw;
  }
}

void StrategyExtended::run_replicas(FunctionRef<void(ReplicaContext&)> body) {
  if (standing_context() && has_strategy()) {
    throw RuntimeError("strategy.run",
                       "Must not nest the default strategy's run inside of another "
                       "strategy's scope or run; leave that first");
  }
  detail::require_cross_replica(*this, "strategy.run",
                                "strategy.run() can't be called inside strategy.run()");
  if (layout().local() > 1) process_.require("strategy.run", name());
  const auto keep = shared_from_this();
  const World::Turn turn = is_in_own_run() ? World::Turn() : world().take_turn_for_run();
  const TeamInUse in_use(*this);
  Team& team = in_use.team;
  const std::uint64_t run = begin_run();
  const std::uint64_t serial = serial_.fetch_add(1, std::memory_order_relaxed) + 1;
  std::optional<detail::CallerState> caller;
  if (layout().local() > 1) caller.emplace();
  detail::SharedInRun shared;
  const detail::CallerContext context(shared);
  auto in_replica = [&](int i) {
    std::optional<detail::CallerState::Guard> state;
    if (i > 0) state.emplace(*caller);
    std::optional<detail::CallersOwnState> own_state;
    if (i == 0) own_state.emplace();
    std::optional<IntraOpThreads> threads;
    if (settings_.intra_op_threads > 0) threads.emplace(settings_.intra_op_threads);
    ReplicaContext& replica = *team.replicas[i];
    const ReplicaContext::Running running(replica, team.crew, run, serial);
    const detail::CallerContext::Guard inherited(context);
    const detail::ModeGuard mode(*this, &replica);
    const detail::ReplicaRandom random;
    try {
      body(replica);
      if (replica.attachment()) replica.attachment()->end_run();
    } catch (const collectives::Stopped&) {
      if (replica.attachment()) replica.attachment()->fail_run();
      throw;
    } catch (...) {
      if (replica.attachment()) replica.attachment()->fail_run();
      world().fail(replica.replica_id_in_sync_group(), std::current_exception());
      throw;
    }
  };
  try {
    prepare_run(serial);
    team.crew.run(in_replica, detail::thread_context().failed_replica);
  } catch (...) {  // also what no replica has seen, or has let out
    failed_runs_.add(serial);
    world().fail(detail::thread_context().failed_replica, std::current_exception());
    throw;
  }
}

// Reductions.

void StrategyExtended::check_one_algorithm(const char* where,
                                           std::span<const at::Tensor> values) const {
  if (variable_kind() != VariableKind::MIRRORED) return;
  const auto is_int32 = [](const at::Tensor& value) {
    return value.defined() && value.scalar_type() == at::kInt;
  };
  const auto count = std::count_if(values.begin(), values.end(), is_int32);
  if (count == 0 || count == static_cast<std::ptrdiff_t>(values.size())) return;
  throw ValueError(where,
                   "the values must be either all on the host or all on the compute devices: "
                   "int32 is reduced on the host, so reduce it in a batch of its own");
}

StrategyExtended::Components StrategyExtended::components_for_reduction(ReduceOp op,
                                                                        const Reducible& value,
                                                                        const char* where) const {
  const int n = num_replicas_in_sync();
  if (value.kind == Reducible::PER_REPLICA) {
    if (static_cast<int>(value.values.size()) != layout().local()) {
      throw ValueError(
          where, cat("the PerReplica has ", value.values.size(),
                     " components: expected one for each of ", layout().local(), " replicas"));
    }
    auto components = whole(value.values);
    const bool adds = !cross_device_ops().accumulation();
    if (adds) collectives::check_reducible(where, components, layout().first());
    return {std::move(components)};
  }
  const at::Tensor first = whole(value.values[0]);
  const bool is_one_for_all = n > 1;
  if (n == 1 || op == ReduceOp::MEAN) return {{first}, is_one_for_all};
  if (value.kind == Reducible::SINGLE && all_zero(first)) return {{first}, is_one_for_all};
  throw ValueError(where, cat("a value that is ",
                              value.kind == Reducible::SINGLE ? "not distributed" : "mirrored",
                              " cannot be reduced with the given reduce op SUM over ", n,
                              " replicas: use MEAN, or give one value per replica (PerReplica)"));
}

/// What fails in a call of all workers on one of them fails on all.
template <class Part>
auto StrategyExtended::with_workers(const char* where, Part&& part,
                                    const CommunicationOptions& options) const {
  const World::Turn turn = take_turn();
  WorldLane& lane = world().replicas_lane();
  return lane.take_part(where, [&] {
    options.validate();
    const WaitLimits limits = communication().merged_with(options).wait_limits();
    const WorldLane::OwnLimits own_limits(lane, limits);
    return part();
  });
}

/// Here if all replicas are, else with the other workers.
std::vector<at::Tensor> StrategyExtended::reduce_components(
    ReduceOp op, const std::vector<at::Tensor>& components, std::span<const Device> destinations,
    const char* where) const {
  const CrossDeviceOps& ops = cross_device_ops();
  if (world().holds_root()) return ops.reduce(op, components, destinations);
  const bool adds = !ops.accumulation() && !components[0].is_sparse();
  if (adds) collectives::check_addable(where, components[0].scalar_type());
  WorldLane& lane = world().replicas_lane();
  const auto own = in_one_layout_of_world(lane, where, components);
  const at::Tensor result = reduce_over_world(lane, where, op, own, ops.accumulation());
  return ops.broadcast(result, destinations);
}

at::Tensor StrategyExtended::of_first_replica(const at::Tensor& own,
                                              const std::string& call) const {
  const World::Turn turn = take_turn();
  return of_chief(world().replicas_lane(), call, own);
}

Device StrategyExtended::default_destination() const {
  const auto& devices = detail::thread_context().devices;
  return devices.empty() ? layout().device(0) : devices.back();
}

at::Tensor StrategyExtended::reduce_leaf(ReduceOp op, const Reducible& value,
                                         const Axis& axis) const {
  return with_workers("strategy.reduce", [&] {
    check_defined("strategy.reduce", value, layout().first());
    return axis.none() ? reduce_over_replicas(op, value) : reduce_along(op, value, axis);
  });
}

at::Tensor StrategyExtended::reduce_over_replicas(ReduceOp op, const Reducible& value) const {
  const auto [components, is_one_for_all] = components_for_reduction(op, value, "strategy.reduce");
  if (is_one_for_all) return components[0].detach();
  const std::vector<Device> destination{default_destination()};
  return reduce_components(op, components, destination, "strategy.reduce")[0];
}

at::Tensor StrategyExtended::reduce_along(ReduceOp op, const Reducible& value,
                                          const Axis& axis) const {
  const std::vector<Device> destination{default_destination()};
  std::vector<at::Tensor> sums, counts;
  for (int i = 0; i < layout().local(); ++i) {
    const at::Tensor component = whole(value.values[value.kind == Reducible::PER_REPLICA ? i : 0]);
    check_axes(component, axis);
    sums.push_back(sum_along(component.detach(), axis));
    counts.push_back(at::full({}, count_along(component, axis), at::kLong));
  }
  at::Tensor sum = reduce_components(ReduceOp::SUM, sums, destination, "strategy.reduce")[0];
  if (op == ReduceOp::SUM) return sum;
  const at::Tensor count =
      reduce_components(ReduceOp::SUM, counts, destination, "strategy.reduce")[0];
  const auto dtype = collectives::quotient_dtype(sum.scalar_type());
  return sum.to(dtype).div(count.to(dtype));
}

at::Tensor StrategyExtended::gather_leaf(const Reducible& value, std::int64_t axis) const {
  return with_workers("strategy.gather", [&] {
    check_defined("strategy.gather", value, layout().first());
    if (value.kind == Reducible::SINGLE) return value.values[0];
    if (require_static_shapes()) check_same_shapes(name(), value.values);
    const std::string call = cat("strategy.gather(axis ", axis, ')');
    WorldLane& lane = world().replicas_lane();
    const auto own = in_one_layout_of_world(lane, call, whole(value.values));
    const auto components = all_of_world(lane, call, own);
    return collectives::gather_tensors("strategy.gather", components, axis)
        .to(default_destination().torch_device());
  });
}

Mirrored<at::Tensor> StrategyExtended::reduce_leaf_to(ReduceOp op, const Reducible& value,
                                                      const Destinations& destinations,
                                                      const CommunicationOptions& options,
                                                      const char* where) const {
  const auto reduce = [&] {
    check_defined(where, value, layout().first());
    const auto [components, is_one_for_all] = components_for_reduction(op, value, where);
    auto results = is_one_for_all
                       ? cross_device_ops().broadcast(components[0], *destinations.devices())
                       : reduce_components(op, components, *destinations.devices(), where);
    return Mirrored<at::Tensor>(std::move(results), destinations.devices());
  };
  return with_workers(where, reduce, options);
}

std::vector<Mirrored<at::Tensor>> StrategyExtended::batch_reduce_leaves(
    ReduceOp op, const std::vector<Reducible>& values,
    const std::vector<Destinations>& destinations, const CommunicationOptions& options) const {
  const auto reduce = [&] { return batch_reduce(op, values, destinations); };
  return with_workers("extended.batch_reduce_to", reduce, options);
}

std::vector<Mirrored<at::Tensor>> StrategyExtended::batch_reduce(
    ReduceOp op, const std::vector<Reducible>& values,
    const std::vector<Destinations>& destinations) const {
  if (values.empty()) {
    if (variable_kind() == VariableKind::PLAIN) return {};
    throw ValueError("extended.batch_reduce_to", "no values: expected at least one pair");
  }
  const DeviceList& devices = layout().replica_devices();
  std::vector<at::Tensor> firsts;
  for (const Reducible& value : values) {
    check_defined("extended.batch_reduce_to", value, layout().first());
    firsts.push_back(value.values[0]);
  }
  check_one_algorithm("extended.batch_reduce_to", firsts);
  warn_if_different(destinations);
  std::vector<std::vector<at::Tensor>> components;
  for (const Reducible& value : values) {
    components.push_back(components_for_reduction(op, value, "extended.batch_reduce_to").values);
    // A value that is the same everywhere is its own mean.
    components.back().resize(layout().local(), components.back()[0]);
  }
  std::vector<Mirrored<at::Tensor>> results;
  if (world().holds_root()) {
    for (auto& each : cross_device_ops().batch_reduce(op, components, *devices)) {
      results.emplace_back(std::move(each), devices);
    }
    return results;
  }
  for (const auto& each : components) {
    results.emplace_back(reduce_components(op, each, *devices, "extended.batch_reduce_to"),
                         devices);
  }
  return results;
}

Mirrored<at::Tensor> StrategyExtended::broadcast_tensor(const at::Tensor& tensor,
                                                        const Destinations& destinations) const {
  detail::require_cross_replica(*this, "extended.broadcast_to");
  const at::Tensor chiefs = with_workers("extended.broadcast_to", [&] {
    if (!tensor.defined()) throw ValueError("extended.broadcast_to", "the tensor is undefined");
    return of_first_replica(whole(tensor), "extended.broadcast_to");
  });
  return Mirrored<at::Tensor>(cross_device_ops().broadcast(chiefs, *destinations.devices()),
                              destinations.devices());
}

}  // namespace cohort
