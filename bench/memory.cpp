// How much memory replicas take, and what Cohort allocates in a step. Counted by an allocator hook.
#include <c10/core/CPUAllocator.h>
#include <cohort/base/torch_compat.h>
#include <cohort/cohort.h>

#include <atomic>
#include <set>

#include "harness.h"
#include "models.h"

namespace {

using bench::Batch;
using bench::Mlp;
using torch::Tensor;

/// Counts the tensors that are as large as a weight matrix of the model, and passes on.
class CountingAllocator : public cohort::torch_compat::Allocator<> {
 public:
  static constexpr std::size_t kLarge = 512 << 10;

  explicit CountingAllocator(c10::Allocator& next) : next_(next) {}

  c10::DataPtr take(std::size_t bytes) const override {
    c10::DataPtr data = next_.allocate(bytes);
    if (bytes < kLarge) return data;
    ++allocations_;
    const std::int64_t live = live_ += static_cast<std::int64_t>(bytes);
    for (std::int64_t peak = peak_; live > peak && !peak_.compare_exchange_weak(peak, live);) {
    }
    auto* block = new Block{std::move(data), *this, static_cast<std::int64_t>(bytes)};
    return {block->data.get(), block, &Block::free, c10::Device(c10::kCPU)};
  }

  std::int64_t allocations() const { return allocations_; }

  /// The most bytes that `step` held at a time, beyond those held before.
  template <class F>
  std::int64_t peak_of(F&& step) {
    const std::int64_t before = live_;
    peak_ = before;
    step();
    return peak_ - before;
  }

 private:
  struct Block {
    c10::DataPtr data;
    const CountingAllocator& owner;
    std::int64_t bytes;

    static void free(void* context) {
      auto* block = static_cast<Block*>(context);
      block->owner.live_ -= block->bytes;
      delete block;
    }
  };

  c10::Allocator& next_;
  mutable std::atomic<std::int64_t> allocations_{0}, live_{0}, peak_{0};
};

CountingAllocator& allocator() {
  static auto* const counting = new CountingAllocator(*c10::GetCPUAllocator());
  return *counting;
}

/// The bytes behind some tensors, counting what they share once.
std::int64_t bytes_of(const std::vector<Tensor>& tensors) {
  std::set<const void*> seen;
  std::int64_t bytes = 0;
  for (const Tensor& tensor : tensors) {
    const auto& storage = tensor.storage();
    if (seen.insert(storage.data()).second) bytes += static_cast<std::int64_t>(storage.nbytes());
  }
  return bytes;
}

class Training {
 public:
  explicit Training(int replicas)
      : strategy_(cohort::MirroredStrategy({.devices = {"cpu:0", "cpu:1"}, .replicas = replicas})) {
    const auto scope = strategy_.scope();
    model_.emplace();
    optimizer_.emplace(*model_, bench::sgd());
    for (int i = 0; i < 3; ++i) step();
  }

  void step() {
    strategy_.run([&] {
      optimizer_->zero_grad();
      torch::nn::functional::cross_entropy((*model_)(batch_.inputs), batch_.targets).backward();
      optimizer_->step();
    });
  }

  std::int64_t gradients() {
    strategy_.run([&] { optimizer_->zero_grad(); });
    return allocator().peak_of([&] { step(); });
  }
  std::int64_t parameters() const {
    std::vector<Tensor> all;
    for (int r = 0; r < strategy_.num_replicas_in_sync(); ++r) {
      for (const Tensor& tensor : model_->shared()->replica(r)->parameters()) all.push_back(tensor);
    }
    return bytes_of(all);
  }
  std::int64_t optimizer_state() {
    std::vector<Tensor> all;
    for (int c = 0; c < optimizer_->copies(); ++c) {
      for (const auto& [key, state] : optimizer_->copy(c).state()) {
        all.push_back(static_cast<torch::optim::SGDParamState&>(*state).momentum_buffer());
      }
    }
    return bytes_of(all);
  }

 private:
  cohort::Strategy strategy_;
  std::optional<cohort::Model<Mlp>> model_;
  std::optional<cohort::Optimizer<torch::optim::SGD>> optimizer_;
  Batch batch_ = Mlp::Impl::batch();
};

void memory(bench::Report& report) {
  Training two(2), eight(8);
  const auto compare = [&](const char* what, std::int64_t more, std::int64_t less, double bar) {
    report.add(cohort::cat("memory/8_replicas_2_devices/", what),
               static_cast<double>(more) / static_cast<double>(less), "ratio",
               cohort::cat("bytes with 2 replicas, ", less), bench::at_most(bar));
  };
  constexpr double kDepthOfTree = 3;
  compare("parameters", eight.parameters(), two.parameters(), 1);
  compare("optimizer_state", eight.optimizer_state(), two.optimizer_state(), 1);
  compare("gradients", eight.gradients(), two.gradients(), kDepthOfTree);
}

template <class T>
double large_allocations_per_step(T& training) {
  constexpr int kSteps = 50;
  for (int i = 0; i < 5; ++i) training.step();
  const std::int64_t before = allocator().allocations();
  for (int i = 0; i < kSteps; ++i) training.step();
  return static_cast<double>(allocator().allocations() - before) / kSteps;
}

/// What the plain loop allocates is LibTorch's: its gradients.
void allocations(bench::Report& report) {
  bench::PlainTraining<Mlp> plain;
  const double of_libtorch = large_allocations_per_step(plain);
  double worst = 0;
  for (const int replicas : {2, 8}) {
    Training training(replicas);
    worst = std::max(worst, large_allocations_per_step(training) - replicas * of_libtorch);
  }
  report.add("step/allocations", worst, "count",
             cohort::cat("gradient-sized ones of the plain loop, ", of_libtorch,
                         " a step on each replica; the worse of 2 and 8 replicas"),
             bench::at_most(0));
}

/// Tiny tensors, eight threads: what malloc keeps for each thread must not add up.
void growth(bench::Report& report) {
  constexpr int kFirst = 500, kLast = 10'000;
  cohort::Strategy strategy =
      cohort::MirroredStrategy({.devices = {"cpu:0", "cpu:1"}, .replicas = 8});
  const auto scope = strategy.scope();
  cohort::Model<torch::nn::Linear> model(16, 4);
  cohort::Optimizer<torch::optim::Adam> optimizer(model, torch::optim::AdamOptions(0.01));
  double early = 0;
  for (int step = 1; step <= kLast; ++step) {
    strategy.run([&] {
      optimizer.zero_grad();
      cohort::average_loss(model(torch::randn({8, 16})).square().mean(1)).backward();
      optimizer.step();
    });
    if (step == kFirst) early = bench::resident_mib();
  }
  report.add("memory/tiny_steps", bench::resident_mib() / early, "ratio",
             cohort::cat("resident memory after ", kFirst, " steps of 8 replicas, ", early,
                         " MiB; after ", kLast),
             bench::at_most(1.25));
}

}  // namespace

int main() {
  at::set_num_threads(1);
  cohort::configure({.cpu_devices = 2});
  c10::SetCPUAllocator(&allocator(), /*priority=*/1);
  bench::Report report;
  growth(report);
  memory(report);
  allocations(report);
}
