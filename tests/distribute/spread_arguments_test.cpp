// Functions of several arguments that are given a pair or a tuple.

#include "tests/distribute/layouts.h"

namespace cohort {
namespace {

using testing::Each;
using testing::ElementsAreArray;

struct SpreadArguments : OnLayouts {
  using OnLayouts::OnLayouts;
  /// The own number and its tenfold, in one.
  template <class Both>
  PerReplica<Both> ids_and_tens() const {
    std::vector<Both> each;
    for (const int id : ids_here()) each.emplace_back(id, 10 * id);
    return PerReplica<Both>(each);
  }
  std::vector<int> elevenfold() const {
    std::vector<int> all = ids_here();
    for (int& each : all) each *= 11;
    return all;
  }
};
ON_ALL_LAYOUTS(SpreadArguments);

const auto sum_of_two = [](int a, int b) { return a + b; };

TEST_ON_EACH_WORKER(SpreadArguments, APairOrTupleOfSharedValues) {
  EXPECT_THAT(values_of(strategy.run(sum_of_two, std::pair(1, 2))), Each(3));
  EXPECT_THAT(values_of(strategy.run(sum_of_two, std::tuple(1, 2))), Each(3));
}

TEST_ON_EACH_WORKER(SpreadArguments, APairOrTupleOfPerReplicas) {
  const auto own = strategy.run([] { return std::pair(id(), 10 * id()); });
  EXPECT_THAT(values_of(strategy.run(sum_of_two, own)), ElementsAreArray(elevenfold()));
  const std::tuple mixed(own.first, 5);
  EXPECT_EQ(strategy.run(sum_of_two, mixed).values()[0], first_here + 5);
}

TEST_ON_EACH_WORKER(SpreadArguments, APerReplicaOfPairsOrTuples) {
  EXPECT_THAT(values_of(strategy.run(sum_of_two, ids_and_tens<std::pair<int, int>>())),
              ElementsAreArray(elevenfold()));
  EXPECT_THAT(values_of(strategy.run(sum_of_two, ids_and_tens<std::tuple<int, int>>())),
              ElementsAreArray(elevenfold()));
}

TEST_ON_EACH_WORKER(SpreadArguments, BesideOtherArguments) {
  const auto sum_of_three = [](int a, int b, int c) { return a + b + c; };
  EXPECT_THAT(values_of(strategy.run(sum_of_three, std::pair(1, 2), 4)), Each(7));
}

TEST_ON_EACH_WORKER(SpreadArguments, AFunctionThatTakesThePairGetsThePair) {
  const auto first = [](const std::pair<int, int>& both) { return both.first; };
  EXPECT_THAT(values_of(strategy.run(first, std::pair(1, 2))), Each(1));
}

TEST_ON_EACH_WORKER(SpreadArguments, OfAMergeCall) {
  const auto sums = strategy.run([] {
    return get_replica_context().merge_call(
        [](Strategy& current, const PerReplica<int>& a, const PerReplica<int>& b) {
          return current.reduce("SUM", a).item<int>() + current.reduce("SUM", b).item<int>();
        },
        std::pair(id(), 1));
  });
  EXPECT_THAT(values_of(sums), Each(n * (n - 1) / 2 + n));
}

}  // namespace
}  // namespace cohort
