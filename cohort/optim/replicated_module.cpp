#include "cohort/optim/replicated_module.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "cohort/base/error.h"
#include "cohort/collectives/tensor_reduction.h"
#include "cohort/collectives/world_tensors.h"
#include "cohort/distribute/replica_random.h"
#include "cohort/optim/model_copies.h"
#include "cohort/optim/model_update.h"
#include "cohort/optim/module_parameters.h"
#include "cohort/optim/module_structure.h"
#include "cohort/optim/same_bits.h"
#include "cohort/spmd/construction.h"
#include "cohort/spmd/placement.h"

namespace cohort {
namespace {

/// Puts the thread's generator back where it was: the modules of further replicas draw initial
/// values that nobody uses, and later random numbers must not depend on how many.
class UnusedRandomNumbers {
 public:
  UnusedRandomNumbers() : generator_(detail::thread_generator()), state_(generator_.get_state()) {}
  ~UnusedRandomNumbers() { generator_.set_state(state_); }
  UnusedRandomNumbers(const UnusedRandomNumbers&) = delete;
  UnusedRandomNumbers& operator=(const UnusedRandomNumbers&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

/// LibTorch lets nobody replace a buffer.
void check_buffers(const torch::nn::Module& module) {
  for (const auto& entry : module.named_buffers()) {
    if (!spmd::is_sharded(entry.value())) continue;
    throw ValueError("Model",
                     cat("the buffer ", entry.key(), ", ", spmd::layout_of(entry.value()),
                         ", was made in parts, but a buffer must be whole: make it while a "
                         "cohort::spmd::MakeInParts(nullptr) lives"));
  }
}

/// A tensor of its own, over the same storage.
at::Tensor as_leaf(const at::Tensor& data, bool requires_grad) {
  return data.detach().set_requires_grad(requires_grad);
}

/// Which ones have come before under another name: weights that are tied.
std::vector<bool> repeated(const std::vector<at::Tensor>& parameters) {
  std::vector<bool> result;
  std::set<const c10::TensorImpl*> seen;
  for (const at::Tensor& each : parameters) {
    result.push_back(!seen.insert(each.unsafeGetTensorImpl()).second);
  }
  return result;
}

/// The memory that parameters have, part by part for those that are split.
std::vector<at::Tensor> whole_tiles(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> tiles;
  for (const at::Tensor& parameter : parameters) {
    if (spmd::is_sharded(parameter)) {
      const auto& own = spmd::impl(parameter)->tiles();
      tiles.insert(tiles.end(), own.begin(), own.end());
    } else {
      tiles.push_back(parameter.data());
    }
  }
  return tiles;
}

bool holds(const torch::nn::Module& module, const std::string& name, const at::Tensor& parameter) {
  return module.named_parameters()[name].is_same(parameter);
}

/// Replaces a parameter under its own name, and wherever else the module holds it.
void replace_all(torch::nn::Module& module, const std::string& name, const at::Tensor& own,
                 const at::Tensor& value) {
  replace_parameter(module, name, value);
  if (own.use_count() > 1) replace_tied(module, own, value);
}

void check_entry(const StateDict& state, const std::string& name, const at::Tensor& own) {
  const auto entry = state.find(name);
  if (entry == state.end() || !entry->second.defined()) {
    throw ValueError("Model.load_state_dict",
                     cat("\"", name, "\" is missing: expected ", collectives::describe(own)));
  }
  if (!entry->second.is_nested() && entry->second.sizes() == own.sizes()) return;
  throw ValueError("Model.load_state_dict",
                   cat("\"", name, "\" has another shape: expected ", collectives::describe(own),
                       ", got ", collectives::describe(entry->second)));
}

/// What fails in it on one worker fails on all: the others would wait for its part.
template <class Make>
void make_with_workers(const StrategyExtended& strategy, const Make& make) {
  const World::Turn turn = strategy.take_turn();
  strategy.world().replicas_lane().take_part("Model", make);
}

}  // namespace

ReplicatedModule::ReplicatedModule(std::shared_ptr<StrategyExtended> strategy,
                                   const ModelOptions& options)
    : strategy_(std::move(strategy)), options_(options) {
  if (replica_context_or_null() && has_strategy()) {
    throw RuntimeError("Model", "made inside strategy.run(): make it in the strategy's scope");
  }
  const int devices = strategy_->logical_devices_per_replica();
  if (options_.make_in_parts && (devices == 1 || options_.split_parameters.empty())) {
    throw ValueError(
        "Model", cat("there are no parts to make it in: .make_in_parts needs several "
                     "logical devices, got ",
                     devices, ", and .split_parameters, got ", options_.split_parameters.size()));
  }
  const bool mirrored = strategy_->variable_kind() == StrategyExtended::VariableKind::MIRRORED;
  copies_ = mirrored ? strategy_->layout().copies() : 1;
}

ReplicatedModule::ReplicatedModule(const Factory& make, const ModelOptions& options)
    : ReplicatedModule(detail::current_strategy().shared_from_this(), options) {
  make_with_workers(strategy(), [&] { add_replicas(make_module(make, 0), make); });
}

ReplicatedModule::ReplicatedModule(std::shared_ptr<torch::nn::Module> first, const Factory& make,
                                   const ModelOptions& options)
    : ReplicatedModule(detail::current_strategy().shared_from_this(), options) {
  if (options.make_in_parts) {
    throw ValueError("Model",
                     ".make_in_parts is too late for a module that exists: give the arguments of "
                     "its constructor, or a factory alone");
  }
  make_with_workers(strategy(), [&] { add_replicas(std::move(first), make); });
}

std::shared_ptr<torch::nn::Module> ReplicatedModule::make_module(const Factory& make,
                                                                 int replica) const {
  if (!options_.make_in_parts) return make();
  const spmd::MakeInParts parts(spmd::mesh_of_copy(*strategy_, copy_of(replica)));
  return make();
}

/// What is made in parts gets its layout before the next replica is made. Anything else is split in
/// the end, as the other modules may be clones of the first.
void ReplicatedModule::add_replicas(std::shared_ptr<torch::nn::Module> first, const Factory& make) {
  if (!first) throw ValueError("Model", "the module is empty: give one that was constructed");
  replicas_.push_back(std::move(first));
  if (options_.make_in_parts) lay_out_first();
  apply_memory_format(*replicas_[0]);
  replicas_[0]->to(strategy_->layout().device(0).torch_device());
  const UnusedRandomNumbers unused;
  for (int r = 1; r < strategy_->layout().local(); ++r) {
    replicas_.push_back(make_module(make, r));
    check_same_structure(*replicas_[0], *replicas_[r]);
    replicas_[r]->train(replicas_[0]->is_training());
    share_parameters(r, Which::ALL);
    copy_buffers(r);
  }
  if (!options_.make_in_parts) {
    lay_out_first();
    for (int r = 1; r < replicas(); ++r) share_parameters(r, Which::SPLIT);
  }
  if (strategy_->logical_devices_per_replica() > 1) {
    for (int r = 0; r < replicas(); ++r) place_gradients(r, ModuleWatch());
  }
  take_chiefs_parameters("Model");
  take_chiefs_buffers("Model");
  model_copies_ = std::make_unique<ModelCopies>(*this);
  model_update_ = std::make_unique<ModelUpdate>(*this);
}

ReplicatedModule::~ReplicatedModule() = default;

void ReplicatedModule::enlist() {
  if (!strategy_->world().holds_root()) strategy_->prepare_before_runs(weak_from_this());
}

void ReplicatedModule::prepare_run(std::uint64_t run_serial) {
  model_copies_->prepare_run(run_serial);
}

/// On all workers, parameters are the chief's.
void ReplicatedModule::take_chiefs_parameters(std::string_view where) {
  if (strategy_->world().holds_root()) return;
  const World::Turn turn = strategy_->take_turn();
  broadcast_over_world(strategy_->world().replicas_lane(),
                       cat(where, ": the parameters of a model"),
                       whole_tiles(replicas_[0]->parameters()));
  for (int r = 1; r < replicas(); ++r) {
    if (owner_of(copy_of(r)) == r) copy_parameters(r);
  }
}

void ReplicatedModule::take_chiefs_buffers(std::string_view where) {
  std::vector<at::Tensor> own;
  for (const at::Tensor& buffer : replicas_[0]->buffers()) own.push_back(buffer.data());
  if (own.empty() || strategy_->world().holds_root()) return;
  const World::Turn turn = strategy_->take_turn();
  broadcast_over_world(strategy_->world().replicas_lane(), cat(where, ": the buffers of a model"),
                       own);
  for (int r = 1; r < replicas(); ++r) copy_buffers(r);
}

void ReplicatedModule::copy_parameters(int replica) {
  const at::NoGradGuard no_grad;
  const auto from = replicas_[0]->parameters();
  const auto to = replicas_[replica]->parameters();
  for (std::size_t p = 0; p < from.size(); ++p) copy_values(to[p], from[p]);
}

/// Splits what the table names. What was made in parts and is not in there becomes whole. One at a
/// time, so that no more than one tensor is there twice.
void ReplicatedModule::lay_out_first() {
  torch::nn::Module& module = *replicas_[0];
  check_buffers(module);
  const auto names = module.named_parameters().keys();
  const auto found = find_splits(options_.split_parameters, names);
  const std::map<std::string, std::vector<std::int64_t>> splits(found.begin(), found.end());
  std::vector<at::Tensor> parameters = module.parameters();
  const std::vector<bool> is_repeated = repeated(parameters);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const at::Tensor own = std::move(parameters[i]);
    if (is_repeated[i] && !holds(module, names[i], own)) continue;
    const auto entry = splits.find(names[i]);
    const at::Tensor placed = entry == splits.end() ? spmd::full(own.detach())
                                                    : split_parameter(names[i], own, entry->second);
    if (!spmd::is_sharded(own) && !spmd::is_sharded(placed)) continue;
    replace_all(module, names[i], own, as_leaf(placed, own.requires_grad()));
  }
}

at::Tensor ReplicatedModule::split_parameter(const std::string& name, const at::Tensor& parameter,
                                             const std::vector<std::int64_t>& parts) const {
  const int devices = strategy_->logical_devices_per_replica();
  std::int64_t product = 1;
  for (const std::int64_t each : parts) product *= std::max<std::int64_t>(each, 0);
  if (static_cast<std::int64_t>(parts.size()) != parameter.dim() || product != devices) {
    throw ValueError("Model", cat("parameter ", name, " of sizes ", parameter.sizes(),
                                  " can't be split ", at::IntArrayRef(parts),
                                  ": expected a number for each dimension, whose product is the ",
                                  devices, " logical devices of a replica"));
  }
  if (devices == 1) return parameter.detach();
  return spmd::split(parameter.detach(), spmd::mesh_of_copy(*strategy_, 0), parts);
}

/// An operation of a parameter with a tensor that is spread over logical devices gives a gradient
/// that is spread as well; an optimizer wants it where the parameter is. For parameters for which
/// it is not done yet.
void ReplicatedModule::place_gradients(int replica, const ModuleWatch& done) {
  for (const at::Tensor& parameter : replicas_[replica]->parameters()) {
    if (done.knows(parameter)) continue;
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

void ReplicatedModule::apply_memory_format(torch::nn::Module& module) const {
  if (!options_.channels_last) return;
  for (auto& parameter : module.parameters()) {
    if (parameter.dim() != 4 || spmd::is_sharded(parameter)) continue;
    parameter.set_data(parameter.data().contiguous(at::MemoryFormat::ChannelsLast));
  }
}

/// The first replica of a device has a copy, the others of the device the same storage. LibTorch
/// can't make a sharded tensor of an ordinary one, or the other way round: these are replaced.
void ReplicatedModule::share_parameters(int replica, Which which) {
  const auto source = replicas_[source_of(replica)]->named_parameters();
  torch::nn::Module& module = *replicas_[replica];
  std::vector<at::Tensor> parameters = module.parameters();
  const std::vector<bool> is_repeated = repeated(parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor own = std::move(parameters[i]);
    if (is_repeated[i] && !holds(module, source[i].key(), own)) continue;
    const at::Tensor& from = source[i].value();
    if (spmd::is_sharded(from) || spmd::is_sharded(own)) {
      replace_all(module, source[i].key(), own,
                  as_leaf(shared_data(from, replica), from.requires_grad()));
    } else if (which == Which::ALL) {
      own.set_data(shared_data(from, replica));
      own.set_requires_grad(from.requires_grad());
    }
  }
}

/// Where a replica has its parameters from.
int ReplicatedModule::source_of(int replica) const {
  const int owner = owner_of(copy_of(replica));
  return owner == replica ? 0 : owner;
}

/// A parameter's data for a replica: a copy if the replica is the first of its device. A sharded
/// one is copied part by part, to the logical devices of the replica.
at::Tensor ReplicatedModule::shared_data(const at::Tensor& parameter, int replica) const {
  const at::Tensor data = parameter.data();
  const int copy = copy_of(replica);
  if (owner_of(copy) != replica) return data;
  if (!spmd::is_sharded(data)) {
    return data.to(strategy_->layout().device(replica).torch_device(), false, /*copy=*/true);
  }
  return spmd::redistribute(data, spmd::mesh_of_copy(*strategy_, copy), spmd::impl(data)->layout());
}

void ReplicatedModule::copy_buffers(int replica) {
  const auto device = strategy_->layout().device(replica).torch_device();
  const auto source = replicas_[0]->buffers();
  const auto target = replicas_[replica]->buffers();
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i].set_data(source[i].data().to(device, false, /*copy=*/true));
  }
}

StateDict ReplicatedModule::state_dict(const char* where) const {
  require_outside_of_replicas("Model.state_dict");
  model_copies_->settle();
  model_copies_->follow_chief(where);
  StateDict state;
  for (const auto& entry : replicas_[0]->named_parameters()) {
    state[entry.key()] = spmd::full(entry.value().detach()).clone();
  }
  const auto aggregated = aggregated_buffers(where);
  std::size_t next = 0;
  for (const auto& entry : replicas_[0]->named_buffers()) state[entry.key()] = aggregated[next++];
  return state;
}

void ReplicatedModule::load_state_dict(const StateDict& state) {
  require_outside_of_replicas("Model.load_state_dict");
  const World::Turn turn = strategy_->take_turn();
  strategy_->world().replicas_lane().take_part("model.load_state_dict", [&] {
    check_state(state);
    take_state("model.load_state_dict", state);
  });
}

void ReplicatedModule::load(const char* where, FunctionRef<StateDict()> read) {
  require_outside_of_replicas(where);
  const World::Turn turn = strategy_->take_turn();
  strategy_->world().replicas_lane().take_part(where, [&] {
    StateDict state;
    if (strategy_->world().is_chief()) {
      state = read();
      check_state(state);
    }
    take_state(where, state);
  });
}

void ReplicatedModule::check_state(const StateDict& state) const {
  StateDict own;
  for (const auto& entry : replicas_[0]->named_parameters()) own[entry.key()] = entry.value();
  for (const auto& entry : replicas_[0]->named_buffers()) own[entry.key()] = entry.value();
  for (const auto& [name, tensor] : own) check_entry(state, name, tensor);
  for (const auto& [name, tensor] : state) {
    if (own.contains(name)) continue;
    throw ValueError("Model.load_state_dict", cat("\"", name, "\" is not in the model"));
  }
}

/// What is not in there is the chief's. Nothing is changed until all workers can go on.
void ReplicatedModule::take_state(const char* where, const StateDict& state) {
  const at::NoGradGuard no_grad;
  model_copies_->settle();
  strategy_->world().replicas_lane().all_gather(where, {});
  const auto take = [&](auto named) {
    for (auto& entry : named) {
      const auto value = state.find(entry.key());
      if (value != state.end()) entry.value().data().copy_(value->second);
    }
  };
  for (int r = 0; r < replicas(); ++r) {
    if (r == owner_of(copy_of(r))) take(replicas_[r]->named_parameters());
    take(replicas_[r]->named_buffers());
  }
  take_chiefs_parameters(where);
  take_chiefs_buffers(where);
  model_copies_->note_chiefs();
}

}  // namespace cohort
