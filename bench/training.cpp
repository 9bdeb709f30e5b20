// Whole training steps: two mirrored replicas, and one device, against the plain LibTorch loop.
//
//     bench_training                       all measures
//     bench_training mlp [seconds]         prints samples/s of two replicas: for tools/bench_peers
//     bench_training cnn_channels_last     the same with ModelOptions::channels_last
#include <cohort/cohort.h>

#include <cstdlib>
#include <iostream>

#include "harness.h"
#include "models.h"

namespace {

using bench::Batch;
using bench::Comparison;

/// The same loop with Cohort, one replica's batch on each replica.
template <class M>
class Training {
 public:
  explicit Training(const cohort::Strategy& strategy, const cohort::ModelOptions& options = {})
      : Training(strategy, [&] { return cohort::Model<M>(options); }) {}

  /// Trains a module that exists.
  Training(const cohort::Strategy& strategy, const M& module)
      : Training(strategy, [&] { return cohort::Model<M>(module); }) {}

  void step() {
    const int replicas = strategy_.num_replicas_in_sync();
    auto& [model, optimizer] = state_;
    strategy_.run(
        [&](const Batch& batch) {
          optimizer.zero_grad();
          auto loss = torch::nn::functional::cross_entropy(model(batch.inputs), batch.targets);
          if (replicas > 1) loss = loss / replicas;
          loss.backward();
          optimizer.step();
        },
        batches_);
  }

 private:
  struct State {
    cohort::Model<M> model;
    cohort::Optimizer<torch::optim::SGD> optimizer{model, bench::sgd()};
  };

  template <class Make>
  Training(const cohort::Strategy& strategy, Make&& make)
      : strategy_(strategy), state_([&] {
          const auto scope = strategy.scope();
          return State{make()};
        }()) {}

  cohort::Strategy strategy_;
  State state_;
  cohort::PerReplica<Batch> batches_ = strategy_.distribute_values_from_function(
      [](const cohort::ValueContext&) { return M::Impl::batch(); });
};

cohort::Strategy two_replicas() { return cohort::MirroredStrategy({"cpu:0", "cpu:1"}); }

constexpr int kModels = 7;        // of each kind
std::vector<double> two_threads;  // of each comparison

/// Figures of a machine that others use vary by a quarter from run to run: the median over several.
template <class M>
void against_plain(bench::Report& report, double bar) {
  std::vector<double> speedups;
  for (int i = 0; i < kModels; ++i) {
    bench::PlainTraining<M> plain;
    Training<M> mirrored(two_replicas());
    const Comparison comparison({[&] { plain.step(); }, [&] { mirrored.step(); },
                                 [] { bench::arithmetic(1); }, [] { bench::arithmetic(2); }},
                                {.seconds = 5, .slice = 0.06});
    speedups.push_back(2 * comparison.ratio(0, 1));
    two_threads.push_back(2 * comparison.ratio(2, 3));
  }
  const double possible = bench::median({two_threads.end() - kModels, two_threads.end()});
  report.add(cohort::cat("mirrored/", M::Impl::kName, "/vs_plain"), bench::median(speedups),
             "ratio",
             cohort::cat("samples/s of the plain loop on one thread; two threads of arithmetic ",
                         "beside it: ", possible),
             bench::at_least(std::min(bar, 0.95 * possible)));
}

void one_device_overhead(bench::Report& report) {
  bench::PlainTraining<bench::Mlp> plain;
  Training<bench::Mlp> one_device(cohort::OneDeviceStrategy("cpu:0"), plain.module());
  const Comparison comparison({[&] { plain.step(); }, [&] { one_device.step(); }},
                              {.seconds = 20, .slice = 0.02});
  report.add("one_device/overhead", comparison.ratio(1, 0), "ratio", "time of the plain loop (mlp)",
             bench::at_most(1.01));
}

template <class M>
bool print_samples_per_second(const std::string& name, double seconds) {
  const std::string in_channels_last = cohort::cat(M::Impl::kName, "_channels_last");
  if (name != M::Impl::kName && name != in_channels_last) return false;
  Training<M> mirrored(two_replicas(), {.channels_last = name == in_channels_last});
  const Comparison speed({[&] { mirrored.step(); }}, {.seconds = seconds, .slice = 0.2});
  std::cout << 2 * static_cast<double>(M::Impl::batch().inputs.size(0)) / speed.time(0) << '\n';
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  cohort::configure({.cpu_devices = 2});
  if (argc > 1) {
    const double seconds = argc > 2 ? std::atof(argv[2]) : 3;
    const bool known = print_samples_per_second<bench::Mlp>(argv[1], seconds) ||
                       print_samples_per_second<bench::Cnn>(argv[1], seconds) ||
                       print_samples_per_second<bench::LanguageModel>(argv[1], seconds);
    return known ? 0 : 1;
  }
  bench::Report report;
  against_plain<bench::Mlp>(report, 1.7);
  against_plain<bench::Cnn>(report, 1.85);
  against_plain<bench::LanguageModel>(report, 1.85);
  report.add("machine/two_threads", bench::median(two_threads), "ratio",
             "arithmetic on one thread, beside the models");
  one_device_overhead(report);
}
