#pragma once

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "cohort/device/configuration.h"
#include "cohort/distribute/default_strategy.h"
#include "cohort/distribute/strategy.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "tests/base/failing.h"
#include "tests/distribute/each_worker.h"

namespace cohort {

/// How replicas lie on devices and workers. What is promised holds for every layout.
struct Layout {
  std::string name;
  int devices;  // of each worker
  int replicas;
  int workers = 0;  // 0: a MirroredStrategy, without a job
};

inline void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

inline std::vector<Layout> all_layouts() {
  std::vector<Layout> all{{"OneReplica", 1, 1}, {"Two", 2, 2}, {"EightOnTwo", 2, 8}};
  for (const Job& job : all_jobs()) all.push_back({name_of(job), 2, job.replicas, job.workers});
  return all;
}

inline Strategy mirrored(int devices, int replicas = 0) {
  configure({.cpu_devices = 8});
  std::vector<Device> all;
  for (int i = 0; i < devices; ++i) all.emplace_back(DeviceType::CPU, i);
  return MirroredStrategy({.devices = all, .replicas = replicas});
}

inline int id() { return get_replica_context().replica_id_in_sync_group(); }

template <class T>
std::vector<T> values_of(const PerReplica<T>& value) {
  return {value.values().begin(), value.values().end()};
}

/// A test that runs on all layouts: what one worker of the layout sees.
class OnLayouts {
 public:
  OnLayouts(const Layout& layout, const std::optional<Worker>& worker)
      : strategy(worker ? strategy_of({layout.replicas, layout.workers}, *worker)
                        : mirrored(layout.devices, layout.replicas)),
        workers(worker ? worker->count() : 1),
        n(layout.replicas),
        last(n - 1),
        last_of_chief(strategy.extended().world().first_of(1) - 1),
        first_here(strategy.extended().world().first()),
        n_here(strategy.extended().world().local()) {}

  /// Called when the test's body has ended.
  void after() {}

  const Strategy strategy;
  const int workers;
  const int n, last;             // replicas of the job, and the last one's number
  const int last_of_chief;       // shares its worker with another one, wherever there are two
  const int first_here, n_here;  // those of this worker

  bool is_here(int replica) const { return first_here <= replica && replica < first_here + n_here; }

  /// The numbers of this worker's replicas.
  std::vector<int> ids_here() const {
    std::vector<int> here(n_here);
    std::iota(here.begin(), here.end(), first_here);
    return here;
  }

  /// After whatever happened, a run with a collective must work as ever.
  void expect_usable() const {
    const auto sums = strategy.run([] {
      const at::Tensor own = at::full({3}, id() + 1., at::kDouble);
      return get_replica_context().all_reduce("SUM", own).sum().item<double>();
    });
    EXPECT_THAT(values_of(sums), testing::Each(3. * n * (n + 1) / 2));
  }
};

/// Instantiates the tests of a suite derived from OnLayouts.
#define ON_ALL_LAYOUTS(Suite) SUITE_ON_EACH_WORKER(Suite, Layout, testing::ValuesIn(all_layouts()))

/// Expects what a run throws that fails on every worker by itself: this class, or Cancelled where
/// another worker was faster; and these words in any case. In a test of OnLayouts.
#define EXPECT_RUN_FAILS(statement, Kind, words) \
  EXPECT_FAILS_AS(statement, words, testing::AnyOf(#Kind, workers > 1 ? "Cancelled" : #Kind))

/// Expects what an exception of a replica becomes: its own class where the replica is, Cancelled on
/// other workers, and these words everywhere. In a test of OnLayouts; the others must be in a
/// collective, or they lose their next run instead.
#define EXPECT_REPLICA_FAILS(replica, statement, Kind, words) \
  EXPECT_FAILS_AS(statement, words, std::string(is_here(replica) ? #Kind : "Cancelled"))

#define EXPECT_FAILS_AS(statement, words, kind)                           \
  do {                                                                    \
    const std::string failure = ::cohort::failure_of([&] { statement; }); \
    EXPECT_THAT(failure.substr(0, failure.find(':')), kind) << failure;   \
    EXPECT_THAT(failure, testing::HasSubstr(words));                      \
  } while (false)

/// The same for exceptions that are not Cohort's.
#define EXPECT_RUN_THROWS(statement, Type)                   \
  EXPECT_THAT(::cohort::thrown_by<Type>([&] { statement; }), \
              testing::AnyOf("it", workers > 1 ? "Cancelled" : "it"))
#define EXPECT_REPLICA_THROWS(replica, statement, Type) \
  EXPECT_EQ(::cohort::thrown_by<Type>([&] { statement; }), is_here(replica) ? "it" : "Cancelled")

/// What fn throws: "it", an exception of the type; "Cancelled"; or "nothing".
template <class Type, class F>
std::string thrown_by(F&& fn) {
  try {
    fn();
  } catch (const Type&) {
    return "it";
  } catch (const Cancelled&) {
    return "Cancelled";
  }
  return "nothing";
}

}  // namespace cohort
