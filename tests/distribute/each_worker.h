#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/device/configuration.h"
#include "cohort/distribute/replica_random.h"
#include "cohort/distribute/run_workers.h"
#include "cohort/strategies/multi_worker_mirrored_strategy.h"

// Tests that run in one process and as jobs of several workers. The body of such a test is the
// program of one worker: it is called on each, at the same time, with a fixture of its own.
//
//     struct Sums : OnLayouts {                     // or another class with that constructor
//       using OnLayouts::OnLayouts;
//     };
//     SUITE_ON_EACH_WORKER(Sums, Layout, testing::ValuesIn(all_layouts()));
//
//     TEST_ON_EACH_WORKER(Sums, CountAllReplicas) {
//       EXPECT_EQ(strategy.reduce("SUM", strategy.run([] { return 1; })).item<int>(), n);
//     }
//
// The parameter has a `name`, and a number of `workers`: 0 for a process on its own. A fixture is
// made of the parameter and of the worker, which is none then; its function `after` is called when
// the body has ended. Nothing that another worker would wait for may hang on a check that fails on
// one worker only: a body that ends early is an error of the others.
namespace cohort {

/// The jobs of several workers that tests run as. A sanitizer makes each of them ten times as long.
struct Job {
  int replicas;
  int workers;
};

inline std::vector<Job> all_jobs() {
#if defined(__SANITIZE_THREAD__)
  return {{8, 3}};
#elif defined(__SANITIZE_ADDRESS__)
  return {{8, 3}, {5, 3}};
#else
  return {{8, 1}, {8, 2}, {8, 3}, {8, 4}, {5, 3}};
#endif
}

inline void PrintTo(const Job& job, std::ostream* out) {
  *out << job.replicas << " replicas on " << job.workers << " workers";
}

/// "Replicas8On3Workers".
inline std::string name_of(const Job& job) {
  return cat("Replicas", job.replicas, "On", job.workers, job.workers == 1 ? "Worker" : "Workers");
}

/// The strategy of one worker of a job. A worker has two devices, and replicas that share one where
/// it has more.
inline Strategy strategy_of(const Job& job, const Worker& worker,
                            int logical_devices_per_replica = 1) {
  const int least = job.replicas / job.workers;
  std::vector<Device> devices{Device("cpu:0")};
  for (int i = 1; i < 2 * logical_devices_per_replica; ++i) {
    if (least >= 2 || i < logical_devices_per_replica) devices.emplace_back(DeviceType::CPU, i);
  }
  return MultiWorkerMirroredStrategy({.worker = worker,
                                      .devices = devices,
                                      .replicas = job.replicas,
                                      .logical_devices_per_replica = logical_devices_per_replica,
                                      .timeout = std::chrono::seconds(60)});
}

/// Seeds what the calling thread draws outside of replicas: `torch::manual_seed` for a worker that
/// is a thread.
inline void seed_thread(std::uint64_t seed) {
  at::Generator generator = detail::generator_outside_of_runs();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

/// Calls body(fixture) on each worker, for tests that look at all of them from outside.
template <class Fixture, class Parameter, class Body>
void on_each_worker(const Parameter& parameter, const Body& body) {
  configure({.cpu_devices = 8});
  const auto test = [&](const std::optional<Worker>& worker) {
    Fixture fixture(parameter, worker);
    body(fixture);
    fixture.after();
  };
  if (parameter.workers == 0) return test(std::nullopt);
  run_workers(parameter.workers, test);
}

/// Declares the parameters of a suite of such tests.
#define SUITE_ON_EACH_WORKER(Suite, Parameter, values)                     \
  class Suite##OnEachWorker : public testing::TestWithParam<Parameter> {}; \
  INSTANTIATE_TEST_SUITE_P(, Suite##OnEachWorker, values,                  \
                           [](const auto& info) { return std::string(info.param.name); })

/// A test of the suite: the body follows.
#define TEST_ON_EACH_WORKER(Suite, Name)                                                       \
  struct Suite##_##Name : Suite {                                                              \
    using Suite::Suite;                                                                        \
    void body();                                                                               \
  };                                                                                           \
  TEST_P(Suite##OnEachWorker, Name) {                                                          \
    ::cohort::on_each_worker<Suite##_##Name>(GetParam(),                                       \
                                             [](Suite##_##Name& on_this) { on_this.body(); }); \
  }                                                                                            \
  void Suite##_##Name::body()

}  // namespace cohort
