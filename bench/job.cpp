// Jobs of several workers, which are threads here: what they cost, and what they send.
#include <cohort/cohort.h>

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "cohort/collectives/exchange.h"
#include "harness.h"
#include "models.h"

namespace {

using bench::at_least;
using bench::at_most;
using bench::Batch;
using cohort::MultiWorkerMirroredStrategy;
using cohort::NetworkOptions;
using cohort::Worker;

/// One worker's part of a training; the loop of bench/training.cpp.
template <class M>
class Training {
 public:
  explicit Training(const cohort::Strategy& strategy, bool overlap = true)
      : strategy_(strategy), state_([&] {
          const auto scope = strategy.scope();
          return State(overlap);
        }()) {}

  void step() {
    auto& [model, optimizer] = state_;
    strategy_.run(
        [&](const Batch& batch) {
          optimizer.zero_grad();
          auto loss = torch::nn::functional::cross_entropy(model(batch.inputs), batch.targets);
          (loss / strategy_.num_replicas_in_sync()).backward();
          optimizer.step();
        },
        batches_);
  }

  std::int64_t gradient_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& parameter : state_.model.parameters()) bytes += parameter.nbytes();
    return bytes;
  }

 private:
  struct State {
    explicit State(bool overlap)
        : optimizer(model, bench::sgd(), cohort::OptimizerOptions{.overlap = overlap}) {}
    cohort::Model<M> model;
    cohort::Optimizer<torch::optim::SGD> optimizer;
  };

  cohort::Strategy strategy_;
  State state_;
  cohort::PerReplica<Batch> batches_ = strategy_.distribute_values_from_function(
      [](const cohort::ValueContext&) { return M::Impl::batch(); });
};

void one_worker(bench::Report& report) {
  cohort::run_workers(1, [&](const Worker& worker) {
    Training<bench::Mlp> mirrored(cohort::MirroredStrategy({"cpu:0", "cpu:1"}));
    Training<bench::Mlp> job(MultiWorkerMirroredStrategy(
        {.worker = worker, .devices = {"cpu:0", "cpu:1"}, .replicas = 2}));
    const bench::Comparison comparison({[&] { mirrored.step(); }, [&] { job.step(); }},
                                       {.seconds = 20, .slice = 0.02});
    report.add("job/one_worker", comparison.ratio(1, 0), "ratio",
               "time of MirroredStrategy's step (mlp, 2 replicas)", at_most(1.01));
  });
}

using MakeStrategy = std::function<cohort::Strategy(const Worker&)>;

MakeStrategy job_of(int replicas) {
  return [=](const Worker& worker) {
    return MultiWorkerMirroredStrategy(
        {.worker = worker, .devices = {"cpu:0"}, .replicas = replicas});
  };
}

/// The median time of a step that all workers make at the same time.
template <class M>
double step_time(int workers, const MakeStrategy& make, bool overlap, const NetworkOptions& network,
                 int steps) {
  std::vector<double> times;
  cohort::run_workers(
      workers,
      [&](const Worker& worker) {
        Training<M> training(make(worker), overlap);
        for (int i = 0; i < 5; ++i) training.step();
        for (int i = 0; i < steps; ++i) {
          const double begin = bench::seconds_now();
          training.step();
          if (worker.is_chief()) times.push_back(bench::seconds_now() - begin);
        }
      },
      network);
  return bench::median(times);
}

/// The time of backward while another thread computes as much, and the bytes of gradients.
template <class M>
std::pair<double, double> backward_of() {
  double time = 0, bytes = 0;
  cohort::run_workers(2, [&](const Worker& worker) {
    bench::pin_to_core(worker.index());
    M module;
    const Batch batch = M::Impl::batch();
    torch::Tensor loss;
    const double median = bench::median_call(
        60, [&] { loss.backward(); },
        [&] {
          module->zero_grad();
          loss = torch::nn::functional::cross_entropy(module(batch.inputs), batch.targets);
        });
    if (!worker.is_chief()) return;
    time = median;
    for (const auto& parameter : module->parameters()) {
      bytes += static_cast<double>(parameter.nbytes());
    }
  });
  return {time, bytes};
}

