#include "cohort/optim/replicated_module.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/collectives/tensor_reduction.h"
#include "cohort/optim/module_parameters.h"
#include "cohort/optim/same_bits.h"
#include "cohort/spmd/placement.h"

namespace cohort {
namespace {

/// Puts LibTorch's default generator back where it was: the modules of further replicas draw
/// initial values that nobody uses, and later random numbers must not depend on how many.
class UnusedRandomNumbers {
 public:
  UnusedRandomNumbers()
      : generator_(at::globalContext().defaultGenerator(at::kCPU)),
        state_(generator_.get_state()) {}
  ~UnusedRandomNumbers() { generator_.set_state(state_); }
  UnusedRandomNumbers(const UnusedRandomNumbers&) = delete;
  UnusedRandomNumbers& operator=(const UnusedRandomNumbers&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

/// Further replicas need tensors of their own, which fit to those of the first.
template <class Dict>
void check_fits(const Dict& first, const Dict& other) {
  bool same = first.size() == other.size();
  for (std::size_t i = 0; same && i < first.size(); ++i) {
    same = first[i].key() == other[i].key() && first[i].value().sizes() == other[i].value().sizes();
  }
  for (std::size_t i = 0; same && i < first.size(); ++i) {
    if (!first[i].value().is_same(other[i].value())) continue;
    throw ValueError("Model", cat("all replicas would share ", first[i].key(),
                                  ", which was made once: give a factory that makes a new module, "
                                  "with new modules inside, on each call"));
  }
  if (same) return;
  throw ValueError("Model", cat("the factory gave a module with other parameters or buffers than "
                                "the first one: expected ",
                                first.size(),
                                " tensors of the same "
                                "names and shapes; make the same module on each call"));
}

void check_entry(const StateDict& state, const std::string& name, const at::Tensor& own) {
  const auto entry = state.find(name);
  if (entry == state.end() || !entry->second.defined()) {
    throw ValueError("Model.load_state_dict",
                     cat("\"", name, "\" is missing: expected ", collectives::describe(own)));
  }
  if (entry->second.sizes() == own.sizes()) return;
  throw ValueError("Model.load_state_dict",
                   cat("\"", name, "\" has another shape: expected ", collectives::describe(own),
                       ", got ", collectives::describe(entry->second)));
}

}  // namespace

ReplicatedModule::ReplicatedModule(std::shared_ptr<torch::nn::Module> first, const Factory& make,
                                   const ModelOptions& options)
    : strategy_(detail::current_strategy().shared_from_this()), options_(options) {
  if (!first) throw ValueError("Model", "the module is empty: give one that was constructed");
  if (replica_context_or_null() && has_strategy()) {
    throw RuntimeError("Model", "made inside strategy.run(): make it in the strategy's scope");
  }
  const ReplicaLayout& layout = strategy_->layout();
  const bool mirrored = strategy_->variable_kind() == StrategyExtended::VariableKind::MIRRORED;
  copies_ = mirrored ? layout.copies() : 1;
  apply_memory_format(*first);
  first->to(layout.device(0).torch_device());
  replicas_.push_back(std::move(first));
  const UnusedRandomNumbers unused;
  for (int r = 1; r < layout.local(); ++r) {
    replicas_.push_back(make());
    check_fits(replicas_[0]->named_parameters(), replicas_[r]->named_parameters());
    check_fits(replicas_[0]->named_buffers(), replicas_[r]->named_buffers());
    replicas_[r]->train(replicas_[0]->is_training());
    share_parameters(r);
    copy_buffers(r);
  }
  split_parameters();
  if (strategy_->logical_devices_per_replica() > 1) place_gradients();
}

void ReplicatedModule::split_parameters() {
  const auto names = replicas_[0]->named_parameters().keys();
  for (const auto& [name, parts] : find_splits(options_.split_parameters, names)) {
    split_parameter(name, parts);
  }
}

void ReplicatedModule::split_parameter(const std::string& name,
                                       const std::vector<std::int64_t>& parts) {
  const at::Tensor whole = *replicas_[0]->named_parameters().find(name);
  const int devices = strategy_->logical_devices_per_replica();
  std::int64_t product = 1;
  for (const std::int64_t each : parts) product *= std::max<std::int64_t>(each, 0);
  if (static_cast<std::int64_t>(parts.size()) != whole.dim() || product != devices) {
    throw ValueError("Model", cat("parameter ", name, " of sizes ", whole.sizes(),
                                  " can't be split ", at::IntArrayRef(parts),
                                  ": expected a number for each dimension, whose product is the ",
                                  devices, " logical devices of a replica"));
  }
  if (devices == 1) return;
  for (int r = 0; r < replicas(); ++r) {
    const int copy = copy_of(r);
    const int owner = owner_of(copy);
    const at::Tensor own =
        owner == r ? spmd::split(whole.detach(), spmd::mesh_of_copy(*strategy_, copy), parts)
                   : replicas_[owner]->named_parameters().find(name)->detach();
    replace_parameter(*replicas_[r], name, own.set_requires_grad(whole.requires_grad()));
  }
}

/// An operation of a parameter with a tensor that is spread over logical devices gives a gradient
/// that is spread as well; an optimizer wants it where the parameter is.
void ReplicatedModule::place_gradients() {
  for (const auto& module : replicas_) {
    for (const at::Tensor& parameter : module->parameters()) {
      const bool trainable = parameter.requires_grad();
      parameter.set_requires_grad(true);  // only then it takes a hook
      if (spmd::is_sharded(parameter)) {
        const auto layout = spmd::impl(parameter)->layout();
        const auto mesh = spmd::impl(parameter)->mesh();
        parameter.register_hook([layout, mesh](const at::Tensor& gradient) {
          return spmd::redistribute(gradient, mesh, layout);
        });
      } else {
        parameter.register_hook([](const at::Tensor& gradient) { return spmd::full(gradient); });
      }
      parameter.set_requires_grad(trainable);
    }
  }
}

int ReplicatedModule::index_of_current() const {
  const ReplicaContext* replica = replica_context_or_null();
  if (!replica || &replica->extended() != strategy_.get()) return 0;
  return replica->local_id();
}

void ReplicatedModule::apply_memory_format(torch::nn::Module& module) const {
  if (!options_.channels_last) return;
  for (auto& parameter : module.parameters()) {
    if (parameter.dim() != 4) continue;
    parameter.set_data(parameter.data().contiguous(at::MemoryFormat::ChannelsLast));
  }
}

/// The first replica of a device has a copy, the others of the device the same storage.
void ReplicatedModule::share_parameters(int replica) {
  const int owner = owner_of(copy_of(replica));
  const auto device = strategy_->layout().device(replica).torch_device();
  const auto source = replicas_[owner == replica ? 0 : owner]->parameters();
  const auto target = replicas_[replica]->parameters();
  for (std::size_t i = 0; i < target.size(); ++i) {
    const at::Tensor data = source[i].data();
    const bool own_copy = owner == replica;
    target[i].set_data(own_copy ? data.to(device, false, /*copy=*/true) : data);
    target[i].set_requires_grad(source[i].requires_grad());
  }
}

void ReplicatedModule::copy_buffers(int replica) {
  const auto device = strategy_->layout().device(replica).torch_device();
  const auto source = replicas_[0]->buffers();
  const auto target = replicas_[replica]->buffers();
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i].set_data(source[i].data().to(device, false, /*copy=*/true));
  }
}

at::Tensor ReplicatedModule::aggregated_buffer(const std::string& name) const {
  std::vector<at::Tensor> values;
  values.reserve(replicas_.size());
  for (const auto& replica : replicas_) values.push_back(replica->named_buffers()[name].detach());
  const bool averaged = values[0].is_floating_point() &&
                        !std::all_of(values.begin(), values.end(), [&](const at::Tensor& value) {
                          return same_bits(value, values[0]);
                        });
  return averaged ? collectives::reduce_tensors(ReduceOp::MEAN, values) : values[0].clone();
}

StateDict ReplicatedModule::state_dict() const {
  require_outside_of_replicas("Model.state_dict");
  StateDict state;
  for (const auto& entry : replicas_[0]->named_parameters()) {
    state[entry.key()] = spmd::full(entry.value().detach()).clone();
  }
  for (const auto& entry : replicas_[0]->named_buffers()) {
    state[entry.key()] = aggregated_buffer(entry.key());
  }
  return state;
}

void ReplicatedModule::require_outside_of_replicas(const char* where) const {
  const ReplicaContext* replica = replica_context_or_null();
  if (!replica || &replica->extended() != strategy_.get() || !replica->in_run()) return;
  throw RuntimeError(where,
                     "called inside strategy.run(), but it concerns all replicas at once: "
                     "call it outside");
}

void ReplicatedModule::load_state_dict(const StateDict& state) {
  require_outside_of_replicas("Model.load_state_dict");
  const at::NoGradGuard no_grad;
  const auto own = state_dict();
  for (const auto& [name, tensor] : own) check_entry(state, name, tensor);
  for (const auto& [name, tensor] : state) {
    if (own.contains(name)) continue;
    throw ValueError("Model.load_state_dict", cat("\"", name, "\" is not in the model"));
  }
  for (int r = 0; r < replicas(); ++r) {
    if (r == owner_of(copy_of(r))) {
      for (auto& entry : replicas_[r]->named_parameters()) {
        entry.value().data().copy_(state.at(entry.key()));
      }
    }
    for (auto& entry : replicas_[r]->named_buffers()) {
      entry.value().data().copy_(state.at(entry.key()));
    }
  }
}

void ReplicatedModule::train(bool on) {
  const ReplicaContext* replica = replica_context_or_null();
  if (replica && &replica->extended() == strategy_.get()) return current().train(on);
  for (const auto& each : replicas_) each->train(on);
}

void ReplicatedModule::set_trainable(const std::string& prefix, bool trainable) {
  require_outside_of_replicas(trainable ? "Model.unfreeze" : "Model.freeze");
  bool any = false;
  for (const auto& replica : replicas_) {
    for (auto& entry : replica->named_parameters()) {
      if (entry.key().rfind(prefix, 0) != 0) continue;
      entry.value().set_requires_grad(trainable);
      any = true;
    }
  }
  if (!any) throw ValueError("Model", cat("no parameter's name begins with \"", prefix, '"'));
}

void ReplicatedModule::hand_to_optimizer(std::function<void()> stop) {
  if (stop_optimizer_) stop_optimizer_();
  stop_optimizer_ = std::move(stop);
}

ReplicatedModule::AggregatedBuffers::AggregatedBuffers(const ReplicatedModule& model)
    : model_(model) {
  if (model.replicas() == 1) return;
  for (auto& entry : model.replicas_[0]->named_buffers()) {
    at::Tensor& buffer = entry.value();
    const at::Tensor own = buffer.data();
    const at::Tensor aggregated = model.aggregated_buffer(entry.key());
    entries_.push_back({entry.key(), buffer, own, aggregated});
    buffer.set_data(aggregated.clone());
  }
}

ReplicatedModule::AggregatedBuffers::~AggregatedBuffers() {
  const at::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    const at::Tensor value = entry.buffer.data();
    entry.buffer.set_data(entry.own);
    if (same_bits(value, entry.aggregated)) continue;
    for (const auto& replica : model_.replicas_) {
      replica->named_buffers()[entry.name].data().copy_(value);
    }
  }
}

}  // namespace cohort
