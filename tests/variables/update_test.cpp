#include <gtest/gtest.h>

#include <set>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

const auto update_nothing = [](at::Tensor&) {};
const auto add_to_copy = [](at::Tensor& copy, const at::Tensor& d) { copy.add_(d); };

/// How many devices hold copies of the variable here.
int devices_of(const Variable& v) {
  const std::vector<int> all = owners(v);
  return static_cast<int>(std::set<int>(all.begin(), all.end()).size());
}

struct Update : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;

  int calls(Synchronization synchronization) const {
    const Variable v = make(synchronization, A::SUM);
    int count = 0;
    extended().update(v, [&](at::Tensor& copy) {
      ++count;
      copy.add_(1);
    });
    EXPECT_EQ(components(v), here(2));
    return count;
  }
};
ON_ALL_LAYOUTS(Update);

TEST_ON_EACH_WORKER(Update, CallsTheFunctionOnceForEachLocalCopy) {
  EXPECT_EQ(calls(ON_WRITE), static_cast<int>(extended().worker_devices().size()));
  EXPECT_EQ(calls(ON_READ), n_here);
}

TEST(Update, CallsTheFunctionOnceWhereThereIsOneCopy) {
  for (const VariableWords& world : {central_storage(), one_device()}) {
    const Variable v = world.make(AUTO, A::SUM);
    int count = 0;
    world.strategy.extended().update(v, [&](at::Tensor& copy) {
      ++count;
      copy.add_(1);
    });
    for (const double x : components(v)) EXPECT_EQ(x, 2);
    EXPECT_EQ(count, 1);
  }
}