/// Two workers with a replica each send as many bytes as their gradients have. What they compute is
/// timed in two trainings that have nothing to do with each other.
void overlap(bench::Report& report) {
  constexpr int kSteps = 60, kRounds = 5;
  const auto [backward, bytes] = backward_of<bench::Cnn>();
  const NetworkOptions network{.bytes_per_second = bytes / backward,
                               .latency = std::chrono::microseconds(100)};
  const MakeStrategy alone = [](const Worker& worker) {
    return cohort::OneDeviceStrategy(cohort::cat("cpu:", worker.index()));
  };
  std::vector<double> gains, excesses;
  for (int round = 0; round < kRounds; ++round) {
    const double compute = step_time<bench::Cnn>(2, alone, true, {}, kSteps);
    const double with = step_time<bench::Cnn>(2, job_of(2), true, network, kSteps);
    const double without = step_time<bench::Cnn>(2, job_of(2), false, network, kSteps);
    gains.push_back(without / with);
    excesses.push_back(with / std::max(compute, backward));
  }
  report.add("job/overlap", bench::median(gains), "ratio",
             "cnn, 2 workers, gradients that take as long as backward: time without overlap",
             at_least(1.3));
  report.add("job/overlap/excess", bench::median(excesses), "ratio",
             "the larger of compute and exchange", at_most(1.2));
}

/// What the worst worker sends in a step, over (p + 1)(W - 1)/W of the gradients.
double excess_bytes(int workers) {
  constexpr int kSteps = 10;
  std::mutex mutex;
  double worst = 0;
  cohort::run_workers(workers, [&](const Worker& worker) {
    const MultiWorkerMirroredStrategy strategy({.worker = worker, .replicas = 8});
    Training<bench::Cnn> training(strategy);
    training.step();
    const auto before = worker.exchange()->traffic().bytes;
    for (int i = 0; i < kSteps; ++i) training.step();
    const auto sent = static_cast<double>(worker.exchange()->traffic().bytes - before) / kSteps;
    const auto nodes = static_cast<double>(strategy.extended().world().nodes().size());
    const double formula =
        (nodes + 1) * (workers - 1) / workers * static_cast<double>(training.gradient_bytes());
    const std::lock_guard lock(mutex);
    worst = std::max(worst, sent / formula);
  });
  return worst;
}

void bytes(bench::Report& report) {
  report.add("job/bytes", std::max(excess_bytes(2), excess_bytes(3)), "ratio",
             "(p + 1)(W - 1)/W of the gradients (cnn, 8 replicas on 2 and on 3 workers)",
             at_most(1.02));
}

double all_reduce_time(int workers) {
  constexpr int kCalls = 200;
  std::vector<double> times;
  cohort::run_workers(workers, [&](const Worker& worker) {
    const MultiWorkerMirroredStrategy strategy(
        {.worker = worker, .devices = {"cpu:0"}, .replicas = workers});
    const auto values = torch::ones({256});
    for (int round = 0; round < 7; ++round) {
      const double begin = bench::seconds_now();
      strategy.run([&] {
        for (int i = 0; i < kCalls; ++i) cohort::get_replica_context().all_reduce("SUM", values);
      });
      if (worker.is_chief()) times.push_back((bench::seconds_now() - begin) / kCalls);
    }
  });
  return bench::median(times);
}

void growth(bench::Report& report) {
  std::vector<double> ratios;
  double four = 0;
  for (int round = 0; round < 5; ++round) {
    four = all_reduce_time(4);
    ratios.push_back(all_reduce_time(16) / 16 / (four / 4));
  }
  report.add("job/growth", bench::median(ratios), "ratio",
             cohort::cat("1 KiB, a worker's share of the time with 16 over that with 4 (",
                         four * 1e6, " us)"),
             at_most(2));
}

}  // namespace

int main() {
  at::set_num_threads(1);
  cohort::configure({.cpu_devices = 2});
  bench::Report report;
  one_worker(report);
  overlap(report);
  bytes(report);
  growth(report);
}
