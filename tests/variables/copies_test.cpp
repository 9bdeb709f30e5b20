#include <gtest/gtest.h>

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

TEST(VariableCopies, MemoryGrowsWithDevicesAndNotWithReplicas) {
  const VariableWords world = four_replicas_on_two_devices();
  EXPECT_EQ(distinct_memory(world.make(ON_WRITE, A::SUM)), 2u);
  EXPECT_EQ(distinct_memory(world.make(ON_READ, A::SUM)), 4u);
  EXPECT_EQ(distinct_memory(central_storage().make(AUTO, A::SUM)), 1u);
}

TEST(VariableCopies, TellWhereTheyAre) {
  const Variable v = four_replicas_on_two_devices().make(AUTO, A::SUM);
  EXPECT_EQ(*v.devices(), (std::vector<Device>{"cpu:0", "cpu:0", "cpu:1", "cpu:1"}));
  EXPECT_EQ(v.device(), "cpu:0");
  const VariableWords central(
      CentralStorageStrategy({.compute_devices = {"cpu:0", "cpu:1"}, .parameter_device = "cpu:1"}));
  EXPECT_EQ(*central.make(AUTO, A::SUM).devices(), std::vector<Device>{"cpu:1"});
}

TEST(VariableCopies, EveryReplicaHasALeafOfItsOwn) {
  for (const VariableWords& world :
       {two_replicas(), four_replicas_on_two_devices(), central_storage()}) {
    const Variable v = world.make(AUTO, A::NONE);
    const auto gradients = world.strategy.run([&] {
      (v * v * (VariableWords::id() + 1)).backward();
      return v.handle().grad().clone();
    });
    const Numbers all = numbers(gradients);
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], 2.0 * (double(i) + 1));
    for (const at::Tensor& component : v.components()) EXPECT_TRUE(component.is_leaf());
  }
}

TEST(VariableCopies, OnReadHasGradientsWhenTrainable) {
  const VariableWords world = two_replicas();
  const auto scope = world.strategy.scope();
  const Variable v(1.0f, {.trainable = true, .synchronization = ON_READ, .aggregation = A::SUM});
  world.strategy.run([&] { (v * (VariableWords::id() + 1)).backward(); });
  EXPECT_EQ(number(v.components()[0].grad()), 1);
  EXPECT_EQ(number(v.components()[1].grad()), 2);
}

TEST(VariableCopies, BackwardOutsideOfReplicasReadsTheFirst) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(AUTO, A::NONE);
  const auto scope = world.strategy.scope();
  (v * 3).backward();
  EXPECT_EQ(number(v.primary().grad()), 3);
  EXPECT_EQ(number(v.handle().grad()), 3);
  EXPECT_FALSE(v.components()[1].grad().defined());
}

TEST(VariableCopies, AssigningDoesNotDisturbTheLeaf) {
  const VariableWords world = four_replicas_on_two_devices();
  const Variable v = world.make(AUTO, A::MEAN);
  world.strategy.run([&] { v.assign_add(1); });
  v.assign_add(1);
  for (const at::Tensor& component : v.components()) {
    EXPECT_TRUE(component.is_leaf() && component.requires_grad());
    EXPECT_EQ(number(component), 3);
  }
}

TEST(VariableCopies, WritingToAComponentWritesToItsCopy) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(AUTO, A::NONE);
  v.components()[1].detach().fill_(9);
  EXPECT_EQ(number(v.value()), 1);
  EXPECT_EQ(numbers(world.strategy.run([&] { return v.value(); })), (Numbers{1, 9}));
}

TEST(VariableCopies, KnowTheirVariable) {
  const VariableWords world = two_replicas();
  auto& extended = world.strategy.extended();
  const Variable v = world.make(AUTO, A::NONE), local = world.make(ON_READ, A::NONE);
  EXPECT_TRUE(extended.value_container(v.components()[1]) == v);
  EXPECT_TRUE(extended.value_container(local.components()[0]) == local);
  EXPECT_EQ(extended.value_container(at::ones({1})), std::nullopt);
  EXPECT_EQ(extended.value_container(v.read_value()), std::nullopt);
  EXPECT_EQ(extended.value_container(at::Tensor()), std::nullopt);
  const Variable plain = one_device().make(AUTO, A::NONE);
  EXPECT_EQ(extended.value_container(plain.primary()), std::nullopt);
}

TEST(VariableCopies, OutliveTheVariableAsPlainTensors) {
  const VariableWords world = two_replicas();
  const at::Tensor component = world.make(AUTO, A::NONE).components()[1];
  EXPECT_EQ(world.strategy.extended().value_container(component), std::nullopt);
  EXPECT_EQ(number(component), 1);
}

TEST(VariableCopies, ADeepCopyIsAVariableOfItsOwn) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(ON_READ, A::SUM);
  world.set_to_ids(v);
  const Variable copy = v.deep_copy();
  v.assign(0);
  EXPECT_EQ(components(copy), (Numbers{0, 1}));
  EXPECT_EQ(copy.aggregation(), A::SUM);
  const Variable inside = world.strategy.run([&] { return copy.deep_copy(); });
  EXPECT_EQ(components(inside), (Numbers{0, 1}));
  EXPECT_FALSE(inside == copy);
}

TEST(VariableCopies, LocalResultsAreTheComponents) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(AUTO, A::NONE);
  EXPECT_EQ(world.strategy.local_results(v).size(), 2u);
}

TEST(VariableCopies, AVariableIsPassedWholeAndComesBackAsItself) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(AUTO, A::NONE);
  const Variable same = world.strategy.run([](const Variable& w) { return w; }, v);
  EXPECT_TRUE(same == v);
  world.strategy.run([&] {
    get_replica_context().merge_call([&](Strategy&, const Variable& w) { EXPECT_TRUE(w == v); }, v);
  });
}

TEST(VariableCopies, ReduceTakesOnReadApartAndOnWriteAsOne) {
  const VariableWords world = two_replicas();
  const Variable local = world.make(ON_READ, A::NONE), v = world.make(AUTO, A::NONE);
  world.strategy.run([&] { local.assign(3 + VariableWords::id()); });
  EXPECT_EQ(number(world.strategy.reduce(ReduceOp::SUM, local)), 7);
  EXPECT_EQ(number(world.strategy.reduce(ReduceOp::MEAN, v)), 1);
  EXPECT_FAILS(world.strategy.reduce(ReduceOp::SUM, v), ValueError,
               "cannot be reduced with the given reduce op");
  EXPECT_EQ(number(world.strategy.extended().read_var(v)), 1);
}

}  // namespace
}  // namespace cohort
