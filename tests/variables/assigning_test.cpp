#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

/// The components after each replica did this, starting at 1.
template <class F>
Numbers after_run(const VariableWords& world, Synchronization synchronization, A aggregation,
                  F&& change) {
  const Variable v = world.make(synchronization, aggregation);
  const auto returned = numbers(world.strategy.run([&] { return change(v); }));
  EXPECT_EQ(returned, components(v)) << "each replica gets its own component's new value";
  return components(v);
}

const auto assign_id = [](const Variable& v) { return v.assign(id_tensor()); };
const auto add_id = [](const Variable& v) { return v.assign_add(id_tensor()); };
const auto sub_id = [](const Variable& v) { return v.assign_sub(id_tensor()); };
const auto assign_5 = [](const Variable& v) { return v.assign(5.0); };
const auto add_5 = [](const Variable& v) { return v.assign_add(5.0); };

struct AssignInReplicas : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
  template <class F>
  Numbers after_run(Synchronization synchronization, A aggregation, F&& change) const {
    return cohort::after_run(VariableWords(strategy), synchronization, aggregation, change);
  }
};
ON_ALL_LAYOUTS(AssignInReplicas);

// ON_WRITE in replicas.

TEST_ON_EACH_WORKER(AssignInReplicas, SumGoesToAllCopies) {
  EXPECT_EQ(after_run(ON_WRITE, A::SUM, assign_id), here(sum_of_ids()));
  EXPECT_EQ(after_run(ON_WRITE, A::SUM, add_id), here(1 + sum_of_ids()));
  EXPECT_EQ(after_run(ON_WRITE, A::SUM, sub_id), here(1 - sum_of_ids()));
}

TEST_ON_EACH_WORKER(AssignInReplicas, SumCountsALiteralOncePerReplica) {
  EXPECT_EQ(after_run(ON_WRITE, A::SUM, assign_5), here(5 * n));
  EXPECT_EQ(after_run(ON_WRITE, A::SUM, add_5), here(1 + 5 * n));
  const at::Tensor captured = at::scalar_tensor(5.0f);
  const auto assign_captured = [&](const Variable& v) { return v.assign(captured); };
  EXPECT_EQ(after_run(ON_WRITE, A::SUM, assign_captured), here(5 * n));
}

TEST_ON_EACH_WORKER(AssignInReplicas, MeanGoesToAllCopies) {
  EXPECT_EQ(after_run(ON_WRITE, A::MEAN, assign_id), here(mean_of_ids()));
  EXPECT_EQ(after_run(ON_WRITE, A::MEAN, add_id), here(1 + mean_of_ids()));
  EXPECT_EQ(after_run(ON_WRITE, A::MEAN, sub_id), here(1 - mean_of_ids()));
  EXPECT_EQ(after_run(ON_WRITE, A::MEAN, add_5), here(6));
}

TEST_ON_EACH_WORKER(AssignInReplicas, TheFirstReplicasValueGoesToAllCopies) {
  const auto add_seven = [](const Variable& v) { return v.assign_add(7 * (id_tensor() + 1)); };
  EXPECT_EQ(after_run(ON_WRITE, A::ONLY_FIRST_REPLICA, assign_id), here(0));
  EXPECT_EQ(after_run(ON_WRITE, A::ONLY_FIRST_REPLICA, assign_5), here(5));
  EXPECT_EQ(after_run(ON_WRITE, A::ONLY_FIRST_REPLICA, add_seven), here(8));
}

TEST_ON_EACH_WORKER(AssignInReplicas, WithoutAggregationIsAnError) {
  const Variable v = make(AUTO, A::NONE);
  EXPECT_RUN_FAILS(strategy.run([&] { assign_5(v); }), ValueError,
                   "You must specify an aggregation method");
  EXPECT_RUN_FAILS(strategy.run([&] { add_id(v); }), ValueError,
                   "You must specify an aggregation method");
  EXPECT_EQ(components(v), here(1));
}

