#include <pthread.h>

#include <memory>
#include <set>
#include <system_error>

#include "cohort/variables/update.h"
#include "tests/distribute/layouts.h"

namespace cohort {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;

struct Run : OnLayouts {
  using OnLayouts::OnLayouts;
};
ON_ALL_LAYOUTS(Run);

TEST_ON_EACH_WORKER(Run, GivesOneResultPerLocalReplicaInTheirOrder) {
  EXPECT_THAT(values_of(strategy.run([] { return id(); })), ElementsAreArray(ids_here()));
}

TEST_ON_EACH_WORKER(Run, GivesEachReplicaItsComponentAndSharedArgumentsToAll) {
  const auto own = strategy.distribute_values_from_function(
      [](const ValueContext& context) { return context.replica_id_in_sync_group * 10; });
  const auto sums = strategy.run([](int x, int y) { return x + y; }, own, 5);
  for (int i = 0; i < n_here; ++i) EXPECT_EQ(sums.values()[i], 10 * (first_here + i) + 5);
}

TEST_ON_EACH_WORKER(Run, ValuesForAllReplicasCantBeMadeInOneOfThem) {
  const auto one = [](const ValueContext&) { return 1; };
  EXPECT_RUN_FAILS(
      strategy.run([&] { strategy.distribute_values_from_function(one); }), RuntimeError,
      "[strategy.distribute_values_from_function] Method requires being in cross-replica");
}

TEST_ON_EACH_WORKER(Run, DoesNotCopyWhatIsNotDistributed) {
  const std::string shared = "long enough to live on the heap, wherever strings are";
  const auto same = strategy.run([&](const std::string& text) { return &text == &shared; }, shared);
  EXPECT_THAT(values_of(same), Each(true));
}

TEST_ON_EACH_WORKER(Run, MergesNestsLeafByLeaf) {
  const auto result = strategy.run([] {
    return std::pair(id(), std::map<std::string, std::vector<int>>{{"k", {id(), -id()}}});
  });
  EXPECT_THAT(values_of(result.first), ElementsAreArray(ids_here()));
  EXPECT_EQ(result.second.at("k")[1].values().back(), -ids_here().back());
}

TEST_ON_EACH_WORKER(Run, MayReturnNothing) {
  std::atomic<int> calls = 0;
  strategy.run([&] { ++calls; });
  EXPECT_EQ(calls, n_here);
}

TEST_ON_EACH_WORKER(Run, TakesMoveOnlyFunctionsAndMutableOnes) {
  auto counter = std::make_unique<std::atomic<int>>(0);
  strategy.run([c = std::move(counter)]() mutable { ++*c; });
}

TEST_ON_EACH_WORKER(Run, TellsEachReplicaItsDevice) {
  const auto& layout = strategy.extended().layout();
  const auto devices = strategy.run([] { return get_replica_context().devices(); });
  EXPECT_EQ(devices[0].values()[0], layout.devices().front());
  EXPECT_EQ(devices[0].values().back(), layout.devices().back());
  EXPECT_EQ(devices[0].devices()->size(), static_cast<std::size_t>(n_here));
}

TEST_ON_EACH_WORKER(Run, UsesAThreadPerReplicaAndTheCallersForTheFirst) {
  const auto caller = std::this_thread::get_id();
  const auto first = strategy.run([] { return std::this_thread::get_id(); });
  const auto second = strategy.run([] { return std::this_thread::get_id(); });
  EXPECT_EQ(first.values()[0], caller);
  EXPECT_THAT(values_of(second), ElementsAreArray(values_of(first)));
  const std::set<std::thread::id> distinct(first.values().begin(), first.values().end());
  EXPECT_EQ(distinct.size(), static_cast<std::size_t>(n_here));
}

TEST_ON_EACH_WORKER(Run, ManyShortRuns) {
  std::atomic<int> calls = 0;
  for (int i = 0; i < 300; ++i) strategy.run([&] { ++calls; });
  EXPECT_EQ(calls, 300 * n_here);
}

TEST_ON_EACH_WORKER(Run, InsideAMergeCallHasItsOwnReplicas) {
  const auto results = strategy.run([] {
    return get_replica_context().merge_call([](Strategy& inner) {
      const auto sums = inner.run(
          [] { return get_replica_context().all_reduce("SUM", at::ones({})).item<double>(); });
      return values_of(sums).back();
    });
  });
  EXPECT_THAT(values_of(results), Each(n));
}

TEST_ON_EACH_WORKER(Run, InsideAnUpdateIsNoPartOfIt) {
  const auto scope = strategy.scope();
  const Variable total(0.0f);
  const Variable own(
      0.0f, {.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::SUM});
  strategy.run([&] { own.assign(id()); });
  strategy.extended().update(total, [&](at::Tensor& copy) {
    const auto copy_before = update_replica_id();
    const auto inner = strategy.run([&] {
      EXPECT_EQ(update_replica_id(), std::nullopt);
      const at::Tensor mine = own.value();
      return std::pair(mine.item<float>(), get_replica_context().all_reduce("SUM", mine));
    });
    EXPECT_THAT(values_of(inner.first), ElementsAreArray(ids_here()));
    EXPECT_EQ(update_replica_id(), copy_before);
    copy.add_(inner.second.values().back());
  });
  for (const at::Tensor& copy : total.components()) {
    EXPECT_EQ(copy.item<float>(), n * (n - 1) / 2);
  }
}

/// Waits until as many threads are here as are expected; false if they do not come.
bool meet(std::atomic<int>& here, int expected) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  ++here;
  while (here < expected) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(RunConcurrently, ReplicasOnDifferentDevicesComputeAtTheSameTime) {
  std::atomic<int> here = 0;
  EXPECT_THAT(values_of(mirrored(2).run([&] { return meet(here, 2); })), Each(true));
}

TEST(RunConcurrently, ReplicasOfOneDeviceTakeTurns) {
  std::atomic<int> computing = 0, most = 0;
  mirrored(1, 4).run([&] {
    for (int i = 0; i < 20; ++i) {
      most = std::max(most.load(), ++computing);
      std::this_thread::yield();
      --computing;
      get_replica_context().all_reduce("SUM", at::ones({1}));
    }
  });
  EXPECT_EQ(most, 1);
}

TEST(RunConcurrently, TwoThreadsRunOneStrategySideBySide) {
  const Strategy strategy = mirrored(2);
  std::atomic<int> here = 0;
  std::vector<std::vector<double>> sums(2);
  std::vector<std::thread> users;
  for (int user = 0; user < 2; ++user) {
    users.emplace_back([&, user] {
      sums[user] = values_of(strategy.run([&] {
        meet(here, 4);
        const auto own = at::full({}, 10. * user + id(), at::kDouble);
        return get_replica_context().all_reduce("SUM", own).item<double>();
      }));
    });
  }
  for (auto& user : users) user.join();
  EXPECT_THAT(sums[0], Each(1));
  EXPECT_THAT(sums[1], Each(21));
}

TEST(RunConcurrently, StrategiesOfDifferentSizesWorkSideBySide) {
  const Strategy small = mirrored(2), large = mirrored(3, 5);
  const auto train = [](const Strategy& strategy) {
    for (int i = 0; i < 50; ++i) {
      const auto sums = strategy.run(
          [] { return get_replica_context().all_reduce("SUM", at::ones({})).item<double>(); });
      EXPECT_THAT(values_of(sums), Each(strategy.num_replicas_in_sync()));
    }
  };
  std::thread other([&] { train(large); });
  train(small);
  other.join();
}

/// While it lives, no thread can be started: its stack would be larger than the address space.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    EXPECT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 47), 0);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
  }
  ~NoMoreThreads() { pthread_setattr_default_np(&before_); }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST(RunLifetime, ARunThatCouldNotBeginIsNotInFlight) {
  auto strategy = std::make_unique<Strategy>(mirrored(3));
  {
    const NoMoreThreads none;
    EXPECT_THROW(strategy->run([] {}), std::system_error);
    auto never_run = std::make_unique<Strategy>(mirrored(3));
    EXPECT_THROW(never_run->run([] {}), std::system_error);
    never_run.reset();  // waits for nothing
  }
  EXPECT_THAT(values_of(strategy->run([] { return id(); })), ElementsAre(0, 1, 2));
}

