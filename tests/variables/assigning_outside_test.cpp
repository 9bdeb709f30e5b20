#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

constexpr A kAggregations[] = {A::NONE, A::SUM, A::MEAN, A::ONLY_FIRST_REPLICA};

TEST(AssignOutsideOfReplicas, GoesToAllCopiesWhateverTheAggregation) {
  for (const VariableWords& world :
       {two_replicas(), four_replicas_on_two_devices(), central_storage()}) {
    const std::size_t n = world.strategy.num_replicas_in_sync();
    for (const A aggregation : kAggregations) {
      const Variable v = world.make(AUTO, aggregation);
      EXPECT_EQ(number(v.assign(3)), 3);
      EXPECT_EQ(components(v), Numbers(n, 3));
      const auto scope = world.strategy.scope();
      EXPECT_EQ(number(v.assign_add(at::scalar_tensor(2.0f))), 5);
      EXPECT_EQ(number(v.assign_sub(1)), 4);
      EXPECT_EQ(components(v), Numbers(n, 4));
    }
  }
}

TEST(AssignOutsideOfReplicas, OnReadSetsWhatWillBeRead) {
  const auto assign_3 = [](const VariableWords& world, A aggregation) {
    const Variable v = world.make(ON_READ, aggregation);
    EXPECT_EQ(number(v.assign(3)), 3);
    return components(v);
  };
  EXPECT_EQ(assign_3(two_replicas(), A::SUM), Numbers(2, 1.5));
  EXPECT_EQ(assign_3(two_replicas(), A::MEAN), Numbers(2, 3));
  EXPECT_EQ(assign_3(two_replicas(), A::ONLY_FIRST_REPLICA), Numbers(2, 3));
  EXPECT_EQ(assign_3(four_replicas_on_two_devices(), A::SUM), Numbers(4, 0.75));
}

TEST(AssignOutsideOfReplicas, OnReadSumOfIntegersKeepsTheRemainder) {
  const auto assign = [](int x, const VariableWords& world) {
    const Variable v = world.make(ON_READ, A::SUM, at::scalar_tensor(0, at::kInt));
    EXPECT_EQ(number(v.assign(x)), x);
    return components(v);
  };
  EXPECT_EQ(assign(7, two_replicas()), (Numbers{4, 3}));
  EXPECT_EQ(assign(-7, two_replicas()), (Numbers{-4, -3}));
  EXPECT_EQ(assign(7, four_replicas_on_two_devices()), (Numbers{4, 1, 1, 1}));
}

TEST(AssignOutsideOfReplicas, OnReadWithoutAggregationWritesAndThenCantRead) {
  const Variable v = two_replicas().make(ON_READ, A::NONE);
  EXPECT_FAILS(v.assign(3), ValueError, "Could not convert from");
  EXPECT_EQ(components(v), Numbers(2, 3));
  v.assign(4, {.read_value = false});
  EXPECT_EQ(components(v), Numbers(2, 4));
}

TEST(AssignOutsideOfReplicas, OnReadCantBeAddedTo) {
  for (const A aggregation : kAggregations) {
    const Variable v = two_replicas().make(ON_READ, aggregation);
    EXPECT_FAILS(v.assign_add(3), ValueError, "SyncOnReadVariable does not support `assign_add`");
    EXPECT_FAILS(v.assign_sub(3), ValueError, "SyncOnReadVariable does not support `assign_sub`");
    EXPECT_EQ(components(v), Numbers(2, 1));
  }
}

TEST(AssignOutsideOfReplicas, APerReplicaIsRefused) {
  for (const VariableWords& world : {two_replicas(), central_storage()}) {
    const auto ids = world.strategy.run([] { return VariableWords::id(); });
    for (const A aggregation : kAggregations) {
      for (const auto synchronization : {ON_WRITE, ON_READ}) {
        const Variable v = world.make(synchronization, aggregation);
        EXPECT_FAILS(v.assign(ids), TypeError, "Expected value to be mirrored across replicas");
        EXPECT_EQ(components(v), Numbers(2, 1));
      }
    }
  }
}

TEST(AssignOutsideOfReplicas, TakesMirroredValuesAndVariables) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(AUTO, A::NONE), w = world.make(AUTO, A::NONE);
  const auto ids = world.strategy.run([] { return VariableWords::id() + 1; });
  v.assign(world.strategy.extended().reduce_to(ReduceOp::SUM, ids, v));
  EXPECT_EQ(components(v), Numbers(2, 3));
  w.assign(v);
  EXPECT_EQ(components(w), Numbers(2, 3));
  w.assign_add(w);
  EXPECT_EQ(components(w), Numbers(2, 6));
}

TEST(AssignOutsideOfReplicas, TheValueMustHaveTheShape) {
  const Variable v = two_replicas().make(AUTO, A::NONE, at::tensor({1.0f, 2.0f}));
  EXPECT_EQ(numbers(v.assign(at::full({2}, 4.0f))), (Numbers{4, 4}));
  EXPECT_FAILS(v.assign(4), ValueError, "to fill the variable, assign torch::full()");
  EXPECT_FAILS(v.assign_add(4), InvalidArgument, "Shape mismatch");
  EXPECT_FAILS(v.assign(at::ones({3})), ValueError, "Shape mismatch");
  EXPECT_FAILS(v.assign_add(at::ones({})), InvalidArgument, "Shape mismatch");
  EXPECT_FAILS(v.assign(at::ones({2}).to_sparse()), ValueError, "Shape mismatch");
}

TEST(AssignOutsideOfReplicas, ATensorMustHaveTheDtypeAndANumberMustFitIt) {
  const Variable integer(1), truth(true);
  EXPECT_FAILS(integer.assign(1.5), TypeError, "dtype");
  EXPECT_FAILS(truth.assign(1), TypeError, "dtype");
  EXPECT_FAILS(integer.assign(at::Tensor()), ValueError, "undefined");
  EXPECT_FAILS(Variable(1.0f).assign(at::scalar_tensor(2.0, at::kDouble)), ValueError, "dtype");
  EXPECT_FAILS(Variable(1.0f).assign_add(at::scalar_tensor(2, at::kInt)), ValueError, "dtype");
  EXPECT_EQ(number(Variable(1.0f).assign(3)), 3);
  EXPECT_EQ(number(truth.assign(false)), 0);
}

TEST(AssignOutsideOfReplicas, TruthValuesAreSetAndNotAdded) {
  const Variable truth(true);
  EXPECT_FAILS(truth.assign_add(at::ones({}, at::kBool)), InvalidArgument, "Bool");
  EXPECT_FAILS(truth.assign_sub(true), InvalidArgument, "Bool");
}

TEST(AssignInUpdate, ChangesTheCopyThatIsUpdatedOnly) {
  const VariableWords world = two_replicas();
  for (const auto synchronization : {ON_WRITE, ON_READ}) {
    for (const A aggregation : kAggregations) {
      const Variable v = world.make(synchronization, aggregation);
      world.strategy.extended().update(v, [&](at::Tensor&) {
        v.assign(10.0f * float(*update_replica_id()));
        v.assign_add(v + 1);
        EXPECT_EQ(number(v.value()), 20.0 * *update_replica_id() + 1);
      });
      EXPECT_EQ(components(v), (Numbers{1, 21}));
    }
  }
}

}  // namespace
}  // namespace cohort
