#include "cohort/variables/update.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>

#include "cohort/base/error.h"
#include "cohort/base/whole_tensor.h"
#include "cohort/collectives/world_lane.h"
#include "cohort/variables/creation.h"
#include "cohort/variables/reading.h"

namespace cohort {
namespace detail {
namespace {

void check_owner(const StrategyExtended& strategy, const Variable& variable, const char* where) {
  if (strategy.variable_created_in_scope(variable)) return;
  throw ValueError(where, cat("`", where,
                              "` must only be passed a variable created in this "
                              "tf.distribute.Strategy.scope(): expected one of the ",
                              strategy.name(), ", got ", variable.state()->describe(), " of ",
                              variable.owner() ? variable.owner()->name() : "no strategy"));
}

}  // namespace

EnterCrossReplica::EnterCrossReplica(StrategyExtended& strategy) {
  const bool is_current = !thread_context().modes.empty();
  if (!is_current && !strategy.standing_context()) mode_.emplace(strategy, nullptr);
}

void check_update(const StrategyExtended& strategy, const Variable& variable) {
  require_cross_replica(strategy, "extended.update");
  check_owner(strategy, variable, "extended.update");
  check_not_lost(*variable.state(), "extended.update");
}

Placement non_slot_placement(const StrategyExtended& strategy,
                             const std::vector<Device>& colocate_with) {
  constexpr const char* kWhere = "extended.update_non_slot";
  const std::optional<Device> host = strategy.non_slot_host();
  if (host && colocate_with == std::vector{*host}) return Placement::single(*host);
  const bool mirrored =
      !host && strategy.variable_kind() == StrategyExtended::VariableKind::MIRRORED;
  if (mirrored && colocate_with == strategy.layout().devices()) {
    return Placement::by(strategy, Synchronization::ON_WRITE);
  }
  if (!host && !mirrored && colocate_with.size() == 1) return Placement::single(colocate_with[0]);
  throw ValueError(kWhere, cat("colocate_with are not this strategy's devices: expected ",
                               mirrored ? strategy.layout().copies() : 1, " of them, got ",
                               colocate_with.size(), "; pass what non_slot_devices() returns"));
}

ReplicaContext* running_replica(const StrategyExtended& strategy) {
  const auto& modes = thread_context().modes;
  if (modes.empty() || modes.back().strategy != &strategy) return nullptr;
  return modes.back().replica;
}

void throw_per_replica_argument(const char* where) {
  throw TypeError(where,
                  "Expected value to be mirrored across replicas: got a PerReplica argument, which "
                  "would make the copies of the variable differ; reduce it first with "
                  "extended.reduce_to()");
}

void throw_replicas_differ(const char* where, int first, std::size_t replica) {
  throw TypeError(where, cat("Expected value to be mirrored across replicas: an argument of "
                             "replica ",
                             first + replica, " differs from replica ", first,
                             "'s; combine them first with replica_context.all_reduce()"));
}

void check_same_on_replicas(const char* where, int first, std::span<const at::Tensor> values) {
  const auto same = [](const at::Tensor& a, const at::Tensor& b) {
    if (a.is_same(b)) return true;
    return a.defined() && b.defined() && a.dtype() == b.dtype() && at::equal(a, b);
  };
  for (std::size_t r = 1; r < values.size(); ++r) {
    if (!same(values[r], values[0])) throw_replicas_differ(where, first, r);
  }
}

void add_to_digest(Hash& digest, const at::Tensor& value) {
  if (!value.defined()) return digest.add("undefined");
  const at::Tensor dense = whole(value.is_sparse() ? value.to_dense() : value).detach();
  at::Tensor read = as_read(dense.cpu());
  if (read.is_floating_point() || read.is_complex()) read = read + 0;  // -0.0 equals 0.0
  digest.add(c10::toString(read.scalar_type()));
  for (const std::int64_t size : read.sizes()) digest.add_number(size);
  digest.add(read.data_ptr(), read.nbytes());
}

void check_same_on_workers(StrategyExtended& strategy, const char* where,
                           FunctionRef<std::uint64_t()> digest_of_arguments) {
  World& world = strategy.world();
  if (world.holds_root()) return;
  const std::uint64_t digest = digest_of_arguments();
  const auto all = world.replicas_lane().all_gather(where, std::as_bytes(std::span(&digest, 1)));
  for (int w = 1; w < world.workers(); ++w) {
    if (all[w] == all[0]) continue;
    throw TypeError(where, cat("Expected value to be mirrored across replicas: an argument on ",
                               world.name(w), " differs from that on ", world.name(0),
                               "; combine them first with replica_context.all_reduce()"));
  }
}

}  // namespace detail

std::vector<Device> StrategyExtended::non_slot_devices(
    const std::vector<Variable>& variables) const {
  if (const auto host = non_slot_host()) return {*host};
  if (variable_kind() == VariableKind::MIRRORED) return layout().devices();
  const auto by_name = [](const Variable& a, const Variable& b) { return a.name() < b.name(); };
  const auto first = std::min_element(variables.begin(), variables.end(), by_name);
  if (first == variables.end()) {
    throw ValueError("extended.non_slot_devices", "no variables: expected at least one");
  }
  return {(*first->devices())[0]};
}

VariableColocation StrategyExtended::colocate_vars_with(const Variable& variable) {
  detail::require_inside(*this, "extended.colocate_vars_with");
  detail::check_owner(*this, variable, "colocate_vars_with");
  return {};
}

VariableColocation::VariableColocation() {
  detail::thread_context().guards.push_back({this, "Variable creator"});
}
VariableColocation::~VariableColocation() {
  detail::close_guard_or_log(this, "colocate_vars_with");
}

at::Tensor StrategyExtended::read_var(const Variable& variable) const {
  const detail::VariableState& state = *variable.state();
  const detail::Access access = detail::read_access(state, "extended.read_var");
  if (!state.on_read()) return variable;
  const bool in_own_replica = access.replica && &access.replica->extended() == state.owner.get();
  if (!in_own_replica) return detail::aggregate(state);
  const at::NoGradGuard no_grad;
  const VariableSyncOnReadContext aggregated;
  return variable;
}

std::optional<Variable> StrategyExtended::value_container(const at::Tensor& value) const {
  auto state = detail::variable_of(value);
  if (!state || state->kind == VariableKind::PLAIN) return std::nullopt;
  return Variable(std::move(state));
}

bool StrategyExtended::variable_created_in_scope(const Variable& variable) const {
  const bool is_default = const_cast<StrategyExtended*>(this)->standing_context() != nullptr;
  return variable.owner() == (is_default ? nullptr : this);
}

}  // namespace cohort