TEST_ON_EACH_WORKER(AssignInReplicas, CopiesStayTheSameWhenTheValueIsTheVariableItself) {
  for (const A aggregation : {A::SUM, A::MEAN, A::ONLY_FIRST_REPLICA}) {
    const auto twice = [](const Variable& v) { return v.assign_add(v); };
    const double expected = aggregation == A::SUM ? 1 + n : 2;
    EXPECT_EQ(after_run(ON_WRITE, aggregation, twice), here(expected));
  }
}

TEST_ON_EACH_WORKER(AssignInReplicas, AnExpressionOfTheVariableIsAValueLikeAnyOther) {
  const auto change = [](const Variable& v) { return v.assign(v * 2 + id_tensor()); };
  EXPECT_EQ(after_run(ON_WRITE, A::MEAN, change), here(2 + mean_of_ids()));
}

TEST_ON_EACH_WORKER(AssignInReplicas, AnotherVariableIsItsOwnValue) {
  const Variable v = make(ON_WRITE, A::SUM), local = make(ON_READ, A::SUM);
  strategy.run([&] {
    local.assign(2 + 3 * id_tensor());
    v.assign(local);
  });
  EXPECT_EQ(components(v), here(2 * n + 3 * sum_of_ids()));
}

TEST_ON_EACH_WORKER(AssignInReplicas, APerReplicaIsItsOwnComponent) {
  const auto all = ids();
  const Variable v = make(ON_WRITE, A::SUM);
  strategy.run([&] { v.assign(all); });
  EXPECT_EQ(components(v), here(sum_of_ids()));
}

const auto add_integer = [](const Variable& v) { v.assign_add(id_tensor().to(at::kInt) + 1); };

TEST_ON_EACH_WORKER(AssignInReplicas, IntegersAreSummed) {
  const Variable sum = make(ON_WRITE, A::SUM, at::scalar_tensor(1, at::kInt));
  strategy.run([&] { add_integer(sum); });
  EXPECT_EQ(components(sum), here(1 + n + sum_of_ids()));
}

TEST(AssignInReplicas, IntegersOfCentralStorageHaveNoMean) {
  const VariableWords central = central_storage();
  const Variable mean = central.make(AUTO, A::MEAN, at::scalar_tensor(1, at::kInt));
  EXPECT_FAILS(central.strategy.run([&] { add_integer(mean); }), ValueError,
               "the mean over replicas");
  EXPECT_EQ(number(mean), 1);
}

TEST_ON_EACH_WORKER(AssignInReplicas, WithoutReadValueNothingIsReturned) {
  const Variable v = make(ON_WRITE, A::SUM);
  const auto returned =
      strategy.run([&] { return v.assign_add(id_tensor(), {.read_value = false}); });
  for (const at::Tensor& each : returned.values()) EXPECT_FALSE(each.defined());
  EXPECT_EQ(components(v), here(1 + sum_of_ids()));
}

TEST_ON_EACH_WORKER(AssignInReplicas, ManyChangesOfSeveralVariables) {
  const Variable sum = make(ON_WRITE, A::SUM), mean = make(ON_WRITE, A::MEAN),
                 first = make(ON_WRITE, A::ONLY_FIRST_REPLICA);
  for (int step = 0; step < 3; ++step) {
    strategy.run([&] {
      for (int i = 0; i < 10; ++i) {
        sum.assign_add(id_tensor());
        mean.assign_sub(id_tensor());
        first.assign_add(id_tensor() + i);
      }
    });
  }
  EXPECT_EQ(components(sum), here(1 + 30 * sum_of_ids()));
  EXPECT_EQ(components(mean), here(1 - 30 * mean_of_ids()));
  EXPECT_EQ(components(first), here(1 + 3 * 45));
}