TEST_ON_EACH_WORKER(Update, IsAContextOfItsOwn) {
  const Variable v = make(AUTO, A::SUM);
  std::vector<int> updated;
  extended().update(v, [&](at::Tensor&) {
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_EQ(replica_context_or_null(), nullptr);
    EXPECT_TRUE(get_strategy() == strategy);
    EXPECT_EQ(v.device(), (*v.devices())[*update_replica_id()]);
    updated.push_back(*update_replica_id());
    const Variable w = v.deep_copy();
    extended().update(w, [](at::Tensor&) {});
    EXPECT_EQ(update_replica_id(), updated.back()) << "restored after an update inside";
  });
  const std::vector<int> all = owners(v);
  const std::set<int> first(all.begin(), all.end());
  EXPECT_THAT(updated, testing::ElementsAreArray(first)) << "the first local one on each device";
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

TEST_ON_EACH_WORKER(Update, GivesTensorsBackMirrored) {
  const Variable v = make(AUTO, A::SUM, at::scalar_tensor(3.0f));
  const auto [twice, inner] = extended().update(v, [](at::Tensor& copy) {
    return std::tuple{copy * 2, std::vector{copy + 1}};
  });
  EXPECT_EQ(static_cast<int>(twice.size()), n_here);
  EXPECT_EQ(number(twice), 6);
  EXPECT_EQ(number(inner[0]), 4);
  EXPECT_EQ(*twice.devices(), *v.devices());
  const auto inside = strategy.run([](const at::Tensor& x) { return x + 1; }, twice);
  EXPECT_EQ(numbers(inside), here(7)) << "an argument of run like any other";
}

TEST_ON_EACH_WORKER(Update, UngroupedGivesOneResultForEachLocalReplica) {
  const Variable v = make(AUTO, A::SUM, at::scalar_tensor(3.0f));
  const auto nest = extended().update_ungrouped(v, [](at::Tensor& copy) {
    return std::map<std::string, at::Tensor>{{"a", copy * 2}};
  });
  EXPECT_EQ(number(nest.at("a").back()), 6);
  EXPECT_EQ(static_cast<int>(nest.at("a").size()), n_here);
}

TEST(Update, UngroupedGivesOneResultForEachReplicaWhereThereIsOneCopy) {
  const auto results = [](const VariableWords& world) {
    const Variable v = world.make(AUTO, A::SUM, at::scalar_tensor(3.0f));
    const auto nest = world.strategy.extended().update_ungrouped(v, [](at::Tensor& copy) {
      return std::map<std::string, at::Tensor>{{"a", copy * 2}};
    });
    EXPECT_EQ(number(nest.at("a").back()), 6);
    return nest.at("a").size();
  };
  EXPECT_EQ(results(central_storage()), 2u);
  EXPECT_EQ(results(one_device()), 1u);
}

TEST_ON_EACH_WORKER(Update, GivesEachCopyItsComponentOfMirroredArguments) {
  const Variable v = make(AUTO, A::SUM);
  const auto mean = extended().reduce_to(ReduceOp::MEAN, ids(), v);
  extended().update(
      v, [](at::Tensor& copy, const at::Tensor& d, float y) { copy.copy_(d + y); }, mean, 10);
  EXPECT_EQ(components(v), here(10 + mean_of_ids()));
}

TEST(Update, GivesTheOnlyCopyItsComponentOfMirroredArguments) {
  const VariableWords world = central_storage();
  const Variable v = world.make(AUTO, A::SUM);
  const auto ids = world.strategy.run([] { return id_tensor(); });
  const auto mean = world.strategy.extended().reduce_to(ReduceOp::MEAN, ids, v);
  world.strategy.extended().update(
      v, [](at::Tensor& copy, const at::Tensor& d, float y) { copy.copy_(d + y); }, mean, 10);
  EXPECT_EQ(components(v), Numbers(2, 10.5));
}

TEST_ON_EACH_WORKER(Update, GivesVariablesWhole) {
  const Variable v = make(AUTO, A::SUM), w = make(ON_READ, A::SUM);
  set_to_ids(w);
  extended().update(
      v, [](at::Tensor& copy, const Variable& other) { copy.copy_(at::Tensor(other)); }, w);
  Numbers expected;
  for (const int owner : owners(v)) expected.push_back(first_here + owner);
  EXPECT_EQ(components(v), expected) << "read in the context of the copy";
}

TEST_ON_EACH_WORKER(Update, OfAnOnReadVariableWorksOnTheRawComponents) {
  const Variable v = make(ON_READ, A::SUM);
  extended().update(v, [](at::Tensor& copy) { copy.fill_(5); });
  EXPECT_EQ(number(v), 5 * n);
}

TEST_ON_EACH_WORKER(Update, RefusesPerReplicaArguments) {
  const Variable v = make(AUTO, A::NONE);
  const auto all = ids();
  EXPECT_FAILS(extended().update(v, add_to_copy, all), TypeError,
               "Expected value to be mirrored across replicas");
  EXPECT_EQ(components(v), here(1));
}

TEST(Update, OfCentralStorageRefusesPerReplicaArguments) {
  const VariableWords world = central_storage();
  const Variable v = world.make(AUTO, A::NONE);
  const auto ids = world.strategy.run([] { return id_tensor(); });
  EXPECT_FAILS(world.strategy.extended().update(v, add_to_copy, ids), TypeError,
               "Expected value to be mirrored across replicas");
  EXPECT_EQ(components(v), Numbers(2, 1));
}

void expect_variables_of_others_refused(StrategyExtended& extended) {
  const Variable outside(1.0f);
  EXPECT_FAILS(extended.update(outside, update_nothing), ValueError, "created in this");
  EXPECT_FAILS(extended.update(two_replicas().make(AUTO, A::SUM), update_nothing), ValueError,
               "created in this");
}

TEST_ON_EACH_WORKER(Update, RefusesVariablesOfOthers) {
  expect_variables_of_others_refused(extended());
  const Variable mine = make(AUTO, A::SUM);
  EXPECT_FAILS(default_strategy().extended().update(mine, update_nothing), ValueError,
               "created in this");
  EXPECT_FAILS(two_replicas().strategy.extended().update(mine, update_nothing), ValueError,
               "created in this");
}

TEST(Update, OfCentralStorageAndOneDeviceRefusesVariablesOfOthers) {
  expect_variables_of_others_refused(central_storage().strategy.extended());
  expect_variables_of_others_refused(one_device().strategy.extended());
}

TEST_ON_EACH_WORKER(Update, InReplicasHappensOnceForAll) {
  const Variable v = make(AUTO, A::NONE, at::scalar_tensor(5.0f));
  int calls = 0;
  const auto add = [&](at::Tensor& copy, const at::Tensor& d) {
    ++calls;
    return copy.add_(d).clone();
  };
  const auto returned = strategy.run([&] {
    extended().update(v, add, at::scalar_tensor(2.0f));
    const at::Tensor now = extended().update(v, add, at::scalar_tensor(1.0f));
    extended().update(
        v, [](at::Tensor& copy, float x) { copy.sub_(x); }, 3.0f);
    return now;
  });
  EXPECT_EQ(numbers(returned), here(8));
  EXPECT_EQ(components(v), here(5));
  EXPECT_EQ(calls, 2 * devices_of(v));
}

TEST_ON_EACH_WORKER(Update, InReplicasTakesWhatAllReplicasHaveReduced) {
  const Variable v = make(AUTO, A::NONE);
  strategy.run([&] {
    extended().update(v, add_to_copy, get_replica_context().all_reduce("SUM", id_tensor()));
  });
  EXPECT_EQ(components(v), here(1 + sum_of_ids()));
}

TEST_ON_EACH_WORKER(Update, InReplicasRefusesValuesThatDiffer) {
  if (n == 1) return;
  const Variable v = make(AUTO, A::SUM, at::scalar_tensor(5.0f));
  const int other = extended().world().first_of(workers / 2) + 1;  // not the first of its worker
  const std::string words = cat("replica ", other, " differs from replica ", other - 1);
  const auto in_replicas = [&](const auto& update) {
    return [&] {
      update(id() == other);
      get_replica_context().barrier();  // where the other workers wait
    };
  };
  const auto with_tensor = [&](bool differs) {
    extended().update(v, add_to_copy, at::scalar_tensor(differs ? 1.0f : 0.0f));
  };
  const auto with_number = [&](bool differs) {
    extended().update(
        v, [](at::Tensor& copy, int d) { copy.add_(d); }, differs ? 1 : 0);
  };
  EXPECT_REPLICA_FAILS(other, strategy.run(in_replicas(with_tensor)), TypeError, words);
  EXPECT_REPLICA_FAILS(other, strategy.run(in_replicas(with_number)), TypeError, words);
  EXPECT_EQ(components(v), here(5));
}

struct UpdateNonSlot : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
};
ON_ALL_LAYOUTS(UpdateNonSlot);

