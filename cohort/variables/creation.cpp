#include "cohort/variables/creation.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <span>

#include "cohort/base/error.h"
#include "cohort/base/whole_tensor.h"
#include "cohort/collectives/tensor_reduction.h"
#include "cohort/collectives/world_tensors.h"
#include "cohort/distribute/context.h"
#include "cohort/distribute/strategy.h"
#include "cohort/variables/logical_device.h"
#include "cohort/variables/variable_state.h"

namespace cohort {
namespace detail {
namespace {

using Kind = StrategyExtended::VariableKind;
using Creators = std::span<const std::shared_ptr<const InstalledCreator>>;

// Options.

void check_enumerators(const VariableOptions& options) {
  const auto synchronization = static_cast<int>(options.synchronization);
  if (synchronization < 0 || synchronization > 3) {
    throw ValueError("Variable", cat("Invalid variable synchronization mode: ", synchronization,
                                     " for variable: ", options.name));
  }
  const auto aggregation = static_cast<int>(options.aggregation);
  if (aggregation < 0 || aggregation > 3) {
    throw ValueError("Variable", cat("Invalid variable aggregation mode: ", aggregation,
                                     " for variable: ", options.name));
  }
}

/// The options with everything decided that a strategy of this kind decides.
VariableOptions resolved(VariableOptions options, Kind kind) {
  check_enumerators(options);
  if (kind == Kind::MIRRORED && options.synchronization == Synchronization::NONE) {
    throw ValueError("Variable",
                     cat("`NONE` variable synchronization mode is not supported with copies on "
                         "several devices: expected AUTO, ON_WRITE or ON_READ for variable: ",
                         options.name));
  }
  if (kind == Kind::MIRRORED && options.synchronization == Synchronization::AUTO) {
    options.synchronization = Synchronization::ON_WRITE;
  }
  if (!options.trainable) {
    options.trainable = options.synchronization != Synchronization::ON_READ;
  }
  return options;
}

void check_mean(const VariableOptions& options, c10::ScalarType dtype) {
  const bool has_mean = c10::isFloatingType(dtype) || c10::isComplexType(dtype);
  if (options.aggregation != Aggregation::MEAN || has_mean) return;
  throw ValueError("Variable",
                   cat("creating a distributed variable with aggregation=MEAN and a non-floating "
                       "dtype is not supported: got ",
                       c10::toString(dtype), " for variable: ", options.name,
                       "; use SUM, ONLY_FIRST_REPLICA or a floating dtype"));
}

// Copies.

at::Tensor first_copy(const VariableRequest& request, std::optional<Device> device) {
  const at::NoGradGuard no_grad;
  const at::Tensor initial = whole(request.initial_value());
  if (!initial.defined() || initial.is_sparse()) {
    throw ValueError("Variable",
                     cat("the initial value of '", request.options.name, "' is ",
                         initial.defined() ? "sparse" : "undefined", ": expected a dense tensor"));
  }
  const auto dtype = request.options.dtype.value_or(initial.scalar_type());
  const c10::Device where = device ? device->torch_device() : initial.device();
  return initial.detach().to(where, dtype, /*non_blocking=*/false, /*copy=*/true).contiguous();
}

Device device_holding(const at::Tensor& tensor) {
  const c10::Device device = tensor.device();
  return Device(device.type(), device.has_index() ? device.index() : 0);
}

/// A variable with one copy and no owner, on `device` if one is given.
Variable make_plain(const VariableRequest& request, std::optional<Device> device) {
  const VariableOptions options = resolved(request.options, Kind::PLAIN);
  const at::Tensor copy = first_copy(request, device);
  return Variable(VariableState::make(Kind::PLAIN, nullptr, options,
                                      Placement::single(device ? *device : device_holding(copy)),
                                      {copy}));
}

Variable call_through(Creators creators, VariableRequest request, const NextCreator& last) {
  if (creators.empty()) return last(std::move(request));
  const auto rest = creators.first(creators.size() - 1);
  const NextCreator next = [&](VariableRequest inner) {
    return call_through(rest, std::move(inner), last);
  };
  return creators.back()->creator(next, std::move(request));
}

/// Hooks may make what they like, as long as they make it for every copy.
void check_like_first(const std::vector<at::Tensor>& copies, const std::string& name) {
  const at::Tensor &first = copies.front(), &last = copies.back();
  if (last.sizes() == first.sizes() && last.dtype() == first.dtype()) return;
  throw ValueError(
      "VariableCreatorScope",
      cat("a hook made copies of '", name, "' that differ: expected ", collectives::describe(first),
          " as the first, got ", collectives::describe(last)));
}

/// The memory of each copy. Hooks around the scope make each one, as a variable of its own; on all
/// workers they start with the chief's value.
std::vector<at::Tensor> make_copies(const VariableRequest& request, const Placement& placement,
                                    const StrategyExtended& strategy, Creators outside) {
  std::vector<at::Tensor> copies;
  const auto make_copy = [&](std::size_t i, VariableRequest component) {
    const Variable made = call_through(
        outside, std::move(component),
        [&](const VariableRequest& plain) { return make_plain(plain, placement.copies[i]); });
    copies.push_back(made.state()->copies[0]);
    check_like_first(copies, request.options.name);
  };
  {
    const std::string call = cat("Variable ", request.options.name);
    const World::Turn turn = strategy.take_turn();
    WorldLane& lane = strategy.world().replicas_lane();
    lane.take_part(call, [&] {
      make_copy(0, request);
      broadcast_over_world(lane, call, copies);
    });
  }
  for (std::size_t i = 1; i < placement.copies.size(); ++i) {
    VariableRequest component = request;
    component.initial_value = [&] { return copies[0]; };
    component.options.name += cat("/replica_", placement.first_of[i]);
    make_copy(i, std::move(component));
  }
  return copies;
}

Variable make_distributed(VariableRequest request, StrategyExtended& strategy, Creators outside) {
  if (&current_strategy() != &strategy) {
    throw RuntimeError(
        "Variable", cat("Mixing different tf.distribute.Strategy objects: variable '",
                        request.options.name, "' belongs to a ", strategy.name(),
                        ", got a call while another ", current_strategy().name(),
                        " is current; make the variable after `auto scope = strategy.scope()` of "
                        "the strategy that uses it"));
  }
  const Kind kind = strategy.variable_kind();
  request.options = resolved(std::move(request.options), kind);
  Placement placement = Placement::by(strategy, request.options.synchronization);
  if (kind == Kind::MIRRORED && request.options.dtype) {
    check_mean(request.options, *request.options.dtype);
  }
  auto copies = make_copies(request, placement, strategy, outside);
  if (kind == Kind::MIRRORED) check_mean(request.options, copies[0].scalar_type());
  check_logical_split(request.options, copies[0].sizes(), strategy);
  return Variable(VariableState::make(kind, strategy.shared_from_this(), request.options,
                                      std::move(placement), std::move(copies)));
}

/// The hooks of a thread in three rings: outside of the strategy's scope, inside of it, and inside
/// of its replicas.
struct Rings {
  std::vector<std::shared_ptr<const InstalledCreator>> outside, scope, replica;

