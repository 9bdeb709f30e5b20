#include "cohort/spmd/pipeline.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <condition_variable>
#include <deque>
#include <mutex>

#include "cohort/base/error.h"
#include "cohort/base/random.h"
#include "cohort/distribute/caller_state.h"
#include "cohort/distribute/differentiable_collectives.h"
#include "cohort/distribute/replica_random.h"
#include "cohort/spmd/two_pass_gradient.h"

namespace cohort::spmd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Hands tensors from one stage to the next, in order.
class Channel {
 public:
  void put(Tensor tensor) {
    const std::lock_guard lock(mutex_);
    tensors_.push_back(std::move(tensor));
    changed_.notify_one();
  }
  /// No more will come: a stage has failed.
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_one();
  }
  bool is_empty() {
    const std::lock_guard lock(mutex_);
    return tensors_.empty();
  }
  Tensor take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !tensors_.empty() || is_closed_; });
    if (tensors_.empty()) throw Cancelled("spmd::Pipeline", "another stage has failed");
    Tensor first = std::move(tensors_.front());
    tensors_.pop_front();
    return first;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Tensor> tensors_;
  bool is_closed_ = false;
};

/// What one pass through the pipeline leaves for the way back.
struct Pass : torch::CustomClassHolder {
  struct Step {
    Tensor input, output;
  };

  Pass(MeshPtr mesh, std::vector<Stage> stages)
      : mesh(std::move(mesh)), stages(std::move(stages)), steps(this->stages.size()) {
    for (const Stage& stage : this->stages) parameters.push_back(stage.parameters());
  }

  int count() const { return static_cast<int>(stages.size()); }
  int device_of(int stage) const { return stage * mesh->size() / std::max(mesh->size(), count()); }

  const MeshPtr mesh;
  std::vector<Stage> stages;
  std::vector<variable_list> parameters;
  variable_list micro_batches;
  bool needs_batch = false;              // whether the batch has a gradient
  std::vector<std::vector<Step>> steps;  // [stage][micro-batch]
};
using PassPtr = c10::intrusive_ptr<Pass>;

/// Calls work(stage) on the stages' devices, all at the same time; where stages share one, in the
/// order in which they hand on. The first error of a stage is the one that comes out, and not what
/// the others made of it.
void run_stages(const Pass& pass, bool forward, std::deque<Channel>& channels,
                FunctionRef<void(int)> work) {
  std::vector<int> devices;
  std::mutex mutex;
  std::exception_ptr first;
  const auto stage_of = [&](int task) { return forward ? task : pass.count() - 1 - task; };
  for (int task = 0; task < pass.count(); ++task) devices.push_back(pass.device_of(stage_of(task)));
  const detail::CallerState caller;
  pass.mesh->run(devices, [&](int task) {
    const detail::CallerState::Guard guard(caller);
    const detail::NoMeetings none("a stage of spmd::Pipeline");
    try {
      work(stage_of(task));
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      for (Channel& channel : channels) channel.close();
    }
  });
  if (first) std::rethrow_exception(first);
}

/// Draws one number from the generator that the thread uses.
std::uint64_t draw_seed() {
  at::Generator generator = detail::thread_generator();
  const std::lock_guard lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

/// The rows of all micro-batches.
Tensor run_forward(Pass& pass, bool needs_gradients) {
  const auto count = pass.micro_batches.size();
  const std::uint64_t seed = draw_seed();
  std::deque<Channel> channels(pass.count() + 1);
  for (Tensor& each : std::exchange(pass.micro_batches, {})) channels[0].put(std::move(each));
  run_stages(pass, true, channels, [&](int stage) {
    const at::AutoGradMode gradients(needs_gradients);
    for (std::size_t m = 0; m < count; ++m) {
      Tensor input = channels[stage].take().detach();
      const bool is_needed = stage > 0 || pass.needs_batch;  // its gradient
      if (needs_gradients && is_needed && input.is_floating_point()) input.set_requires_grad(true);
      const detail::OwnGenerator random(
          at::make_generator<at::CPUGeneratorImpl>(mix(seed, stage, m)));
      const Tensor output = pass.stages[stage].forward(input);
      if (output.dim() == 0 || output.size(0) != input.size(0)) {
        throw ValueError("spmd::Pipeline", cat("stage ", stage, " must keep the rows: expected ",
                                               input.size(0), ", got sizes ", output.sizes()));
      }
      if (needs_gradients) pass.steps[stage].push_back({input, output});
      channels[stage + 1].put(output.detach());
    }
  });
  std::vector<Tensor> results;
  for (std::size_t m = 0; m < count; ++m) results.push_back(channels.back().take());
  return at::cat(results, 0);
}

/// Whether a tensor's memory belongs to this handle alone.
bool is_unshared(const Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.has_storage() && tensor.storage().use_count() == 1 &&
         tensor.is_contiguous();
}

/// Adds a micro-batch's gradients to those of the ones before.
void add_gradients(variable_list& sums, variable_list more) {
  sums.resize(more.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!more[i].defined()) continue;
    if (sums[i].defined()) {
      sums[i].add_(more[i]);
    } else {
      sums[i] = is_unshared(more[i]) ? std::move(more[i]) : more[i].clone();
    }
  }
}

