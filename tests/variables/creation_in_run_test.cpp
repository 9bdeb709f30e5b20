#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

int id() { return get_replica_context().replica_id_in_sync_group(); }

TEST(VariablesMadeInRun, AreTheSameOnAllReplicas) {
  for (const VariableWords& world :
       {two_replicas(), four_replicas_on_two_devices(), central_storage(), one_device()}) {
    const Variable v = world.strategy.run([] { return Variable(float(id()) + 5, {.name = "w"}); });
    EXPECT_EQ(v.name(), "w");
    EXPECT_EQ(v.components().size(), world.strategy.num_replicas_in_sync());
    for (const double x : components(v)) EXPECT_EQ(x, 5) << "replica 0's value counts";
  }
}

TEST(VariablesMadeInRun, AreFoundByOrderAmongThoseOfTheirName) {
  const VariableWords world = two_replicas();
  const auto [a, b, c] = world.strategy.run([] {
    const Variable first(1.0f, {.name = "w"}), second(2.0f, {.name = "w"}), unnamed(3.0f);
    return std::tuple{first, second, unnamed};
  });
  EXPECT_EQ(components(a), Numbers(2, 1));
  EXPECT_EQ(components(b), Numbers(2, 2));
  EXPECT_EQ(c.name(), "Variable");
}

TEST(VariablesMadeInRun, MayComeInAnotherOrderWhenNamesDiffer) {
  const VariableWords world = two_replicas();
  const auto [a, b] = world.strategy.run([] {
    std::optional<Variable> a, b;
    if (id() == 0) a.emplace(1.0f, VariableOptions{.name = "a"});
    b.emplace(2.0f, VariableOptions{.name = "b"});
    if (id() == 1) a.emplace(1.0f, VariableOptions{.name = "a"});
    return std::tuple{*a, *b};
  });
  EXPECT_EQ(a.name(), "a");
  EXPECT_EQ(b.name(), "b");
}

TEST(VariablesMadeInRun, NumbersThatTellNamesApartDoNotCount) {
  const VariableWords world = two_replicas();
  const Variable v =
      world.strategy.run([] { return Variable(1.0f, {.name = cat("l_", id(), "/w_", id())}); });
  EXPECT_EQ(v.name(), "l_0/w_0");
  EXPECT_EQ(detail::canonical_name("layer_1/w_23"), "layer/w");
  EXPECT_EQ(detail::canonical_name("w1x/_/v_a"), "w1x/_/v_a");
  EXPECT_EQ(detail::canonical_name(""), "Variable");
}

TEST(VariablesMadeInRun, AMissingOneIsAMismatch) {
  for (const VariableWords& world : {two_replicas(), four_replicas_on_two_devices()}) {
    EXPECT_FAILS(world.strategy.run([] { Variable(1.0f, {.name = cat("w", id(), "x")}); }),
                 RuntimeError, "mismatching name");
    EXPECT_FAILS(world.strategy.run([] {
      if (id() == 1) Variable(1.0f, {.name = "solo"});
    }),
                 RuntimeError, "mismatching name");
    EXPECT_FAILS(world.strategy.run([] {
      if (id() == 1) Variable(1.0f, {.name = "solo"});
      get_replica_context().all_reduce(ReduceOp::SUM, 1);
    }),
                 RuntimeError, "mismatching name");
  }
}

TEST(VariablesMadeInRun, ARunStartsFromTheBeginning) {
  const VariableWords world = two_replicas();
  const auto make = [] { return Variable(1.0f, {.name = "w"}); };
  EXPECT_FALSE(world.strategy.run(make) == world.strategy.run(make));
}

TEST(VariablesMadeInRun, InAMergeCallAreMadeOnce) {
  const VariableWords world = two_replicas();
  const auto made = world.strategy.run(
      [] { return get_replica_context().merge_call([](Strategy&) { return Variable(4.0f); }); });
  EXPECT_EQ(components(made), Numbers(2, 4));
  EXPECT_STREQ(made.kind_name(), "MirroredVariable");
}

TEST(VariablesMadeInRun, FailOnAllReplicasWhenReplica0Fails) {
  const VariableWords world = two_replicas();
  const auto make = [] { Variable(1.0f, {.synchronization = Synchronization::NONE}); };
  EXPECT_FAILS(world.strategy.run(make), ValueError, "`NONE` variable synchronization mode");
}

TEST(VariablesMadeInRun, CanBeUsedAtOnce) {
  const VariableWords world = four_replicas_on_two_devices();
  const auto sums = world.strategy.run([] {
    const Variable v(0.0f, {.aggregation = Aggregation::SUM});
    return v.assign_add(1.0f) + 0;
  });
  EXPECT_EQ(numbers(sums), Numbers(4, 4));
}

}  // namespace
}  // namespace cohort
