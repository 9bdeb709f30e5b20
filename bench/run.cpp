// What `strategy.run` itself costs, and how it grows with replicas.
#include <cohort/cohort.h>

#include <chrono>
#include <thread>

#include "harness.h"

namespace {

using bench::at_most;

constexpr double kMicrosecond = 1e-6;

cohort::Strategy on_two_devices(int replicas) {
  return cohort::MirroredStrategy({.devices = {"cpu:0", "cpu:1"}, .replicas = replicas});
}

void sleep_a_millisecond() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

void empty_runs(bench::Report& report) {
  const cohort::Strategy strategy = on_two_devices(2);
  const auto run = [&] { strategy.run([] {}); };
  for (int i = 0; i < 1000; ++i) run();
  report.add("run/empty", bench::median_call(100'000, run) / kMicrosecond, "us",
             "an empty function on two replicas", at_most(10));
  report.add("run/empty_after_idle",
             bench::median_call(2000, run, sleep_a_millisecond) / kMicrosecond, "us",
             "the same after 1 ms of nothing", at_most(100));
  run();
  const double cpu = bench::cpu_seconds();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  report.add("run/idle_cpu", (bench::cpu_seconds() - cpu) * 1e3, "ms",
             "CPU time of the process in 1 s without a run", at_most(1));
}

/// One side for each number of replicas; the cost of a replica, against that with 4.
void growth(bench::Report& report) {
  std::vector<bench::Step> sides;
  const std::vector<int> numbers{4, 8, 16, 32, 64};
  for (const int replicas : numbers) {
    const cohort::Strategy strategy = on_two_devices(replicas);
    const torch::Tensor kilobyte = torch::ones({256});
    sides.push_back([=] {
      strategy.run(
          [&] { cohort::get_replica_context().all_reduce(cohort::ReduceOp::SUM, kilobyte); });
    });
  }
  const bench::Comparison comparison(sides, {.seconds = 15, .slice = 0.02});
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const double ratio = comparison.ratio(static_cast<int>(i), 0) * numbers[0] / numbers[i];
    report.add(cohort::cat("growth/", numbers[i]), ratio, "ratio",
               cohort::cat("run + all_reduce of 1 KiB, per replica, with 4 replicas; here ",
                           comparison.time(static_cast<int>(i)) / kMicrosecond / numbers[i], " us"),
               at_most(2));
  }
}

}  // namespace

int main() {
  cohort::configure({.cpu_devices = 2});
  bench::Report report;
  empty_runs(report);
  growth(report);
}
