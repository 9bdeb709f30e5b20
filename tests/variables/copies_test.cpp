#include <gtest/gtest.h>

#include <set>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

std::size_t distinct_memory(const Variable& v) {
  std::set<const void*> memory;
  for (const at::Tensor& component : v.components()) memory.insert(component.data_ptr());
  return memory.size();
}

struct VariableCopies : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
};
ON_ALL_LAYOUTS(VariableCopies);

TEST_ON_EACH_WORKER(VariableCopies, MemoryGrowsWithDevicesAndNotWithReplicas) {
  EXPECT_EQ(distinct_memory(make(ON_WRITE, A::SUM)), extended().worker_devices().size());
  EXPECT_EQ(distinct_memory(make(ON_READ, A::SUM)), static_cast<std::size_t>(n_here));
}

TEST(VariableCopies, OfCentralStorageAreOne) {
  EXPECT_EQ(distinct_memory(central_storage().make(AUTO, A::SUM)), 1u);
}

TEST_ON_EACH_WORKER(VariableCopies, AreWhereTheLocalReplicasAre) {
  const auto where = strategy.run([] { return get_replica_context().devices()[0]; });
  for (const auto synchronization : {ON_WRITE, ON_READ}) {
    const Variable v = make(synchronization, A::SUM);
    EXPECT_EQ(*v.devices(), values_of(where));
    EXPECT_EQ(v.device(), where.values()[0]);
    const auto in_replicas = strategy.run([&] { return v.device(); });
    EXPECT_EQ(values_of(in_replicas), values_of(where));
  }
}

TEST(VariableCopies, TellWhereTheyAre) {
  const VariableWords four(mirrored(2, 4));
  const Variable v = four.make(AUTO, A::SUM);
  EXPECT_EQ(*v.devices(), (std::vector<Device>{"cpu:0", "cpu:0", "cpu:1", "cpu:1"}));
  EXPECT_EQ(v.device(), "cpu:0");
  const VariableWords central(
      CentralStorageStrategy({.compute_devices = {"cpu:0", "cpu:1"}, .parameter_device = "cpu:1"}));
  EXPECT_EQ(*central.make(AUTO, A::SUM).devices(), std::vector<Device>{"cpu:1"});
}

Numbers gradients_of(const Strategy& strategy, const Variable& v) {
  const auto gradients = strategy.run([&] {
    (v * v * (id_tensor() + 1)).backward();
    return v.handle().grad().clone();
  });
  for (const at::Tensor& component : v.components()) EXPECT_TRUE(component.is_leaf());
  return numbers(gradients);
}

TEST_ON_EACH_WORKER(VariableCopies, EveryReplicaHasALeafOfItsOwn) {
  EXPECT_EQ(gradients_of(strategy, make(AUTO, A::NONE)),
            each_here([](int id) { return 2 * (id + 1); }));
}

TEST(VariableCopies, EveryReplicaOfCentralStorageHasALeafOfItsOwn) {
  const VariableWords world = central_storage();
  EXPECT_EQ(gradients_of(world.strategy, world.make(AUTO, A::NONE)), (Numbers{2, 4}));
}

TEST_ON_EACH_WORKER(VariableCopies, OnReadHasGradientsWhenTrainable) {
  const auto scope = strategy.scope();
  const Variable v(1.0f, {.trainable = true, .synchronization = ON_READ, .aggregation = A::SUM});
  strategy.run([&] { (v * (id_tensor() + 1)).backward(); });
  Numbers gradients;
  for (const at::Tensor& component : v.components()) gradients.push_back(number(component.grad()));
  EXPECT_EQ(gradients, each_here([](int id) { return id + 1; }));
}

TEST_ON_EACH_WORKER(VariableCopies, BackwardOutsideOfReplicasReadsTheFirst) {
  const Variable v = make(AUTO, A::NONE);
  const auto scope = strategy.scope();
  (v * 3).backward();
  EXPECT_EQ(number(v.primary().grad()), 3);
  EXPECT_EQ(number(v.handle().grad()), 3);
  for (int i = 1; i < n_here; ++i) EXPECT_FALSE(v.components()[i].grad().defined());
}

TEST_ON_EACH_WORKER(VariableCopies, AssigningDoesNotDisturbTheLeaf) {
  const Variable v = make(AUTO, A::MEAN);
  strategy.run([&] { v.assign_add(1); });
  v.assign_add(1);
  for (const at::Tensor& component : v.components()) {
    EXPECT_TRUE(component.is_leaf() && component.requires_grad());
    EXPECT_EQ(number(component), 3);
  }
}