/// How often update_non_slot calls its function.
int calls_of_non_slot(StrategyExtended& extended, const Variable& v) {
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
}

TEST_ON_EACH_WORKER(UpdateNonSlot, CallsTheFunctionOnceForEachDeviceOfTheWorker) {
  const Variable v = make(AUTO, A::SUM);
  EXPECT_EQ(calls_of_non_slot(extended(), v), devices_of(v));
}

TEST(UpdateNonSlot, CallsTheFunctionOnceWhereThereIsOneCopy) {
  for (const VariableWords& world : {central_storage(), one_device()}) {
    EXPECT_EQ(calls_of_non_slot(world.strategy.extended(), world.make(AUTO, A::SUM)), 1);
  }
}

TEST_ON_EACH_WORKER(UpdateNonSlot, RefusesOtherDevicesAndPerReplicaArguments) {
  EXPECT_FAILS(extended().update_non_slot({"cpu:7"}, [] {}), ValueError, "non_slot_devices");
  const auto own = extended().non_slot_devices({});
  const auto all = ids();
  EXPECT_FAILS(extended().update_non_slot(
                   own, [](const at::Tensor&) {}, all),
               TypeError, "Expected value to be mirrored across replicas");
  EXPECT_EQ(static_cast<int>(update_non_slot_ungrouped(extended(), own, [] { return 1; }).size()),
            n_here);
}

TEST(UpdateNonSlot, RefusesSomeOfTheDevices) {
  EXPECT_FAILS(two_replicas().strategy.extended().update_non_slot({"cpu:0"}, [] {}), ValueError,
               "non_slot_devices");
}

TEST(NonSlotDevices, AreAllOfAMirroredStrategyAndElsewhereTheFirstVariables) {
  const VariableWords two = two_replicas(), one = one_device();
  EXPECT_EQ(two.strategy.extended().non_slot_devices({}), (std::vector<Device>{"cpu:0", "cpu:1"}));
  const Variable v = one.make(AUTO, A::NONE);
  EXPECT_EQ(one.strategy.extended().non_slot_devices({v}), std::vector<Device>{"cpu:0"});
  EXPECT_FAILS(one.strategy.extended().non_slot_devices({}), ValueError, "no variables");
}

struct ColocateVarsWith : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
};
ON_ALL_LAYOUTS(ColocateVarsWith);

TEST_ON_EACH_WORKER(ColocateVarsWith, ChecksTheVariableAndTheScope) {
  const Variable v = make(AUTO, A::NONE), plain(1.0f);
  EXPECT_FAILS(static_cast<void>(extended().colocate_vars_with(v)), RuntimeError,
               "Need to be inside");
  auto scope = strategy.scope();
  EXPECT_FAILS(static_cast<void>(extended().colocate_vars_with(plain)), ValueError,
               "`colocate_vars_with` must only be passed a variable created in this");
  {
    const auto colocation = extended().colocate_vars_with(v);
    EXPECT_EQ(*Variable(1.0f).devices(), *v.devices());
    EXPECT_FAILS(scope.exit(), RuntimeError, "Variable creator scope nesting error");
  }
  scope.exit();
  const VariableWords other = two_replicas();
  const auto other_scope = other.strategy.scope();
  EXPECT_FAILS(static_cast<void>(extended().colocate_vars_with(v)), RuntimeError,
               "Mixing different");
}

}  // namespace
}  // namespace cohort
