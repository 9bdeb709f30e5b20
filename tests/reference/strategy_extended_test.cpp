// The page about tf.distribute.StrategyExtended, TensorFlow 2.0: its examples, and each sentence of
// its concepts that promises or forbids something.

#include "cohort/strategies/central_storage_strategy.h"
#include "cohort/strategies/one_device_strategy.h"
#include "tests/reference/reference.h"

namespace cohort {
namespace {

using testing::ElementsAre;

class StrategyExtendedPage : public Reference {
 protected:
  Strategy strategy = two();
  StrategyExtended& extended = strategy.extended();

  Variable variable(float value, VariableOptions options = {}) {
    auto scope = strategy.scope();
    return Variable(value, std::move(options));
  }
};

// "let's say fn() returns a tuple with three components: (x, a, v0) from replica 0, (x, b, v1) on
// replica 1". The first is a PerReplica here too: what comes back depends on types, never on
// whether the replicas returned the same object.
TEST_F(StrategyExtendedPage, UnwrappingAndMerging) {
  const Tensor x = torch::tensor(7.0f);
  const Variable v = variable(1);
  const auto [merged_x, merged_a, merged_v] = compat::experimental_run_v2(
      strategy,
      [&](int w) {
        return std::tuple{x, w * 10, v};
      },
      PerReplica<int>({1, 2}));
  for (const Tensor& each : strategy.local_results(merged_x)) EXPECT_TRUE(each.is_same(x));
  EXPECT_THAT(strategy.local_results(merged_a), ElementsAre(10, 20));
  EXPECT_TRUE(merged_v == v);
}

// "there will be one worker device per replica. When using … central storage, the set of devices
// holding variables may be different".
TEST_F(StrategyExtendedPage, WorkerDevicesAndParameterDevices) {
  const std::vector<Device> both{"cpu:0", "cpu:1"};
  EXPECT_EQ(extended.worker_devices(), both);
  EXPECT_EQ(extended.parameter_devices(), both);
  CentralStorageStrategy central({.compute_devices = both, .parameter_device = "cpu:1"});
  EXPECT_EQ(central.extended().worker_devices(), both);
  EXPECT_EQ(central.extended().parameter_devices(), std::vector<Device>{"cpu:1"});
}

// "By default you start in a replica context (the "default single replica context") and then some
// methods can switch you back and forth."
TEST_F(StrategyExtendedPage, ReplicaContextAndCrossReplicaContext) {
  EXPECT_FALSE(in_cross_replica_context());
  EXPECT_EQ(own_id(), 0);
  const Variable v = variable(1);
  auto scope = strategy.scope();
  EXPECT_TRUE(in_cross_replica_context());
  EXPECT_THROW(get_replica_context(), RuntimeError);
  strategy.run([&] {
    EXPECT_FALSE(in_cross_replica_context());
    EXPECT_THROW(strategy.reduce(ReduceOp::SUM, PerReplica<int>({1, 2})), RuntimeError);
    get_replica_context().merge_call([](Strategy&) { EXPECT_TRUE(in_cross_replica_context()); });
  });
  std::vector<int> updated;
  extended.update(v, [&](Tensor&) {
    EXPECT_TRUE(in_cross_replica_context());
    updated.push_back(*update_replica_id());
  });
  EXPECT_THAT(updated, ElementsAre(0, 1));
  EXPECT_FALSE(update_replica_id());
}

// "In a replica context, you may freely read the values of variables, but you may only update their
// value if they specify a way to aggregate the update using the aggregation parameter".
TEST_F(StrategyExtendedPage, UpdatesInAReplicaNeedAnAggregation) {
  const Variable without = variable(1);
  EXPECT_THROW(strategy.run([&] { without.assign(own_id()); }), ValueError);
  EXPECT_EQ(number(without), 1);
  const Variable with = variable(1, {.aggregation = Aggregation::MEAN});
  strategy.run([&] {
    EXPECT_EQ(number(with), 1);
    with.assign(own_id());
  });
  EXPECT_EQ(number(with), 0.5);
}

// "In a cross-replica context, you may read or write variables (writes may need to be broadcast to
// all copies of the variable if it is mirrored)."
TEST_F(StrategyExtendedPage, CrossReplicaWritesGoToAllCopies) {
  const Variable v = variable(1);
  auto scope = strategy.scope();
  v.assign(5);
  for (const Tensor& copy : v.components()) EXPECT_EQ(number(copy), 5);
}

// Sync on read variables: "we allow reads so you can write code like v = 0.9*v + 0.1*update".
TEST_F(StrategyExtendedPage, SyncOnReadVariables) {
  const Variable v =
      variable(1, {.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::MEAN});
  strategy.run([&](float update) { v.assign(0.9 * v + 0.1 * update); },
               PerReplica<float>({11, 21}));
  EXPECT_FLOAT_EQ(number(v.components()[0]), 2);
  EXPECT_FLOAT_EQ(number(v.components()[1]), 3);
  auto scope = strategy.scope();
  EXPECT_FLOAT_EQ(number(v), 2.5);
}

// "We don't allow operations like v.assign_add in a cross-replica context for sync on read
// variables".
TEST_F(StrategyExtendedPage, SyncOnReadVariablesTakeNoAssignAddInCrossReplicaContext) {
  for (const auto aggregation : {Aggregation::SUM, Aggregation::MEAN}) {
    const Variable v =
        variable(0, {.synchronization = Synchronization::ON_READ, .aggregation = aggregation});
    auto scope = strategy.scope();
    EXPECT_THROW(v.assign_add(1), ValueError);
    strategy.run([&] { v.assign_add(1); });
    EXPECT_EQ(number(v), aggregation == Aggregation::SUM ? 2 : 1);
  }
}

// Locality: "You can convert a per-replica value into a mirrored value by using all_reduce"; "You
// may convert a per-replica value to a variable's locality by using reduce_to or batch_reduce_to".
TEST_F(StrategyExtendedPage, Locality) {
  const auto per_replica = batch({1, 2}, {3, 4});
  const auto everywhere = strategy.run(
      [](const Tensor& x) { return get_replica_context().all_reduce(ReduceOp::SUM, x); },
      per_replica);
  for (const Tensor& each : strategy.local_results(everywhere)) {
    EXPECT_THAT(numbers(each), ElementsAre(4, 6));
  }
  const Variable v = variable(0);
  auto scope = strategy.scope();
  const auto mirrored = extended.reduce_to(ReduceOp::SUM, per_replica, v);
  EXPECT_EQ(*mirrored.devices(), *v.devices());
  EXPECT_THAT(numbers(mirrored), ElementsAre(4, 6));
}

// "How to update a variable": the replicas' values meet in a merge_call, are reduced to the
// variable's locality, and update its copies there. An aggregation does the same by itself.
TEST_F(StrategyExtendedPage, HowToUpdateAVariable) {
  const Variable by_hand = variable(10);
  const Variable by_itself = variable(10, {.aggregation = Aggregation::SUM});
  strategy.run([&] {
    const Tensor gradient = torch::tensor(own_id() + 1.0f);
    get_replica_context().merge_call(
        [&](Strategy& current, const PerReplica<Tensor>& gradients) {
          const auto sum = current.extended().reduce_to(ReduceOp::SUM, gradients, by_hand);
          current.extended().update(
              by_hand, [](Tensor& copy, const Tensor& g) { copy.sub_(g); }, sum);
        },
        gradient);
    by_itself.assign_sub(gradient);
  });
  for (const Variable& v : {by_hand, by_itself}) {
    for (const Tensor& copy : v.components()) EXPECT_EQ(number(copy), 7);
  }
}

// Distribute-aware layers: "in_cross_replica_context will let you determine which case you are in".
TEST_F(StrategyExtendedPage, DistributeAwareLayers) {
  auto layer = [](const Tensor& x) {
    if (in_cross_replica_context()) return x;
    return get_replica_context().all_reduce(ReduceOp::MEAN, x);
  };
  EXPECT_EQ(number(layer(torch::tensor(3.0f))), 3);  // the default replica
  const auto means = strategy.run(layer, batch({1}, {5}));
  for (const Tensor& mean : strategy.local_results(means)) EXPECT_EQ(number(mean), 3);
  auto scope = strategy.scope();
  EXPECT_EQ(number(layer(torch::tensor(4.0f))), 4);
}

TEST_F(StrategyExtendedPage, Properties) {
  EXPECT_FALSE(compat::experimental_between_graph(extended));
  EXPECT_FALSE(compat::experimental_require_static_shapes(extended));
  EXPECT_TRUE(compat::experimental_should_init(extended));
  EXPECT_TRUE(extended.should_checkpoint());
  EXPECT_TRUE(extended.should_save_summary());
}

// "A list of mirrored values, one per pair in value_destination_pairs."
TEST_F(StrategyExtendedPage, BatchReduceTo) {
  const Variable v = variable(0);
  auto scope = strategy.scope();
  const std::vector<std::pair<PerReplica<Tensor>, Destinations>> pairs{{batch({1}, {2}), v},
                                                                       {batch({10}, {20}), v}};
  const auto sums = extended.batch_reduce_to(ReduceOp::SUM, pairs);
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_EQ(number(sums[0]), 3);
  EXPECT_EQ(number(sums[1]), 30);
  EXPECT_EQ(sums[0].size(), 2u);
}

// "destinations: A mirrored variable or device string". "A value mirrored to destinations devices."
TEST_F(StrategyExtendedPage, BroadcastTo) {
  const Variable v = variable(0);
  auto scope = strategy.scope();
  const auto everywhere = extended.broadcast_to(torch::tensor(3.0f), v);
  EXPECT_EQ(everywhere.size(), 2u);
  for (const Tensor& copy : everywhere.values()) EXPECT_EQ(number(copy), 3);
  EXPECT_EQ(extended.broadcast_to(torch::tensor(3.0f), "cpu:1").size(), 1u);
}

// call_for_each_replica, the example; merged_results are 7 + 3 and 7 + 4.
TEST_F(StrategyExtendedPage, CallForEachReplica) {
  // Called once in "cross-replica" context.
  auto merge_fn = [](Strategy& distribution, const PerReplica<int>& three_plus_replica_id) {
    int sum = 0;
    for (int v : distribution.local_results(three_plus_replica_id)) sum += v;
    return sum;
  };
  // Called once per replica in `distribution`, in a "replica" context.
  auto fn = [&](int three) {
    auto& replica_ctx = get_replica_context();
    int v = three + replica_ctx.replica_id_in_sync_group();
    // Computes the sum of the `v` values across all replicas.
    int s = replica_ctx.merge_call(merge_fn, v);
    return s + v;
  };
  Strategy distribution = strategy;
  auto scope = distribution.scope();
  auto merged_results = compat::experimental_run_v2(distribution, fn, 3);
  EXPECT_THAT(distribution.local_results(merged_results), ElementsAre(10, 11));
  EXPECT_THAT(distribution.local_results(distribution.extended().call_for_each_replica(fn, 3)),
              ElementsAre(10, 11));
}

// colocate_vars_with, the example.
TEST_F(StrategyExtendedPage, ColocateVarsWith) {
  auto scope = strategy.scope();
  const Variable var1(1.0f);
  auto colocated = [&](float value) {
    auto colocation = extended.colocate_vars_with(var1);
    return Variable(value);
  };
  const Variable var2 = colocated(2), var3 = colocated(3);
  EXPECT_EQ(*var2.devices(), *var1.devices());

  // operates on v1 from var1, v2 from var2, and v3 from var3
  std::vector<int> ran_on;
  auto fn = [&](Tensor& v1, const Tensor& v2, const Tensor& v3) {
    const int i = *update_replica_id();
    ran_on.push_back(i);
    EXPECT_TRUE(v2.is_same(var2.components()[i]));
    v1.add_(v2 * v3);
  };
  extended.update(var1, fn, var2, var3);
  EXPECT_THAT(ran_on, ElementsAre(0, 1));
  EXPECT_EQ(number(var1), 7);
}

// "This may only be used inside self.scope()." "A variable created in this strategy's scope()."
TEST_F(StrategyExtendedPage, ColocateVarsWithRefuses) {
  const Variable mine = variable(1);
  const Variable other(1.0f);
  EXPECT_THROW(auto colocation = extended.colocate_vars_with(mine), RuntimeError);
  auto scope = strategy.scope();
  EXPECT_THROW(auto colocation = extended.colocate_vars_with(other), ValueError);
}

// "pick a consistent set of devices to pass to both colocate_vars_with and update_non_slot". In
// TensorFlow colocate_vars_with refuses devices, as it wants a variable; made in the scope, a
// variable is on these devices anyway.
TEST_F(StrategyExtendedPage, NonSlotVariables) {
  const Variable weight = variable(1);
  const Variable beta_power = variable(0.5, {.name = "beta_power"});
  auto scope = strategy.scope();
  const auto devices = extended.non_slot_devices({weight});
  EXPECT_EQ(devices, *beta_power.devices());
  extended.update_non_slot(devices, [&] { beta_power.assign(beta_power * 0.5); });
  for (const Tensor& copy : beta_power.components()) EXPECT_EQ(number(copy), 0.25);
}

// "Returns the aggregate value of a replica-local variable, or the (read-only) value of any other".
TEST_F(StrategyExtendedPage, ReadVar) {
  const Variable local =
      variable(0, {.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::SUM});
  strategy.run([&] { local.assign(own_id() + 1); });
  EXPECT_EQ(number(extended.read_var(local)), 3);
  EXPECT_EQ(number(extended.read_var(variable(4))), 4);
}

// "destinations: A mirrored variable, a per-replica tensor, or a device string … To perform an
// all-reduction, pass value to destinations."
TEST_F(StrategyExtendedPage, ReduceTo) {
  auto scope = strategy.scope();
  const auto value =
      strategy.run([](float x) { return torch::tensor(x); }, PerReplica<float>({2, 4}));
  const auto all_reduced = extended.reduce_to(ReduceOp::MEAN, value, value);
  EXPECT_EQ(all_reduced.size(), 2u);
  for (const Tensor& copy : all_reduced.values()) EXPECT_EQ(number(copy), 3);
  EXPECT_EQ(extended.reduce_to(ReduceOp::SUM, value, "cpu:1").size(), 1u);
  EXPECT_EQ(extended.reduce_to(ReduceOp::SUM, value, Variable(0.0f)).size(), 2u);
}

// update: "results[device] = fn(v, *args, **kwargs) … return merged(results)"; "If they contain
// mirrored values, they will be unwrapped before calling fn."
TEST_F(StrategyExtendedPage, Update) {
  const Variable var = variable(1);
  auto scope = strategy.scope();
  const auto mirrored = extended.broadcast_to(10.0f, var);
  auto fn = [](Tensor& v, const Tensor& x, float y) { return v.add_(x).add_(y).clone(); };
  const Mirrored<Tensor> merged = extended.update(var, fn, mirrored, 0.5f);
  EXPECT_EQ(number(merged), 11.5);
  EXPECT_EQ(*merged.devices(), *var.devices());
  EXPECT_EQ(number(var), 11.5);
}

// "Neither args nor kwargs may contain per-replica values."
TEST_F(StrategyExtendedPage, UpdateRefusesPerReplicaValues) {
  const Variable var = variable(1);
  auto scope = strategy.scope();
  const auto per_replica = batch({1}, {2});
  auto fn = [](Tensor& v, const Tensor& x) { v.add_(x.squeeze()); };
  EXPECT_THROW(extended.update(var, fn, per_replica), TypeError);
  EXPECT_EQ(number(var), 1);
  extended.update(var, fn, extended.reduce_to(ReduceOp::SUM, per_replica, var));
  EXPECT_EQ(number(var), 4);
}

// "If instead "group=False" is specified, this function will return a nest of lists where each list
// has an element per replica".
TEST_F(StrategyExtendedPage, UpdateWithoutGrouping) {
  const Variable var = variable(1);
  auto scope = strategy.scope();
  const auto [values, ids] = extended.update_ungrouped(var, [](Tensor& v) {
    return std::pair{v.add_(1).clone(), *update_replica_id()};
  });
  ASSERT_EQ(values.size(), 2u);
  for (const Tensor& value : values) EXPECT_EQ(number(value), 2);
  EXPECT_THAT(ids, ElementsAre(0, 1));
}

// "Otherwise this returns fn(var, *args, **kwargs) colocated with var."
TEST_F(StrategyExtendedPage, UpdateOfAVariableWithOneCopy) {
  OneDeviceStrategy one_device("cpu:0");
  auto scope = one_device.scope();
  const Variable var(1.0f);
  int calls = 0;
  const auto result = one_device.extended().update(var, [&](Tensor& v) {
    ++calls;
    return v.add_(1).clone();
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(number(result), 2);
}

// "Runs fn(*args, **kwargs) on colocate_with devices."
TEST_F(StrategyExtendedPage, UpdateNonSlot) {
  const Variable v = variable(1);
  auto scope = strategy.scope();
  std::vector<int> calls;
  extended.update_non_slot(
      extended.non_slot_devices({v}), [&](int x) { calls.push_back(*update_replica_id() + x); },
      10);
  EXPECT_THAT(calls, ElementsAre(10, 11));
}

// "value in experimental_local_results(value_container(value)) will always be true."
TEST_F(StrategyExtendedPage, ValueContainer) {
  const Variable v = variable(1);
  for (const Tensor& component : v.components()) {
    const auto container = extended.value_container(component);
    ASSERT_TRUE(container.has_value());
    EXPECT_TRUE(*container == v);
    const auto results = compat::experimental_local_results(strategy, *container);
    EXPECT_TRUE(std::any_of(results.begin(), results.end(),
                            [&](const Tensor& each) { return each.is_same(component); }));
  }
  EXPECT_FALSE(extended.value_container(torch::tensor(1.0f)));
}

// variable_created_in_scope, both examples. They print strategy.variable_created_in_scope(v), but
// the method is one of this class.
TEST_F(StrategyExtendedPage, VariableCreatedInScope) {
  {
    auto scope = strategy.scope();
    Variable v(1.);
    EXPECT_TRUE(strategy.extended().variable_created_in_scope(v));
  }
  Variable v(1.);
  EXPECT_FALSE(strategy.extended().variable_created_in_scope(v));
}

}  // namespace
}  // namespace cohort