TEST_ON_EACH_WORKER(AssignInReplicas, ReplicasThatChangeDifferentVariablesAreTold) {
  const Variable v = make(ON_WRITE, A::SUM), w = make(ON_WRITE, A::SUM);
  if (n > 1) {
    const auto apart = [&] { (id() == 0 ? v : w).assign(1); };
    EXPECT_FAILS(strategy.run(apart), InvalidArgument, "the same variable");
    begin_next_run();
  }
  EXPECT_EQ(after_run(ON_WRITE, A::SUM, assign_id), here(sum_of_ids())) << "works afterwards";
}

TEST_ON_EACH_WORKER(AssignInReplicas, WorkersThatChangeDifferentVariablesAreTold) {
  const auto scope = strategy.scope();
  const Variable v(1.0f, {.name = "v", .aggregation = A::SUM});
  const Variable w(1.0f, {.name = "w", .aggregation = A::MEAN});
  const bool other = workers > 1 && is_here(last);
  const auto fails = [&](const auto& change, const std::string& one, const std::string& another) {
    const std::string failure = failure_of([&] { strategy.run(change); });
    if (workers == 1) {
      EXPECT_EQ(failure, "nothing");
      return;
    }
    EXPECT_THAT(failure, testing::StartsWith("InvalidArgument"));
    EXPECT_THAT(failure, testing::HasSubstr(one));
    EXPECT_THAT(failure, testing::HasSubstr(another));
    EXPECT_EQ(components(v), here(1));
    EXPECT_EQ(components(w), here(1));
  };
  fails([&] { (other ? v : w).assign(1); }, "variable.assign of MirroredVariable 'v'",
        "variable.assign of MirroredVariable 'w'");
  fails([&] { other ? v.assign_add(1) : v.assign_sub(1); }, "variable.assign_add of",
        "variable.assign_sub of");
}

TEST_ON_EACH_WORKER(AssignInReplicas, ShapesThatDifferAreAnErrorWhereAllReplicasCount) {
  if (n == 1) return;
  for (const A aggregation : {A::SUM, A::MEAN}) {
    for (const int one : {last_of_chief, last}) {
      const Variable v = make(ON_WRITE, aggregation, at::ones({2}));
      const auto assign = [&] { v.assign(at::ones({id() == one ? 3 : 2})); };
      if (is_here(one)) {
        EXPECT_FAILS(strategy.run(assign), InvalidArgument, "[3]");
      } else {  // Cancelled where the replicas of the other worker do not fit to each other
        EXPECT_RUN_FAILS(strategy.run(assign), InvalidArgument, "[3]");
      }
      EXPECT_EQ(components(v), here(1));
      begin_next_run();
    }
  }
}

TEST_ON_EACH_WORKER(AssignInReplicas, ShapesOfOthersDoNotMatterWhereOnlyTheFirstReplicaCounts) {
  const Variable v = make(ON_WRITE, A::ONLY_FIRST_REPLICA, at::ones({1}));
  strategy.run([&] { v.assign(at::full({id() + 1}, 4.0f + id())); });
  EXPECT_EQ(components(v), here(4));
  strategy.run([&] { v.assign_add(at::full({id() + 1}, 1.0f + id())); });
  EXPECT_EQ(components(v), here(5));
}

TEST_ON_EACH_WORKER(AssignInReplicas, AShapeThatDoesNotFitIsAnErrorOfTheAggregate) {
  const Variable v = make(ON_WRITE, A::SUM, at::ones({2}));
  EXPECT_RUN_FAILS(strategy.run([&] { v.assign(at::ones({3})); }), ValueError, "Shape mismatch");
  EXPECT_RUN_FAILS(strategy.run([&] { v.assign_add(at::ones({3})); }), InvalidArgument,
                   "Shape mismatch");
  EXPECT_EQ(components(v), here(1));
}

