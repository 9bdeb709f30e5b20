#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

TEST(Update, CallsTheFunctionOnceForEachCopy) {
  const auto calls = [](const VariableWords& world, Synchronization synchronization) {
    const Variable v = world.make(synchronization, A::SUM);
    int count = 0;
    world.strategy.extended().update(v, [&](at::Tensor& copy) {
      ++count;
      copy.add_(1);
    });
    for (const double x : components(v)) EXPECT_EQ(x, 2);
    return count;
  };
  EXPECT_EQ(calls(two_replicas(), ON_WRITE), 2);
  EXPECT_EQ(calls(four_replicas_on_two_devices(), ON_WRITE), 2);
  EXPECT_EQ(calls(four_replicas_on_two_devices(), ON_READ), 4);
  EXPECT_EQ(calls(central_storage(), AUTO), 1);
  EXPECT_EQ(calls(one_device(), AUTO), 1);
}

TEST(Update, IsAContextOfItsOwn) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(AUTO, A::SUM);
  std::vector<int> ids;
  world.strategy.extended().update(v, [&](at::Tensor&) {
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_EQ(replica_context_or_null(), nullptr);
    EXPECT_TRUE(get_strategy() == world.strategy);
    EXPECT_EQ(v.device(), *update_replica_id() == 0 ? "cpu:0" : "cpu:1");
    ids.push_back(*update_replica_id());
    const Variable w = v.deep_copy();
    world.strategy.extended().update(w, [](at::Tensor&) {});
    EXPECT_EQ(update_replica_id(), ids.back()) << "restored after an update inside";
  });
  EXPECT_EQ(ids, (std::vector<int>{0, 1}));
  EXPECT_EQ(update_replica_id(), std::nullopt);
}

TEST(Update, OfThePlainVariablesByTheDefaultStrategy) {
  const Variable v(1.0f);
  const auto result = default_strategy().extended().update(v, [](at::Tensor& copy) {
    EXPECT_FALSE(in_cross_replica_context());
    return copy * 5;
  });
  EXPECT_EQ(number(result), 5);
}

TEST(Update, GivesTensorsBackMirrored) {
  for (const VariableWords& world : {two_replicas(), four_replicas_on_two_devices()}) {
    const std::size_t n = world.strategy.num_replicas_in_sync();
    const Variable v = world.make(AUTO, A::SUM, at::scalar_tensor(3.0f));
    const auto [twice, inner] = world.strategy.extended().update(v, [](at::Tensor& copy) {
      return std::tuple{copy * 2, std::vector{copy + 1}};
    });
    EXPECT_EQ(twice.size(), n);
    EXPECT_EQ(number(twice), 6);
    EXPECT_EQ(number(inner[0]), 4);
    EXPECT_EQ(*twice.devices(), *v.devices());
    const auto inside = world.strategy.run([](const at::Tensor& x) { return x + 1; }, twice);
    EXPECT_EQ(numbers(inside), Numbers(n, 7)) << "an argument of run like any other";
  }
}

TEST(Update, UngroupedGivesOneResultForEachReplica) {
  const auto results = [](const VariableWords& world) {
    const Variable v = world.make(AUTO, A::SUM, at::scalar_tensor(3.0f));
    const auto nest = world.strategy.extended().update_ungrouped(v, [](at::Tensor& copy) {
      return std::map<std::string, at::Tensor>{{"a", copy * 2}};
    });
    EXPECT_EQ(number(nest.at("a").back()), 6);
    return nest.at("a").size();
  };
  EXPECT_EQ(results(two_replicas()), 2u);
  EXPECT_EQ(results(four_replicas_on_two_devices()), 4u);
  EXPECT_EQ(results(central_storage()), 2u);
  EXPECT_EQ(results(one_device()), 1u);
}

TEST(Update, GivesEachCopyItsComponentOfMirroredArguments) {
  for (const VariableWords& world :
       {two_replicas(), four_replicas_on_two_devices(), central_storage()}) {
    const Variable v = world.make(AUTO, A::SUM);
    const auto ids = world.strategy.run([] { return VariableWords::id(); });
    const auto mean = world.strategy.extended().reduce_to(ReduceOp::MEAN, ids, v);
    world.strategy.extended().update(
        v, [](at::Tensor& copy, const at::Tensor& d, float y) { copy.copy_(d + y); }, mean, 10);
    for (const double x : components(v)) EXPECT_EQ(x, 10 + number(mean));
  }
}

TEST(Update, GivesVariablesWhole) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(AUTO, A::SUM), w = world.make(ON_READ, A::SUM);
  world.set_to_ids(w);
  world.strategy.extended().update(
      v, [](at::Tensor& copy, const Variable& other) { copy.copy_(at::Tensor(other)); }, w);
  EXPECT_EQ(components(v), (Numbers{0, 1})) << "read in the context of the copy";
}

TEST(Update, OfAnOnReadVariableWorksOnTheRawComponents) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(ON_READ, A::SUM);
  world.strategy.extended().update(v, [](at::Tensor& copy) { copy.fill_(5); });
  EXPECT_EQ(number(v), 10);
}

TEST(Update, RefusesPerReplicaArguments) {
  for (const VariableWords& world : {two_replicas(), central_storage()}) {
    const Variable v = world.make(AUTO, A::NONE);
    const auto ids = world.strategy.run([] { return VariableWords::id(); });
    EXPECT_FAILS(world.strategy.extended().update(
                     v, [](at::Tensor& copy, const at::Tensor& d) { copy.add_(d); }, ids),
                 TypeError, "Expected value to be mirrored across replicas");
    EXPECT_EQ(components(v), Numbers(2, 1));
  }
}

