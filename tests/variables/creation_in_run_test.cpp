#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

int local_id() { return get_replica_context().local_id(); }

struct VariablesMadeInRun : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
};
ON_ALL_LAYOUTS(VariablesMadeInRun);

TEST_ON_EACH_WORKER(VariablesMadeInRun, AreTheSameOnAllReplicas) {
  for (const auto how : {Synchronization::ON_WRITE, Synchronization::ON_READ}) {
    const Variable v = strategy.run(
        [&] { return Variable(float(id()) + 5, {.name = "w", .synchronization = how}); });
    EXPECT_EQ(v.name(), "w");
    EXPECT_EQ(components(v), here(5)) << "replica 0's value counts";
  }
}

TEST(VariablesMadeInRun, OfOtherStrategiesAreTheSameOnAllReplicas) {
  for (const VariableWords& world : {central_storage(), one_device()}) {
    const Variable v = world.strategy.run([] { return Variable(float(id()) + 5, {.name = "w"}); });
    EXPECT_EQ(v.name(), "w");
    EXPECT_EQ(v.components().size(), world.strategy.num_replicas_in_sync());
    for (const double x : components(v)) EXPECT_EQ(x, 5) << "replica 0's value counts";
  }
}

TEST_ON_EACH_WORKER(VariablesMadeInRun, StartWithTheValueOfTheJobsReplica0WhereverItIsRandom) {
  const Variable v = strategy.run([&] {
    seed_thread(id());
    return Variable([] { return at::rand({4}); }, {.name = "w"});
  });
  const auto values = strategy.run([&] { return v.value().unsqueeze(0); });
  const at::Tensor all = strategy.gather(values, 0);
  for (int i = 0; i < n; ++i) EXPECT_TRUE(at::equal(all[i], all[0]));
}

TEST_ON_EACH_WORKER(VariablesMadeInRun, CallTheInitializerOnceAWorker) {
  std::atomic<int> calls = 0;
  strategy.run([&] {
    return Variable([&] {
      ++calls;
      return at::ones({});
    });
  });
  EXPECT_EQ(calls, 1);
}

TEST_ON_EACH_WORKER(VariablesMadeInRun, AreFoundByOrderAmongThoseOfTheirName) {
  const auto [a, b, c] = strategy.run([] {
    const Variable first(1.0f, {.name = "w"}), second(2.0f, {.name = "w"}), unnamed(3.0f);
    return std::tuple{first, second, unnamed};
  });
  EXPECT_EQ(components(a), here(1));
  EXPECT_EQ(components(b), here(2));
  EXPECT_EQ(components(c), here(3));
  EXPECT_EQ(c.name(), "Variable");
}

TEST_ON_EACH_WORKER(VariablesMadeInRun, MayComeInAnotherOrderWhenNamesDiffer) {
  // The first replica of each worker makes them: these have the same order.
  const auto [a, b] = strategy.run([] {
    std::optional<Variable> a, b;
    if (local_id() == 0) a.emplace(1.0f, VariableOptions{.name = "a"});
    b.emplace(2.0f, VariableOptions{.name = "b"});
    if (local_id() != 0) a.emplace(1.0f, VariableOptions{.name = "a"});
    return std::tuple{*a, *b};
  });
  EXPECT_EQ(a.name(), "a");
  EXPECT_EQ(b.name(), "b");
  EXPECT_EQ(components(a), here(1));
  EXPECT_EQ(components(b), here(2));
}

TEST_ON_EACH_WORKER(VariablesMadeInRun, InAnotherOrderOnAnotherWorkerAreAnErrorOnAll) {
  const auto make = [&] {
    for (const bool first : {true, false}) {
      Variable(1.0f, {.name = first == is_here(last) ? "a" : "b"});
    }
  };
  if (workers == 1) return strategy.run(make);
  EXPECT_FAILS(strategy.run(make), InvalidArgument, "Variable a");
  EXPECT_FAILS(strategy.run(make), InvalidArgument, "Variable b");
}