/// How many micro-batches a stage may be behind with the gradients of its parameters. More fill
/// longer waits, and take memory.
constexpr std::size_t kBehind = 2;

/// The way back through a stage: gradients come in and are handed on. Those of the parameters,
/// which nobody waits for, are computed when there is nothing to hand on, and added in the order of
/// micro-batches. Frees the graphs.
variable_list stage_backward(Pass& pass, int stage, Channel& from, Channel& to) {
  variable_list sums;
  std::deque<TwoPassGradient> behind;
  const auto catch_up = [&] {
    add_gradients(sums, behind.front().of_parameters());
    behind.pop_front();
  };
  for (Pass::Step& step : pass.steps[stage]) {
    while (behind.size() == kBehind || (!behind.empty() && from.is_empty())) catch_up();
    const Tensor gradient = from.take();
    behind.emplace_back(std::move(step.output), std::move(step.input), pass.parameters[stage]);
    step = {};
    Tensor of_input = behind.back().of_input(gradient);
    to.put(of_input.defined() ? std::move(of_input) : at::zeros({0}, gradient.options()));
  }
  while (!behind.empty()) catch_up();
  return sums;
}

struct Differentiable : torch::autograd::Function<Differentiable> {
  static Tensor forward(AutogradContext* context, const PassPtr& pass, const Tensor& batch,
                        at::TensorList parameters) {
    static_cast<void>(parameters);  // whose gradients `backward` gives
    context->saved_data["pass"] = at::IValue::make_capsule(pass);
    pass->needs_batch = batch.requires_grad();
    return run_forward(*pass, true);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto pass =
        c10::static_intrusive_pointer_cast<Pass>(context->saved_data["pass"].toCapsule());
    if (at::GradMode::is_enabled()) {
      throw NotImplementedError("spmd::Pipeline", "there are no second derivatives");
    }
    const int last = pass->count() - 1;
    if (!pass->steps[last][0].output.defined()) {
      throw RuntimeError("spmd::Pipeline",
                         "backward a second time: the results of the stages have been freed; call "
                         "the pipeline again");
    }
    std::deque<Channel> channels(pass->count() + 1);
    std::int64_t row = 0;
    for (const Pass::Step& step : pass->steps[last]) {
      const std::int64_t rows = step.output.size(0);
      channels[last + 1].put(gradients[0].slice(0, row, row + rows));
      row += rows;
    }
    std::vector<variable_list> sums(pass->count());
    run_stages(*pass, false, channels, [&](int stage) {
      sums[stage] = stage_backward(*pass, stage, channels[stage + 1], channels[stage]);
    });
    variable_list result(2);  // for the pass and the batch
    if (pass->needs_batch) {
      std::vector<Tensor> rows;
      for (std::size_t m = 0; m < pass->steps[0].size(); ++m) rows.push_back(channels[0].take());
      result[1] = at::cat(rows, 0);
    }
    for (const variable_list& own : sums) result.insert(result.end(), own.begin(), own.end());
    return result;
  }
};

}  // namespace

Pipeline::Pipeline(std::vector<Stage> stages, int micro_batches)
    : stages_(std::move(stages)), micro_batches_(micro_batches) {
  if (stages_.empty()) throw ValueError("spmd::pipeline", "there must be a stage");
  if (micro_batches < 1) {
    throw ValueError("spmd::pipeline", cat("there must be a micro-batch, got ", micro_batches));
  }
}

Tensor Pipeline::operator()(const Tensor& batch) {
  const MeshPtr mesh = mesh_of_replica("spmd::Pipeline");
  if (batch.dim() == 0) throw ValueError("spmd::Pipeline", "the batch must have rows");
  const auto pass = c10::make_intrusive<Pass>(mesh, stages_);
  const Tensor whole = full(batch);
  const Cuts cuts = even_cuts(batch.size(0), micro_batches_);
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    pass->micro_batches.push_back(whole.slice(0, cuts[i], cuts[i + 1]).detach());
  }
  variable_list parameters;
  bool needs_gradients = batch.requires_grad();
  for (const variable_list& own : pass->parameters) {
    for (const Tensor& parameter : own) {
      parameters.push_back(parameter);
      needs_gradients |= parameter.requires_grad();
    }
  }
  if (!at::GradMode::is_enabled() || !needs_gradients) {
    return run_forward(*pass, false);
  }
  return Differentiable::apply(pass, whole, at::TensorList(parameters));
}

}  // namespace cohort::spmd