TEST(Update, RefusesVariablesOfOthers) {
  const auto nothing = [](at::Tensor&) {};
  const Variable outside(1.0f);
  for (const VariableWords& world : {two_replicas(), central_storage(), one_device()}) {
    auto& extended = world.strategy.extended();
    EXPECT_FAILS(extended.update(outside, nothing), ValueError, "created in this");
    EXPECT_FAILS(extended.update(two_replicas().make(AUTO, A::SUM), nothing), ValueError,
                 "created in this");
  }
  const Variable mirrored = two_replicas().make(AUTO, A::SUM);
  EXPECT_FAILS(default_strategy().extended().update(mirrored, nothing), ValueError,
               "created in this");
}

TEST(Update, InReplicasHappensOnceForAll) {
  const VariableWords world = four_replicas_on_two_devices();
  const Variable v = world.make(AUTO, A::NONE, at::scalar_tensor(5.0f));
  auto& extended = world.strategy.extended();
  const auto add = [](at::Tensor& copy, const at::Tensor& d) { return copy.add_(d).clone(); };
  const auto returned = world.strategy.run([&] {
    extended.update(v, add, at::scalar_tensor(2.0f));
    const at::Tensor now = extended.update(v, add, at::scalar_tensor(1.0f));
    extended.update(
        v, [](at::Tensor& copy, float x) { copy.sub_(x); }, 3.0f);
    return now;
  });
  EXPECT_EQ(numbers(returned), Numbers(4, 8));
  EXPECT_EQ(components(v), Numbers(4, 5));
}

TEST(Update, InReplicasRefusesValuesThatDiffer) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(AUTO, A::SUM, at::scalar_tensor(5.0f));
  auto& extended = world.strategy.extended();
  const auto add = [](at::Tensor& copy, const at::Tensor& d) { copy.add_(d); };
  EXPECT_FAILS(world.strategy.run([&] { extended.update(v, add, VariableWords::id()); }), TypeError,
               "replica 1 differs");
  const auto number = [&] {
    extended.update(
        v, [](at::Tensor&, int) {}, get_replica_context().replica_id_in_sync_group());
  };
  EXPECT_FAILS(world.strategy.run(number), TypeError, "replica 1 differs");
  EXPECT_EQ(components(v), Numbers(2, 5));
}

TEST(UpdateNonSlot, CallsTheFunctionOnceForEachDevice) {
  const auto calls = [](const VariableWords& world) {
    const Variable v = world.make(AUTO, A::SUM);
    auto& extended = world.strategy.extended();
    int count = 0;
    const auto result = extended.update_non_slot(
        extended.non_slot_devices({v}),
        [&](float x) {
          ++count;
          return at::scalar_tensor(x);
        },
        3.0f);
    EXPECT_EQ(number(result), 3);
    return count;
  };
  EXPECT_EQ(calls(two_replicas()), 2);
  EXPECT_EQ(calls(four_replicas_on_two_devices()), 2);
  EXPECT_EQ(calls(central_storage()), 1);
  EXPECT_EQ(calls(one_device()), 1);
}

TEST(UpdateNonSlot, RefusesOtherDevicesAndPerReplicaArguments) {
  const VariableWords world = two_replicas();
  auto& extended = world.strategy.extended();
  EXPECT_FAILS(extended.update_non_slot({"cpu:0"}, [] {}), ValueError, "non_slot_devices");
  const auto ids = world.strategy.run([] { return VariableWords::id(); });
  EXPECT_FAILS(extended.update_non_slot(
                   {"cpu:0", "cpu:1"}, [](const at::Tensor&) {}, ids),
               TypeError, "Expected value to be mirrored across replicas");
  EXPECT_EQ(update_non_slot_ungrouped(extended, {"cpu:0", "cpu:1"}, [] { return 1; }).size(), 2u);
}

TEST(NonSlotDevices, AreAllOfAMirroredStrategyAndElsewhereTheFirstVariables) {
  const VariableWords two = two_replicas(), one = one_device();
  EXPECT_EQ(two.strategy.extended().non_slot_devices({}), (std::vector<Device>{"cpu:0", "cpu:1"}));
  const Variable v = one.make(AUTO, A::NONE);
  EXPECT_EQ(one.strategy.extended().non_slot_devices({v}), std::vector<Device>{"cpu:0"});
  EXPECT_FAILS(one.strategy.extended().non_slot_devices({}), ValueError, "no variables");
}

TEST(ColocateVarsWith, ChecksTheVariableAndTheScope) {
  const VariableWords world = two_replicas();
  auto& extended = world.strategy.extended();
  const Variable v = world.make(AUTO, A::NONE), plain(1.0f);
  EXPECT_FAILS(static_cast<void>(extended.colocate_vars_with(v)), RuntimeError,
               "Need to be inside");
  auto scope = world.strategy.scope();
  EXPECT_FAILS(static_cast<void>(extended.colocate_vars_with(plain)), ValueError,
               "`colocate_vars_with` must only be passed a variable created in this");
  {
    const auto colocation = extended.colocate_vars_with(v);
    EXPECT_EQ(*Variable(1.0f).devices(), *v.devices());
    EXPECT_FAILS(scope.exit(), RuntimeError, "Variable creator scope nesting error");
  }
  scope.exit();
  const VariableWords other = two_replicas();
  const auto other_scope = other.strategy.scope();
  EXPECT_FAILS(static_cast<void>(extended.colocate_vars_with(v)), RuntimeError, "Mixing different");
}

TEST(ReadVar, AggregatesOnReadAlsoInReplicas) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(ON_READ, A::SUM);
  world.strategy.run([&] { v.assign(3 + VariableWords::id()); });
  EXPECT_EQ(number(world.strategy.extended().read_var(v)), 7);
}

}  // namespace
}  // namespace cohort