TEST_ON_EACH_WORKER(VariableCopies, WritingToAComponentWritesToItsCopy) {
  const Variable v = make(AUTO, A::NONE);
  v.components().back().detach().fill_(9);
  const std::vector<int> copies = owners(v);
  Numbers expected;
  for (const int copy : copies) expected.push_back(copy == copies.back() ? 9 : 1);
  EXPECT_EQ(number(v.value()), expected.front());
  EXPECT_EQ(numbers(strategy.run([&] { return v.value(); })), expected);
}

TEST_ON_EACH_WORKER(VariableCopies, KnowTheirVariable) {
  const Variable v = make(AUTO, A::NONE), local = make(ON_READ, A::NONE);
  EXPECT_TRUE(extended().value_container(v.components().back()) == v);
  EXPECT_TRUE(extended().value_container(local.components()[0]) == local);
  EXPECT_EQ(extended().value_container(at::ones({1})), std::nullopt);
  EXPECT_EQ(extended().value_container(v.read_value()), std::nullopt);
  EXPECT_EQ(extended().value_container(at::Tensor()), std::nullopt);
  const Variable plain = one_device().make(AUTO, A::NONE);
  EXPECT_EQ(extended().value_container(plain.primary()), std::nullopt);
}

TEST_ON_EACH_WORKER(VariableCopies, OutliveTheVariableAsPlainTensors) {
  const at::Tensor component = make(AUTO, A::NONE).components().back();
  EXPECT_EQ(extended().value_container(component), std::nullopt);
  EXPECT_EQ(number(component), 1);
}

TEST_ON_EACH_WORKER(VariableCopies, ADeepCopyIsAVariableOfItsOwn) {
  const Variable v = make(ON_READ, A::SUM);
  set_to_ids(v);
  const Variable copy = v.deep_copy();
  v.assign(0);
  EXPECT_EQ(components(copy), numbers(ids_here()));
  EXPECT_EQ(copy.aggregation(), A::SUM);
  EXPECT_EQ(number(copy), sum_of_ids());
  const Variable inside = strategy.run([&] { return copy.deep_copy(); });
  EXPECT_EQ(components(inside), numbers(ids_here()));
  EXPECT_FALSE(inside == copy);
}

TEST_ON_EACH_WORKER(VariableCopies, ADeepCopyIsAssignedLikeTheVariable) {
  const Variable v = make(ON_WRITE, A::MEAN);
  const Variable copy = v.deep_copy();
  strategy.run([&] { copy.assign_add(id_tensor()); });
  EXPECT_EQ(components(copy), here(1 + mean_of_ids()));
  EXPECT_EQ(components(v), here(1));
  strategy.run([&] {
    const Variable inside = copy.deep_copy();
    inside.assign_add(id_tensor());
    EXPECT_EQ(number(inside), 1 + 2 * mean_of_ids());
  });
  EXPECT_EQ(components(copy), here(1 + mean_of_ids()));
}

TEST_ON_EACH_WORKER(VariableCopies, LocalResultsAreTheComponents) {
  const Variable v = make(AUTO, A::NONE);
  EXPECT_EQ(strategy.local_results(v).size(), static_cast<std::size_t>(n_here));
}

TEST_ON_EACH_WORKER(VariableCopies, AVariableIsPassedWholeAndComesBackAsItself) {
  const Variable v = make(AUTO, A::NONE);
  const Variable same = strategy.run([](const Variable& w) { return w; }, v);
  EXPECT_TRUE(same == v);
  strategy.run([&] {
    get_replica_context().merge_call([&](Strategy&, const Variable& w) { EXPECT_TRUE(w == v); }, v);
  });
}

TEST_ON_EACH_WORKER(VariableCopies, ReduceTakesOnReadApartAndOnWriteAsOne) {
  const Variable local = make(ON_READ, A::NONE), v = make(AUTO, A::NONE);
  strategy.run([&] { local.assign(3 + id_tensor()); });
  EXPECT_EQ(number(strategy.reduce(ReduceOp::SUM, local)), 3 * n + sum_of_ids());
  EXPECT_EQ(number(strategy.reduce(ReduceOp::MEAN, v)), 1);
  if (n > 1) {
    EXPECT_FAILS(strategy.reduce(ReduceOp::SUM, v), ValueError,
                 "cannot be reduced with the given reduce op");
  }
  EXPECT_EQ(number(extended().read_var(v)), 1);
}

}  // namespace
}  // namespace cohort
