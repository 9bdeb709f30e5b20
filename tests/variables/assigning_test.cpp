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

const auto assign_id = [](const Variable& v) { return v.assign(VariableWords::id()); };
const auto add_id = [](const Variable& v) { return v.assign_add(VariableWords::id()); };
const auto sub_id = [](const Variable& v) { return v.assign_sub(VariableWords::id()); };
const auto assign_5 = [](const Variable& v) { return v.assign(5.0); };
const auto add_5 = [](const Variable& v) { return v.assign_add(5.0); };

// ON_WRITE in replicas.

TEST(AssignInReplicas, SumGoesToAllCopies) {
  const VariableWords two = two_replicas(), four = four_replicas_on_two_devices();
  EXPECT_EQ(after_run(two, ON_WRITE, A::SUM, assign_id), Numbers(2, 1));
  EXPECT_EQ(after_run(two, ON_WRITE, A::SUM, add_id), Numbers(2, 2));
  EXPECT_EQ(after_run(two, ON_WRITE, A::SUM, sub_id), Numbers(2, 0));
  EXPECT_EQ(after_run(four, ON_WRITE, A::SUM, assign_id), Numbers(4, 6));
  EXPECT_EQ(after_run(four, ON_WRITE, A::SUM, add_id), Numbers(4, 7));
}

TEST(AssignInReplicas, SumCountsALiteralOncePerReplica) {
  EXPECT_EQ(after_run(two_replicas(), ON_WRITE, A::SUM, assign_5), Numbers(2, 10));
  EXPECT_EQ(after_run(four_replicas_on_two_devices(), ON_WRITE, A::SUM, add_5), Numbers(4, 21));
  const at::Tensor captured = at::scalar_tensor(5.0f);
  const auto assign_captured = [&](const Variable& v) { return v.assign(captured); };
  EXPECT_EQ(after_run(two_replicas(), ON_WRITE, A::SUM, assign_captured), Numbers(2, 10));
}

TEST(AssignInReplicas, MeanGoesToAllCopies) {
  const VariableWords two = two_replicas(), four = four_replicas_on_two_devices();
  EXPECT_EQ(after_run(two, ON_WRITE, A::MEAN, assign_id), Numbers(2, 0.5));
  EXPECT_EQ(after_run(two, ON_WRITE, A::MEAN, add_id), Numbers(2, 1.5));
  EXPECT_EQ(after_run(two, ON_WRITE, A::MEAN, add_5), Numbers(2, 6));
  EXPECT_EQ(after_run(four, ON_WRITE, A::MEAN, assign_id), Numbers(4, 1.5));
  EXPECT_EQ(after_run(four, ON_WRITE, A::MEAN, sub_id), Numbers(4, -0.5));
}

TEST(AssignInReplicas, TheFirstReplicasValueGoesToAllCopies) {
  const VariableWords two = two_replicas(), four = four_replicas_on_two_devices();
  const auto add_seven = [](const Variable& v) {
    return v.assign_add(7 * (VariableWords::id() + 1));
  };
  EXPECT_EQ(after_run(two, ON_WRITE, A::ONLY_FIRST_REPLICA, assign_id), Numbers(2, 0));
  EXPECT_EQ(after_run(two, ON_WRITE, A::ONLY_FIRST_REPLICA, assign_5), Numbers(2, 5));
  EXPECT_EQ(after_run(four, ON_WRITE, A::ONLY_FIRST_REPLICA, add_seven), Numbers(4, 8));
}

TEST(AssignInReplicas, WithoutAggregationIsAnError) {
  const auto run = [](const VariableWords& world, auto change) {
    const Variable v = world.make(AUTO, A::NONE);
    world.strategy.run([&] { change(v); });
  };
  for (const VariableWords& world :
       {two_replicas(), four_replicas_on_two_devices(), central_storage()}) {
    EXPECT_FAILS(run(world, assign_5), ValueError, "You must specify an aggregation method");
    EXPECT_FAILS(run(world, add_id), ValueError, "You must specify an aggregation method");
  }
}

TEST(AssignInReplicas, CopiesStayTheSameWhenTheValueIsTheVariableItself) {
  for (const A aggregation : {A::SUM, A::MEAN, A::ONLY_FIRST_REPLICA}) {
    const auto twice = [](const Variable& v) { return v.assign_add(v); };
    const double expected = aggregation == A::SUM ? 3 : 2;
    EXPECT_EQ(after_run(two_replicas(), ON_WRITE, aggregation, twice), Numbers(2, expected));
  }
}

TEST(AssignInReplicas, AnExpressionOfTheVariableIsAValueLikeAnyOther) {
  const auto change = [](const Variable& v) { return v.assign(v * 2 + VariableWords::id()); };
  EXPECT_EQ(after_run(two_replicas(), ON_WRITE, A::MEAN, change), Numbers(2, 2.5));
}