/// Of whose strategy others can be made, alike.
struct LastHandle : OnLayouts {
  LastHandle(const Layout& layout, const std::optional<Worker>& worker)
      : OnLayouts(layout, worker), layout(layout), worker(worker) {}

  std::unique_ptr<Strategy> another() const {
    const Job job{layout.replicas, layout.workers};
    return std::make_unique<Strategy>(worker ? strategy_of(job, *worker)
                                             : mirrored(layout.devices, layout.replicas));
  }

  const Layout layout;
  const std::optional<Worker> worker;
};
ON_ALL_LAYOUTS(LastHandle);

TEST_ON_EACH_WORKER(LastHandle, WaitsForARunInFlightWhenItIsDropped) {
  std::atomic<bool> started = false, ended = false;
  auto handle = another();
  std::thread user([&, &extended = handle->extended()] {
    extended.call_for_each_replica([&] {
      started = true;
      if (id() != ids_here().back()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ended = true;
    });
  });
  while (!started) std::this_thread::yield();
  handle.reset();
  EXPECT_TRUE(ended);
  user.join();
}

TEST_ON_EACH_WORKER(LastHandle, MayBeDroppedByAReplica) {
  for (const int who : {ids_here().front(), ids_here().back()}) {
    auto handle = another();
    const Strategy& own = *handle;
    const auto ids = own.run([&] {
      if (id() == who) handle.reset();
      get_replica_context().all_reduce("SUM", at::ones({1}));
      return id();
    });
    EXPECT_THAT(values_of(ids), ElementsAreArray(ids_here()));
  }
}

}  // namespace
}  // namespace cohort