  explicit Rings(const StrategyExtended* strategy) {
    for (const auto& creator : thread_context().creators) {
      auto& ring = creator->strategy != strategy ? outside : creator->in_replica ? replica : scope;
      ring.push_back(creator);
    }
  }
};

Variable create_in(StrategyExtended& strategy, VariableRequest request) {
  place_on_logical_device(request.options, strategy);
  if (thread_context().default_scopes > 0) {
    throw RuntimeError("Variable", cat("Mixing different tf.distribute.Strategy objects: the scope "
                                       "of the default strategy is open around that of the ",
                                       strategy.name(), "; leave it first"));
  }
  const Rings rings(&strategy);
  const auto in_scope = [&](VariableRequest whole) {
    return call_through(rings.scope, std::move(whole), [&](VariableRequest last) {
      return make_distributed(std::move(last), strategy, rings.outside);
    });
  };
  return call_through(rings.replica, std::move(request), [&](VariableRequest whole) {
    ReplicaContext* replica = replica_context_or_null();
    if (!replica || !replica->in_run()) return in_scope(std::move(whole));
    const std::string name = whole.options.name;
    return share_in_run(*replica, name, [&] { return in_scope(std::move(whole)); });
  });
}

}  // namespace

Variable create_variable(VariableRequest request) {
  if (request.options.name.empty()) request.options.name = "Variable";
  if (has_strategy()) return create_in(current_strategy(), std::move(request));
  const auto& context = thread_context();
  const auto creators = context.creators;  // a hook may install others
  std::optional<Device> device;
  if (!context.devices.empty()) device = context.devices.back();
  return call_through(creators, std::move(request),
                      [&](const VariableRequest& plain) { return make_plain(plain, device); });
}

}  // namespace detail

Variable::Variable(std::function<at::Tensor()> initial_value, VariableOptions options)
    : Variable(detail::create_variable({std::move(initial_value), std::move(options)})) {}

Variable::Variable(const at::Tensor& initial_value, VariableOptions options)
    : Variable([initial_value] { return initial_value; }, std::move(options)) {}

Variable Variable::deep_copy() const {
  const detail::Access access = detail::access(*state_, "variable.deep_copy");
  const auto copy = [&] {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> copies;
    for (const at::Tensor& each : state_->copies) copies.push_back(each.clone());
    return Variable(detail::VariableState::make(state_->kind, state_->owner, state_->options,
                                                state_->placement, std::move(copies)));
  };
  const bool shared = access.where == detail::Access::REPLICA && access.replica->in_run();
  return shared ? detail::share_in_run(*access.replica, name(), copy) : copy();
}

}  // namespace cohort