TEST(AssignInReplicas, AnotherVariableIsItsOwnValue) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(ON_WRITE, A::SUM), local = world.make(ON_READ, A::SUM);
  world.strategy.run([&] {
    local.assign(2 + 3 * VariableWords::id());
    v.assign(local);
  });
  EXPECT_EQ(components(v), Numbers(2, 7));
}

TEST(AssignInReplicas, APerReplicaIsItsOwnComponent) {
  const VariableWords world = two_replicas();
  const auto ids = world.strategy.run([] { return VariableWords::id(); });
  const Variable v = world.make(ON_WRITE, A::SUM);
  world.strategy.run([&] { v.assign(ids); });
  EXPECT_EQ(components(v), Numbers(2, 1));
}

TEST(AssignInReplicas, IntegersAreSummedAndHaveNoMean) {
  const at::Tensor one = at::scalar_tensor(1, at::kInt);
  const auto change = [](const Variable& v) { v.assign_add(VariableWords::id().to(at::kInt) + 1); };
  const VariableWords two = two_replicas(), central = central_storage();
  const Variable sum = two.make(ON_WRITE, A::SUM, one);
  two.strategy.run([&] { change(sum); });
  EXPECT_EQ(components(sum), Numbers(2, 4));
  const Variable mean = central.make(AUTO, A::MEAN, one);
  EXPECT_FAILS(central.strategy.run([&] { change(mean); }), ValueError, "the mean over replicas");
  EXPECT_EQ(number(mean), 1);
}

TEST(AssignInReplicas, WithoutReadValueNothingIsReturned) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(ON_WRITE, A::SUM);
  const auto returned =
      world.strategy.run([&] { return v.assign_add(VariableWords::id(), {.read_value = false}); });
  EXPECT_FALSE(returned.values()[0].defined());
  EXPECT_EQ(components(v), Numbers(2, 2));
}

TEST(AssignInReplicas, ReplicasThatChangeDifferentVariablesAreTold) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(ON_WRITE, A::SUM), w = world.make(ON_WRITE, A::SUM);
  const auto apart = [&] {
    const bool first = get_replica_context().replica_id_in_sync_group() == 0;
    (first ? v : w).assign(1);
  };
  EXPECT_FAILS(world.strategy.run(apart), InvalidArgument, "the same variable");
  EXPECT_EQ(after_run(world, ON_WRITE, A::SUM, assign_id), Numbers(2, 1)) << "works afterwards";
}

TEST(AssignInReplicas, TheSameNumberOfReplicasGivesTheSameBitsOnAnyDevices) {
  const auto train = [](Strategy strategy) {
    const VariableWords world(std::move(strategy));
    const Variable v = world.make(ON_WRITE, A::MEAN, at::zeros({33}));
    for (int step = 0; step < 3; ++step) {
      world.strategy.run([&] { v.assign_add(at::sin(v + VariableWords::id() * 0.37f + 0.11f)); });
    }
    return v.read_value();
  };
  set_seed(1);
  const at::Tensor one = train(MirroredStrategy({.devices = {"cpu:0"}, .replicas = 8}));
  const at::Tensor two = train(MirroredStrategy({.devices = {"cpu:0", "cpu:1"}, .replicas = 8}));
  EXPECT_TRUE(at::equal(one, two));
}

// ON_READ in replicas.

TEST(AssignInReplicas, OnReadChangesTheOwnValueOnly) {
  for (const A aggregation : {A::NONE, A::SUM, A::MEAN, A::ONLY_FIRST_REPLICA}) {
    EXPECT_EQ(after_run(two_replicas(), ON_READ, aggregation, assign_id), (Numbers{0, 1}));
    EXPECT_EQ(after_run(two_replicas(), ON_READ, aggregation, add_id), (Numbers{1, 2}));
    EXPECT_EQ(after_run(two_replicas(), ON_READ, aggregation, sub_id), (Numbers{1, 0}));
  }
  EXPECT_EQ(after_run(four_replicas_on_two_devices(), ON_READ, A::SUM, assign_id),
            (Numbers{0, 1, 2, 3}));
}

TEST(AssignInReplicas, OnReadAddsUpOverSteps) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(ON_READ, A::SUM, at::scalar_tensor(0.0f));
  for (int step = 0; step < 2; ++step) {
    world.strategy.run([&] { v.assign_add(VariableWords::id() + 1); });
  }
  EXPECT_EQ(components(v), (Numbers{2, 4}));
  EXPECT_EQ(number(v), 6);
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

TEST(AssignInReplicas, OneDeviceAndDefaultJustAssign) {
  EXPECT_EQ(after_run(one_device(), AUTO, A::NONE, assign_id), Numbers(1, 0));
  EXPECT_EQ(after_run(one_device(), ON_READ, A::SUM, add_5), Numbers(1, 6));
  const Variable v(1.0f);
  EXPECT_EQ(number(v.assign_add(2)), 3);
  EXPECT_EQ(numbers(default_strategy().run([&] { return v.assign_sub(1); })), Numbers(1, 2));
}

}  // namespace
}  // namespace cohort
