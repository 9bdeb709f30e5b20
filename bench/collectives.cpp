// The ordered sum: its latency, its bandwidth, and what its order costs.
#include <cohort/cohort.h>

#include <barrier>
#include <stdexcept>

#include "cohort/collectives/all_reduce.h"
#include "cohort/distribute/crew.h"
#include "cohort/optim/gradient_reducer.h"
#include "harness.h"

// What is compared with is compiled as well as it can be.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define COHORT_FAST __attribute__((optimize("O3"), target("avx2")))
#else
#define COHORT_FAST
#endif

namespace {

using bench::at_least;
using bench::at_most;
using cohort::collectives::Range;
using cohort::collectives::SumPlan;
using torch::Tensor;

constexpr std::int64_t kKiB = 1 << 10;
constexpr std::int64_t kMiB = 1 << 20;
constexpr int kThreads = 2;

Tensor floats(std::int64_t bytes) { return torch::ones({bytes / 4}); }

/// Two threads, each bound to a core, that meet as replicas do.
class PinnedCrew : public cohort::Crew {
 public:
  explicit PinnedCrew(cohort::World& world) : Crew({0, 1}, world) {
    run([](int i) { bench::pin_to_core(i); });
  }
  template <class Body>
  void run(Body&& body) {
    int failed = -1;
    Crew::run(body, failed);
  }
};

/// The collective as replicas use it: a contribution made, met and taken.
void latency(bench::Report& report) {
  constexpr int kCalls = 1000;
  const cohort::collectives::Accumulation addition;
  const Tensor values[] = {floats(kKiB), floats(kKiB)};
  const auto world = cohort::World::alone(2);
  PinnedCrew crew(*world);
  const double time = bench::median_call(300, [&] {
    crew.run([&](int member) {
      for (int i = 0; i < kCalls; ++i) {
        cohort::collectives::AllReduce call(*world, cohort::ReduceOp::SUM, {values[member]},
                                            addition);
        crew.meeting().attend(member, call);
        call.take();
      }
    });
  });
  report.add("all_reduce/1KiB", time / kCalls * 1e6, "us", "two buffers, two threads", at_most(5));
}

/// STREAM's (McCalpin 1995), on two threads: a = b + s * c.
class Triad {
 public:
  explicit Triad(std::int64_t bytes) : a_(floats(bytes)), b_(floats(bytes)), c_(floats(bytes)) {}

  double time() {
    const double begin = bench::seconds_now();
    crew_.run([this](int member) {
      const std::int64_t part = a_.numel() / kThreads, first = member * part;
      triad(a_.data_ptr<float>() + first, b_.data_ptr<float>() + first,
            c_.data_ptr<float>() + first, part);
    });
    return bench::seconds_now() - begin;
  }

 private:
  COHORT_FAST static void triad(float* __restrict a, const float* __restrict b,
                                const float* __restrict c, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) a[i] = b[i] + 3 * c[i];
  }

  Tensor a_, b_, c_;
  const std::shared_ptr<cohort::World> world_ = cohort::World::alone(kThreads);
  PinnedCrew crew_{*world_};
};

/// A gradient on each of two replicas, summed in place as optimizer.step() does it.
class LargeGradient {
 public:
  explicit LargeGradient(std::int64_t bytes) {
    for (int r = 0; r < kThreads; ++r) {
      parameters_.push_back({torch::zeros({bytes / 4}, torch::requires_grad())});
      upstream_.push_back(torch::ones({bytes / 4}));  // zeros count as no gradient
    }
    reducer_ = std::make_unique<cohort::GradientReducer>(
        strategy_.extended(), parameters_, std::vector<std::string>{"gradient"},
        std::vector<int>{0, 1}, cohort::OptimizerOptions{});
  }

  /// From when both have their gradients to when both have the sum.
  double time() {
    double begin[kThreads] = {}, end[kThreads] = {};
    std::barrier<> both(kThreads);
    strategy_.run([&] {
      auto& replica = cohort::get_replica_context();
      const int r = replica.local_id();
      bench::pin_to_core(r);
      reducer_->zero_grad(r, true);  // what is put there next is not summed yet
      parameters_[r][0].mutable_grad() = upstream_[r].clone();
      both.arrive_and_wait();
      begin[r] = bench::seconds_now();
      reducer_->synchronize(replica);
      end[r] = bench::seconds_now();
    });
    if (parameters_[1][0].grad()[0].item<float>() != kThreads) throw std::logic_error("no sum");
    return std::max(end[0], end[1]) - std::max(begin[0], begin[1]);
  }