TEST_ON_EACH_WORKER(AssignInReplicas, TheSameNumberOfReplicasGivesTheSameBitsOnAnyDevices) {
  const auto train = [](const Strategy& strategy, A aggregation) {
    const Variable v = VariableWords(strategy).make(ON_WRITE, aggregation, at::zeros({33}));
    for (int step = 0; step < 3; ++step) {
      strategy.run([&] { v.assign_add(at::sin(v + id_tensor() * 0.37f + 0.11f)); });
    }
    return v.read_value();
  };
  const Strategy alone = MirroredStrategy({.devices = {"cpu:0"}, .replicas = n});
  for (const A aggregation : {A::SUM, A::MEAN, A::ONLY_FIRST_REPLICA}) {
    EXPECT_TRUE(at::equal(train(strategy, aggregation), train(alone, aggregation)));
  }
}

// ON_READ in replicas.

TEST_ON_EACH_WORKER(AssignInReplicas, OnReadChangesTheOwnValueOnly) {
  for (const A aggregation : kAggregations) {
    EXPECT_EQ(after_run(ON_READ, aggregation, assign_id), each_here([](int id) { return id; }));
    EXPECT_EQ(after_run(ON_READ, aggregation, add_id), each_here([](int id) { return 1 + id; }));
    EXPECT_EQ(after_run(ON_READ, aggregation, sub_id), each_here([](int id) { return 1 - id; }));
  }
}

TEST_ON_EACH_WORKER(AssignInReplicas, OnReadNeedsNoOtherReplica) {
  const Variable v = make(ON_READ, A::SUM);
  strategy.run([&] {
    if (id() == last) v.assign_add(5);
  });
  EXPECT_EQ(components(v), each_here([&](int id) { return id == last ? 6 : 1; }));
  EXPECT_EQ(number(v), n + 5);
}

TEST_ON_EACH_WORKER(AssignInReplicas, OnReadAddsUpOverSteps) {
  const Variable v = make(ON_READ, A::SUM, at::scalar_tensor(0.0f));
  for (int step = 0; step < 2; ++step) {
    strategy.run([&] { v.assign_add(id_tensor() + 1); });
  }
  EXPECT_EQ(components(v), each_here([](int id) { return 2 * (id + 1); }));
  EXPECT_EQ(number(v), n * (n + 1));
}

// Stored once.

TEST(AssignInReplicas, CentralStorageAggregatesAndStoresOnce) {
  const VariableWords world = central_storage();
  EXPECT_EQ(after_run(world, AUTO, A::SUM, add_5), Numbers(2, 11));
  EXPECT_EQ(after_run(world, AUTO, A::MEAN, add_5), Numbers(2, 6));
  EXPECT_EQ(after_run(world, AUTO, A::ONLY_FIRST_REPLICA, add_5), Numbers(2, 6));
  EXPECT_EQ(after_run(world, ON_READ, A::SUM, add_id), Numbers(2, 2));
  EXPECT_EQ(after_run(world, AUTO, A::MEAN, assign_id), Numbers(2, 0.5));
}

TEST(AssignInReplicas, CentralStorageNeedsAnAggregation) {
  const VariableWords world = central_storage();
  const Variable v = world.make(AUTO, A::NONE);
  EXPECT_FAILS(world.strategy.run([&] { assign_5(v); }), ValueError,
               "You must specify an aggregation method");
  EXPECT_FAILS(world.strategy.run([&] { add_id(v); }), ValueError,
               "You must specify an aggregation method");
}

TEST(AssignInReplicas, OneDeviceAndDefaultJustAssign) {
  EXPECT_EQ(after_run(one_device(), AUTO, A::NONE, assign_id), Numbers(1, 0));
  EXPECT_EQ(after_run(one_device(), ON_READ, A::SUM, add_5), Numbers(1, 6));
  const Variable v(1.0f);
  EXPECT_EQ(number(v.assign_add(2)), 3);
  EXPECT_EQ(numbers(default_strategy().run([&] { return v.assign_sub(1); })), Numbers(1, 2));
}

}  // namespace
}  // namespace cohort
