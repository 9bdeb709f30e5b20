// Barriers, and locks of the program's own that replicas hold while they wait for each other.

#include <mutex>
#include <stdexcept>

#include "tests/base/captured_log.h"
#include "tests/distribute/layouts.h"

namespace cohort {
namespace {

using testing::Each;

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

TEST(BarrierOfWorkers, WaitsForAnotherWorkerAsLongAsTheCallSays) {
  std::atomic<bool> is_over = false;
  run_workers(2, [&](const Worker& worker) {
    const Strategy strategy = strategy_of({4, 2}, worker);
    if (!worker.is_chief()) {
      while (!is_over) std::this_thread::yield();
      return;
    }
    EXPECT_FAILS(strategy.run([] { barrier({.timeout = std::chrono::milliseconds(30)}); }),
                 DeadlineExceeded, "has waited 0.03 s for worker 1 (replicas 2 and 3)");
    is_over = true;
  });
}

// Four replicas on two devices: 0 and 1, 2 and 3.

class OwnLocks : public testing::Test {
 protected:
  const Strategy strategy = mirrored(2, 4);

  void TearDown() override {
    const auto sums = strategy.run(
        [] { return get_replica_context().all_reduce("SUM", at::ones({})).item<double>(); });
    EXPECT_THAT(values_of(sums), Each(4));
  }
};

TEST_F(OwnLocks, HeldOverACollectiveDoNotKeepItsTimeoutFromFiring) {
  std::mutex mutex;
  const auto reduce_alone = [&] {
    const std::lock_guard lock(mutex);
    const CommunicationOptions soon{.timeout = std::chrono::milliseconds(50)};
    get_replica_context().all_reduce("SUM", at::ones({1}), soon);
  };
  EXPECT_FAILS(strategy.run(reduce_alone), DeadlineExceeded, "not come within 0.05 s");
}

TEST_F(OwnLocks, AreReleasedByAReplicaThatIsStoppedWithoutItsSlot) {
  std::mutex mutex;
  std::atomic<bool> is_held = false, is_wanted = false;
  EXPECT_THROW(strategy.run([&] {
    if (id() == 0) {
      const std::lock_guard lock(mutex);
      is_held = true;
      barrier();
    } else if (id() == 1) {  // has the slot that replica 0 has given up
      is_wanted = true;
      const std::lock_guard lock(mutex);
    } else if (id() == 2) {
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

}  // namespace
}  // namespace cohort