 private:
  cohort::Strategy strategy_ = cohort::MirroredStrategy({"cpu:0", "cpu:1"});
  std::vector<std::vector<Tensor>> parameters_;
  std::vector<Tensor> upstream_;
  std::unique_ptr<cohort::GradientReducer> reducer_;
};

void bandwidth(bench::Report& report) {
  constexpr std::int64_t kBytes = 64 * kMiB;
  Triad triad(kBytes);
  LargeGradient gradient(kBytes);
  std::vector<double> ratios, rates;
  for (int round = 0; round < 150; ++round) {
    // Both move four times the bytes: the triad three arrays and one write-allocate, the sum two
    // arrays to and fro.
    const double by_triad = triad.time(), by_sum = gradient.time();
    ratios.push_back(by_triad / by_sum);
    rates.push_back(4 * static_cast<double>(kBytes) / by_sum / 1e9);
  }
  report.add("all_reduce/64MiB/vs_triad", bench::median(ratios), "ratio",
             cohort::cat("bandwidth of STREAM's triad with its write-allocate; here ",
                         bench::median(rates), " GB/s"),
             at_least(0.9));
}

/// The same sum, added from the left as the compiler likes it best.
COHORT_FAST void unordered_sum(const float* const* leaves, float* __restrict a, float* __restrict b,
                               std::int64_t count) {
  const float *x0 = leaves[0], *x1 = leaves[1], *x2 = leaves[2], *x3 = leaves[3];
  const float *x4 = leaves[4], *x5 = leaves[5], *x6 = leaves[6], *x7 = leaves[7];
  for (std::int64_t i = 0; i < count; ++i) {
    const float sum = x0[i] + x1[i] + x2[i] + x3[i] + x4[i] + x5[i] + x6[i] + x7[i];
    a[i] = sum;
    b[i] = sum;
  }
}

/// The time of an ordered sum of eight leaves to two outputs, over that of an unordered one.
double order_cost(std::int64_t bytes) {
  const SumPlan plan(8);
  std::vector<Tensor> tensors;
  std::vector<const void*> leaves;
  std::vector<void*> outputs;
  for (int i = 0; i < 10; ++i) {
    tensors.push_back(floats(bytes));
    if (i < 8) leaves.push_back(tensors.back().data_ptr());
    if (i >= 8) outputs.push_back(tensors.back().data_ptr());
  }
  const Range all{0, bytes / 4};
  const auto ordered = [&] {
    cohort::collectives::ordered_sum(torch::kFloat, plan, leaves, outputs, all);
  };
  const auto unordered = [&] {
    unordered_sum(reinterpret_cast<const float* const*>(leaves.data()),
                  static_cast<float*>(outputs[0]), static_cast<float*>(outputs[1]), all.end);
  };
  return bench::Comparison({ordered, unordered}, {.seconds = 1, .slice = 0.01}).ratio(0, 1);
}

/// In the chunks that threads take: from the cache and from memory, each at several places, since
/// ten streams at once are faster or slower by where their pages lie.
void order_cost(bench::Report& report) {
  double worst = 0;
  for (const std::int64_t bytes : {128 * kKiB, 8 * kMiB}) {
    std::vector<double> costs;
    std::vector<Tensor> taken;  // so that the next place is another one
    for (int place = 0; place < 7; ++place) {
      costs.push_back(order_cost(bytes));
      taken.push_back(floats((place + 1) * 68 * kKiB));
    }
    worst = std::max(worst, bench::median(costs));
  }
  report.add("all_reduce/order_cost", worst, "ratio",
             "time of an unordered sum of 8 buffers (the worse of 128 KiB and 8 MiB each)",
             at_most(1.1));
}

}  // namespace

int main() {
  cohort::configure({.cpu_devices = 2});
  bench::Report report;
  latency(report);
  order_cost(report);
  bandwidth(report);
}