TEST_ON_EACH_WORKER(VariablesMadeInRun, NumbersThatTellNamesApartDoNotCount) {
  const Variable v = strategy.run(
      [] { return Variable(1.0f, {.name = cat("l_", local_id(), "/w_", local_id())}); });
  EXPECT_EQ(v.name(), "l_0/w_0");
}

TEST(VariablesMadeInRun, CanonicalNamesHaveNoNumbers) {
  EXPECT_EQ(detail::canonical_name("layer_1/w_23"), "layer/w");
  EXPECT_EQ(detail::canonical_name("w1x/_/v_a"), "w1x/_/v_a");
  EXPECT_EQ(detail::canonical_name(""), "Variable");
}

TEST_ON_EACH_WORKER(VariablesMadeInRun, AMissingOneIsAMismatch) {
  if (n == 1) return;
  // Workers with one replica have none that misses it: the others' failure ends their run.
  EXPECT_RUN_FAILS(strategy.run([] {
    Variable(1.0f, {.name = cat("w", local_id(), "x")});
    get_replica_context().barrier();
  }),
                   RuntimeError, "mismatching name");
  const auto solo = [&](bool is_it) {
    if (is_it) Variable(1.0f, {.name = "solo"});
    get_replica_context().all_reduce(ReduceOp::SUM, 1);
  };
  EXPECT_REPLICA_FAILS(last_of_chief, strategy.run([&] { solo(id() == last_of_chief); }),
                       RuntimeError, cat("mismatching name on replica ", last_of_chief));
  const int other = extended().world().first_of(workers / 2) + 1;  // not the first of its worker
  EXPECT_REPLICA_FAILS(other, strategy.run([&] { solo(id() == other); }), RuntimeError,
                       cat("mismatching name on replica ", other, ": replica ", other - 1));
}

TEST_ON_EACH_WORKER(VariablesMadeInRun, AMissingOneIsAMismatchAlsoWhereNobodyWaits) {
  if (n == 1 || workers > 1) return;  // others would lose their next run
  EXPECT_FAILS(strategy.run([] { Variable(1.0f, {.name = cat("w", id(), "x")}); }), RuntimeError,
               "mismatching name");
  EXPECT_FAILS(strategy.run([] {
    if (id() == 1) Variable(1.0f, {.name = "solo"});
  }),
               RuntimeError, "mismatching name");
}

TEST_ON_EACH_WORKER(VariablesMadeInRun, ARunStartsFromTheBeginning) {
  const auto make = [] { return Variable(1.0f, {.name = "w"}); };
  const Variable first = strategy.run(make), second = strategy.run(make);
  EXPECT_FALSE(first == second);
}

TEST_ON_EACH_WORKER(VariablesMadeInRun, InAMergeCallAreMadeOnce) {
  const auto made = strategy.run([] {
    return get_replica_context().merge_call(
        [](Strategy& merged) { return Variable(4.0f + merged.extended().world().first()); });
  });
  EXPECT_EQ(components(made), here(4));
  EXPECT_STREQ(made.kind_name(), "MirroredVariable");
}

TEST_ON_EACH_WORKER(VariablesMadeInRun, FailOnAllReplicasWhenTheFirstFails) {
  const auto make = [] { Variable(1.0f, {.synchronization = Synchronization::NONE}); };
  EXPECT_RUN_FAILS(strategy.run(make), ValueError, "`NONE` variable synchronization mode");
}

TEST_ON_EACH_WORKER(VariablesMadeInRun, FailOnAllWorkersWhenTheInitializerThrowsOnOne) {
  const int other = extended().world().first_of(workers - 1);
  const auto make = [&] {
    Variable([&] {
      if (id() == other) throw ValueError("initializer", "no file");
      return at::ones({});
    });
  };
  EXPECT_REPLICA_FAILS(other, strategy.run(make), ValueError, "no file");
}

TEST_ON_EACH_WORKER(VariablesMadeInRun, CanBeUsedAtOnce) {
  const auto sums = strategy.run([] {
    const Variable v(0.0f, {.aggregation = Aggregation::SUM});
    return v.assign_add(1.0f) + 0;
  });
  EXPECT_EQ(numbers(sums), here(n));
}

}  // namespace
}  // namespace cohort
