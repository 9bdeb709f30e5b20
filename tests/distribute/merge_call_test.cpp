#include "cohort/distribute/merge_call.h"

#include "tests/distribute/layouts.h"

namespace cohort {
namespace {

using testing::Each;
using testing::ElementsAreArray;

struct MergeCall : OnLayouts {
  using OnLayouts::OnLayouts;
  template <class F, class... Args>
  static auto merge(F&& fn, const Args&... args) {
    return get_replica_context().merge_call(fn, args...);
  }
};
ON_ALL_LAYOUTS(MergeCall);

TEST_ON_EACH_WORKER(MergeCall, CallsTheFunctionOnceAWorkerInTheFirstReplicasThread) {
  std::atomic<int> calls = 0;
  const auto caller = std::this_thread::get_id();
  strategy.run([&] {
    merge([&](Strategy&) {
      ++calls;
      EXPECT_EQ(std::this_thread::get_id(), caller);
    });
  });
  EXPECT_EQ(calls, 1);
}

TEST_ON_EACH_WORKER(MergeCall, GetsWhatAllLocalReplicasBring) {
  strategy.run([&] {
    merge(
        [&](Strategy&, const PerReplica<int>& x) {
          EXPECT_THAT(values_of(x), ElementsAreArray(ids_here()));
          EXPECT_EQ(x.devices()->size(), static_cast<std::size_t>(n_here));
        },
        id());
  });
}

TEST_ON_EACH_WORKER(MergeCall, MergesNests) {
  strategy.run([&] {
    merge(
        [&](Strategy&, const std::pair<PerReplica<int>, std::vector<PerReplica<double>>>& x) {
          EXPECT_EQ(x.second[0].values().back(), ids_here().back() / 2.);
        },
        std::pair(id(), std::vector{id() / 2.}));
  });
}

TEST_ON_EACH_WORKER(MergeCall, GivesEachReplicaItsPartOfTheResult) {
  const auto results = strategy.run([&] {
    return merge(
        [](Strategy&, const PerReplica<int>& x) { return std::tuple(x, 5, std::vector{x}); }, id());
  });
  EXPECT_THAT(values_of(std::get<0>(results)), ElementsAreArray(ids_here()));
  EXPECT_THAT(values_of(std::get<1>(results)), Each(5));
  EXPECT_THAT(values_of(std::get<2>(results)[0]), ElementsAreArray(ids_here()));
}

TEST_ON_EACH_WORKER(MergeCall, RunsTheFirstLocalReplicasFunction) {
  const auto results = strategy.run([&] {
    const std::function<int(Strategy&)> own = [r = id()](Strategy&) { return 100 + r; };
    return merge(own);
  });
  EXPECT_THAT(values_of(results), Each(100 + first_here));
}

TEST_ON_EACH_WORKER(MergeCall, MayReduce) {
  const auto sums = strategy.run([&] {
    return merge([](Strategy& s, const PerReplica<double>& x) { return s.reduce("SUM", x); },
                 id() + 1.)
        .template item<double>();
  });
  EXPECT_THAT(values_of(sums), Each(n * (n + 1) / 2.));
}

TEST_ON_EACH_WORKER(MergeCall, HundredsInARow) {
  const auto counts = strategy.run([&] {
    int count = 0;
    for (int i = 0; i < 200; ++i) {
      count += merge([](Strategy&, const PerReplica<int>& x) { return x.values()[0]; }, i);
    }
    return count;
  });
  EXPECT_THAT(values_of(counts), Each(199 * 200 / 2));
}

}  // namespace
}  // namespace cohort
