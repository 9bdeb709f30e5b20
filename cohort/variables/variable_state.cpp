#include "cohort/variables/variable_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "cohort/base/error.h"
#include "cohort/distribute/context.h"

namespace cohort::detail {
namespace {

/// Put around the memory of a copy: its own deleter is how a tensor's memory is recognised.
struct CopyTag {
  at::DataPtr memory;
  std::weak_ptr<VariableState> variable;
};

void delete_tag(void* tag) { delete static_cast<CopyTag*>(tag); }

CopyTag* tag_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  return storage->data_ptr().cast_context<CopyTag>(&delete_tag);
}

void set_tag(const at::Tensor& copy, const std::shared_ptr<VariableState>& variable) {
  if (CopyTag* tag = tag_of(copy)) {
    tag->variable = variable;
    return;
  }
  auto* storage = copy.storage().unsafeGetStorageImpl();
  const c10::Device device = storage->device();
  auto tag = std::make_unique<CopyTag>();
  tag->variable = variable;
  tag->memory = storage->set_data_ptr(at::DataPtr(nullptr, device));
  void* const data = tag->memory.get();
  storage->set_data_ptr(at::DataPtr(data, tag.release(), &delete_tag, device));
}

DeviceList list_of(std::vector<Device> devices) {
  return std::make_shared<const std::vector<Device>>(std::move(devices));
}

}  // namespace

Placement Placement::single(const Device& device) {
  return {{device}, {0}, {0}, list_of({device})};
}

Placement Placement::by(const StrategyExtended& strategy, Synchronization synchronization) {
  using Kind = StrategyExtended::VariableKind;
  const ReplicaLayout& layout = strategy.layout();
  const std::size_t replicas = layout.local();
  Placement placement;
  if (strategy.variable_kind() != Kind::MIRRORED) {
    placement = single(strategy.parameter_devices()[0]);
    if (strategy.variable_kind() == Kind::AGGREGATING) placement.copy_of.assign(replicas, 0);
    return placement;
  }
  placement.devices = layout.replica_devices();
  if (synchronization == Synchronization::ON_READ) {
    placement.copies = *layout.replica_devices();
    placement.copy_of.resize(replicas);
    std::iota(placement.copy_of.begin(), placement.copy_of.end(), 0);
    placement.first_of = placement.copy_of;
  } else {
    placement.copies = layout.devices();
    placement.copy_of = layout.copy_of_each();
    for (int copy = 0; copy < layout.copies(); ++copy) {
      placement.first_of.push_back(layout.owner_of(copy));
    }
  }
  return placement;
}

std::shared_ptr<VariableState> VariableState::make(Kind kind,
                                                   std::shared_ptr<StrategyExtended> owner,
                                                   const VariableOptions& options,
                                                   Placement placement,
                                                   std::vector<at::Tensor> copies) {
  auto state = std::make_shared<VariableState>();
  state->kind = kind;
  state->owner = std::move(owner);
  state->options = options;
  state->placement = std::move(placement);
  state->copies = std::move(copies);
  const c10::ScalarType dtype = state->dtype();
  state->options.dtype = dtype;
  const bool grad = state->trainable() && (c10::isFloatingType(dtype) || c10::isComplexType(dtype));
  for (const at::Tensor& copy : state->copies) set_tag(copy, state);
  for (const int copy : state->placement.copy_of) {
    state->components.push_back(state->copies[copy].detach().requires_grad_(grad));
  }
  return state;
}

const char* VariableState::kind_name() const {
  switch (kind) {
    case Kind::PLAIN:
      return "Variable";
    case Kind::MIRRORED:
      return on_read() ? "SyncOnReadVariable" : "MirroredVariable";
    case Kind::AGGREGATING:
      return "AggregatingVariable";
  }
  return "";
}

std::string VariableState::describe() const { return cat(kind_name(), " '", name(), "'"); }

void check_not_lost(const VariableState& variable, const char* where) {
  const std::string* why = variable.owner ? variable.owner->variables_lost() : nullptr;
  if (why) throw RuntimeError(where, cat(variable.describe(), " is lost: ", *why));
}

Access access(const VariableState& variable, const char* where) {
  const ThreadContext& context = thread_context();
  check_not_lost(variable, where);
  if (!has_strategy() || !variable.owner) return {};
  const Mode& mode = context.modes.back();
  if (mode.strategy != variable.owner.get()) {
    throw RuntimeError(where,
                       cat("Mixing different tf.distribute.Strategy objects: ", variable.describe(),
                           " belongs to a ", variable.owner->name(), ", got a call while another ",
                           mode.strategy->name(),
                           " is current; make the variable after `auto scope = "
                           "strategy.scope()` of the strategy that uses it, or leave the other's "
                           "scope or run first"));
  }
  if (context.updating) {
    const bool one = variable.components.size() == 1;
    return {Access::UPDATE, one ? 0 : *context.updating, nullptr};
  }
  if (!mode.replica) return {};
  const bool one = variable.components.size() == 1;
  return {Access::REPLICA, one ? 0 : mode.replica->local_id(), mode.replica};
}

Access read_access(const VariableState& variable, const char* where) {
  const auto& modes = thread_context().modes;
  const StrategyExtended* const owner = variable.owner.get();
  if (owner && !modes.empty() && modes.back().strategy != owner && modes.back().replica) {
    const Mode& mode = modes.back();
    if (const auto beside = owner->replica_on_core_of(*mode.strategy, mode.replica->local_id())) {
      check_not_lost(variable, where);
      return {Access::REPLICA, *beside, mode.replica};
    }
  }
  return access(variable, where);
}

std::shared_ptr<VariableState> variable_of(const at::Tensor& tensor) {
  const CopyTag* tag = tag_of(tensor);
  auto variable = tag ? tag->variable.lock() : nullptr;
  if (!variable) return nullptr;
  const auto is_it = [&](const at::Tensor& own) { return own.is_same(tensor); };
  const bool found = std::any_of(variable->components.begin(), variable->components.end(), is_it);
  return found ? variable : nullptr;
}

}  // namespace cohort::detail
