// Barriers, and locks of the program's own that replicas hold while they wait for each other.

#include <mutex>
#include <stdexcept>

#include "tests/base/captured_log.h"
#include "tests/distribute/layouts.h"

namespace cohort {
namespace {

void barrier(const CommunicationOptions& options = {}) { get_replica_context().barrier(options); }

struct Barrier : OnLayouts {
  using OnLayouts::OnLayouts;
  void after() { expect_usable(); }
};
ON_ALL_LAYOUTS(Barrier);

TEST_ON_EACH_WORKER(Barrier, IsPassedWhenAllReplicasHaveCome) {
  std::atomic<int> come = 0;
  strategy.run([&] {
    for (int round = 1; round <= 20; ++round) {
      ++come;
      barrier();
      EXPECT_EQ(come, round * n_here);
      barrier();
    }
  });
}

TEST_ON_EACH_WORKER(Barrier, IsNoOtherCollective) {
  if (n == 1) return;
  const auto different = [&] {
    if (id() != last) return barrier();
    get_replica_context().all_reduce("SUM", at::ones({1}));
  };
  EXPECT_FAILS(strategy.run(different), InvalidArgument, " calls all_reduce(SUM) of Float [1]");
  EXPECT_FAILS(strategy.run(different), InvalidArgument, "calls replica_context.barrier");
  EXPECT_FAILS(strategy.run(different), InvalidArgument, cat("replica ", last));
}

TEST_ON_EACH_WORKER(Barrier, MustNotBeLeftOut) {
  if (n == 1) return;
  EXPECT_REPLICA_FAILS(last_of_chief, strategy.run([&] {
    if (id() != last_of_chief) barrier();
  }),
                       RuntimeError, cat("replica ", last_of_chief, " has returned already"));
}

TEST_ON_EACH_WORKER(Barrier, TakesATimeout) {
  strategy.run([] { barrier({.timeout = std::chrono::minutes(10)}); });
  EXPECT_RUN_FAILS(strategy.run([] { barrier({.timeout = std::chrono::seconds(-1)}); }), ValueError,
                   "timeout must be positive, got -1 s");
}

TEST_ON_EACH_WORKER(Barrier, IsTheReplicasOwn) {
  get_replica_context().barrier();  // alone
  std::atomic<ReplicaContext*> stale = nullptr;
  strategy.run([&] {
    if (id() == first_here) stale = &get_replica_context();
  });
  EXPECT_FAILS(stale.load()->barrier(), RuntimeError, "[replica_context.barrier]");
}

/// One replica on each worker, so that none is late on its own.
TEST(BarrierOfWorkers, WaitsForAnotherWorkerAsLongAsTheCallSays) {
  std::atomic<bool> is_over = false;
  run_workers(2, [&](const Worker& worker) {
    const Strategy strategy = strategy_of({2, 2}, worker);
    if (!worker.is_chief()) {
      while (!is_over) std::this_thread::yield();
      return;
    }
    EXPECT_FAILS(strategy.run([] { barrier({.timeout = std::chrono::milliseconds(30)}); }),
                 DeadlineExceeded, "has waited 0.03 s for worker 1 (replica 1)");
    is_over = true;
  });
}

/// Four replicas here, on two devices: the first and the second, the third and the fourth.
struct OwnLocks : OnLayouts {
  using OnLayouts::OnLayouts;
  void after() { expect_usable(); }
  int place() const { return id() - first_here; }
};
SUITE_ON_EACH_WORKER(OwnLocks, Layout,
                     testing::Values(Layout{"FourOnTwo", 2, 4},
                                     Layout{"Replicas8On2Workers", 2, 8, 2}));

TEST_ON_EACH_WORKER(OwnLocks, HeldOverACollectiveDoNotKeepItsTimeoutFromFiring) {
  std::mutex mutex;
  const auto reduce_alone = [&] {
    const std::lock_guard lock(mutex);
    const CommunicationOptions soon{.timeout = std::chrono::milliseconds(50)};
    get_replica_context().all_reduce("SUM", at::ones({1}), soon);
  };
  EXPECT_RUN_FAILS(strategy.run(reduce_alone), DeadlineExceeded, "not come within 0.05 s");
}

TEST_ON_EACH_WORKER(OwnLocks, AreReleasedByAReplicaThatIsStoppedWithoutItsSlot) {
  std::mutex mutex;
  std::atomic<bool> is_held = false, is_wanted = false;
  EXPECT_RUN_THROWS(strategy.run([&] {
    if (place() == 0) {
      const std::lock_guard lock(mutex);
      is_held = true;
      barrier();
    } else if (place() == 1) {  // has the slot that the first one has given up
      is_wanted = true;
      const std::lock_guard lock(mutex);
    } else if (place() == 2) {
      while (!is_held || !is_wanted) std::this_thread::yield();
      throw std::out_of_range("no such row");
    }
  }),
                    std::out_of_range);
}

TEST(TheEndOfARun, IsWaitedForWithAWarningThatNamesTheReplica) {
  configure({.cpu_devices = 2});
  const CapturedLog log;
  const Strategy strategy =
      MirroredStrategy({.replicas = 2, .warn_after = std::chrono::milliseconds(1)});
  const auto is_warned = [&] {
    return log.count(log::Level::WARNING, "replica 0 has ended and waited") > 0;
  };
  EXPECT_FAILS(strategy.run([&] {
    if (id() == 0) throw ValueError("test", "no such row");
    while (!is_warned()) std::this_thread::yield();
  }),
               ValueError, "no such row");
  EXPECT_GT(log.count(log::Level::WARNING, "for replica 1: "), 0);
  EXPECT_GT(log.count(log::Level::WARNING, "no such row"), 0);
  configure({});
}

TEST(TheEndOfARun, IsWaitedForOnItsWorkerWhileTheOthersHaveTheError) {
  configure({.cpu_devices = 2});
  const CapturedLog log;
  std::atomic<bool> is_told = false;
  run_workers(2, [&](const Worker& worker) {
    const MultiWorkerMirroredStrategy strategy({.worker = worker,
                                                .replicas = 4,
                                                .timeout = std::chrono::seconds(60),
                                                .warn_after = std::chrono::milliseconds(1)});
    const auto is_warned = [&] {
      return log.count(log::Level::WARNING, "replica 0 has ended and waited") > 0;
    };
    if (!worker.is_chief()) {
      EXPECT_FAILS(strategy.run([] { barrier(); }), Cancelled, "no such row");
      is_told = true;
      return;
    }
    EXPECT_FAILS(strategy.run([&] {
      if (id() == 0) throw ValueError("test", "no such row");
      while (!is_told || !is_warned()) std::this_thread::yield();
    }),
                 ValueError, "no such row");
  });
  EXPECT_GT(log.count(log::Level::WARNING, "for replica 1: "), 0);
  configure({});
}

}  // namespace
}  // namespace cohort
