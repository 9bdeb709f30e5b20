#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

struct AssignOutsideOfReplicas : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
};
ON_ALL_LAYOUTS(AssignOutsideOfReplicas);

TEST_ON_EACH_WORKER(AssignOutsideOfReplicas, GoesToAllCopiesWhateverTheAggregation) {
  for (const A aggregation : kAggregations) {
    const Variable v = make(AUTO, aggregation);
    EXPECT_EQ(number(v.assign(3)), 3);
    EXPECT_EQ(components(v), here(3));
    const auto scope = strategy.scope();
    EXPECT_EQ(number(v.assign_add(at::scalar_tensor(2.0f))), 5);
    EXPECT_EQ(number(v.assign_sub(1)), 4);
    EXPECT_EQ(components(v), here(4));
  }
}

TEST(AssignOutsideOfReplicas, OfCentralStorageGoesToTheOnlyCopyWhateverTheAggregation) {
  const VariableWords world = central_storage();
  for (const A aggregation : kAggregations) {
    const Variable v = world.make(AUTO, aggregation);
    EXPECT_EQ(number(v.assign(3)), 3);
    EXPECT_EQ(components(v), Numbers(2, 3));
    const auto scope = world.strategy.scope();
    EXPECT_EQ(number(v.assign_add(at::scalar_tensor(2.0f))), 5);
    EXPECT_EQ(number(v.assign_sub(1)), 4);
    EXPECT_EQ(components(v), Numbers(2, 4));
  }
}

TEST_ON_EACH_WORKER(AssignOutsideOfReplicas, OnReadSetsWhatWillBeRead) {
  const double x = 1.5 * n;
  for (const A aggregation : {A::SUM, A::MEAN, A::ONLY_FIRST_REPLICA}) {
    const Variable v = make(ON_READ, aggregation);
    set_to_ids(v);
    EXPECT_EQ(number(v.assign(x)), x);
    EXPECT_EQ(components(v), here(aggregation == A::SUM ? 1.5 : x));
    EXPECT_EQ(number(v.value()), x);
  }
}

TEST_ON_EACH_WORKER(AssignOutsideOfReplicas, OnReadSumOfIntegersKeepsTheRemainder) {
  for (const int x : {7, -7, 23}) {
    const Variable v = make(ON_READ, A::SUM, at::scalar_tensor(0, at::kInt));
    EXPECT_EQ(number(v.assign(x)), x);
    const int part = x / n;
    EXPECT_EQ(components(v), each_here([&](int id) { return id == 0 ? x - part * last : part; }));
  }
}

TEST_ON_EACH_WORKER(AssignOutsideOfReplicas, OnReadWithoutAggregationWritesAndThenCantRead) {
  const Variable v = make(ON_READ, A::NONE);
  EXPECT_FAILS(v.assign(3), ValueError, "Could not convert from");
  EXPECT_EQ(components(v), here(3));
  v.assign(4, {.read_value = false});
  EXPECT_EQ(components(v), here(4));
}

TEST_ON_EACH_WORKER(AssignOutsideOfReplicas, OnReadCantBeAddedTo) {
  for (const A aggregation : kAggregations) {
    const Variable v = make(ON_READ, aggregation);
    EXPECT_FAILS(v.assign_add(3), ValueError, "SyncOnReadVariable does not support `assign_add`");
    EXPECT_FAILS(v.assign_sub(3), ValueError, "SyncOnReadVariable does not support `assign_sub`");
    EXPECT_EQ(components(v), here(1));
  }
}

TEST_ON_EACH_WORKER(AssignOutsideOfReplicas, APerReplicaIsRefused) {
  const auto all = ids();
  for (const A aggregation : kAggregations) {
    for (const auto synchronization : {ON_WRITE, ON_READ}) {
      const Variable v = make(synchronization, aggregation);
      EXPECT_FAILS(v.assign(all), TypeError, "Expected value to be mirrored across replicas");
      EXPECT_EQ(components(v), here(1));
    }
  }
}

TEST(AssignOutsideOfReplicas, APerReplicaIsRefusedByCentralStorage) {
  const VariableWords world = central_storage();
  const auto ids = world.strategy.run([] { return id_tensor(); });
  for (const A aggregation : kAggregations) {
    for (const auto synchronization : {ON_WRITE, ON_READ}) {
      const Variable v = world.make(synchronization, aggregation);
      EXPECT_FAILS(v.assign(ids), TypeError, "Expected value to be mirrored across replicas");
      EXPECT_EQ(components(v), Numbers(2, 1));
    }
  }
}

TEST_ON_EACH_WORKER(AssignOutsideOfReplicas, TakesMirroredValuesAndVariables) {
  const Variable v = make(AUTO, A::NONE), w = make(AUTO, A::NONE);
  const auto numbers = strategy.run([] { return id_tensor() + 1; });
  const double sum = sum_of_ids() + n;
  v.assign(extended().reduce_to(ReduceOp::SUM, numbers, v));
  EXPECT_EQ(components(v), here(sum));
  w.assign(v);
  EXPECT_EQ(components(w), here(sum));
  w.assign_add(w);
  EXPECT_EQ(components(w), here(2 * sum));
}

TEST_ON_EACH_WORKER(AssignOutsideOfReplicas, TakesTheAggregateOfAnOnReadVariable) {
  const Variable v = make(AUTO, A::NONE), local = make(ON_READ, A::SUM);
  set_to_ids(local);
  v.assign(local);
  EXPECT_EQ(components(v), here(sum_of_ids()));
  v.assign_add(local);
  EXPECT_EQ(components(v), here(2 * sum_of_ids()));
}

TEST_ON_EACH_WORKER(AssignOutsideOfReplicas, TheValueMustHaveTheShape) {
  const Variable v = make(AUTO, A::NONE, at::tensor({1.0f, 2.0f}));
  EXPECT_EQ(numbers(v.assign(at::full({2}, 4.0f))), (Numbers{4, 4}));
  EXPECT_FAILS(v.assign(4), ValueError, "to fill the variable, assign torch::full()");
  EXPECT_FAILS(v.assign_add(4), InvalidArgument, "Shape mismatch");
  EXPECT_FAILS(v.assign(at::ones({3})), ValueError, "Shape mismatch");
  EXPECT_FAILS(v.assign_add(at::ones({})), InvalidArgument, "Shape mismatch");
  EXPECT_FAILS(v.assign(at::ones({2}).to_sparse()), ValueError, "Shape mismatch");
  for (const at::Tensor& component : v.components()) EXPECT_EQ(numbers(component), (Numbers{4, 4}));
}

TEST_ON_EACH_WORKER(AssignOutsideOfReplicas, ATensorMustHaveTheDtypeAndANumberMustFitIt) {
  for (const auto synchronization : {ON_WRITE, ON_READ}) {
    const Variable integer = make(synchronization, A::SUM, at::scalar_tensor(1, at::kInt));
    const Variable real = make(synchronization, A::SUM);
    EXPECT_FAILS(integer.assign(1.5), TypeError, "dtype");
    EXPECT_FAILS(integer.assign(at::Tensor()), ValueError, "undefined");
    EXPECT_FAILS(real.assign(at::scalar_tensor(2.0, at::kDouble)), ValueError, "dtype");
    EXPECT_EQ(number(real.assign(3 * n)), 3 * n);
    EXPECT_EQ(components(integer), here(1));
  }
}

TEST(AssignOutsideOfReplicas, APlainVariablesTensorMustHaveTheDtypeAndANumberMustFitIt) {
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

struct AssignInUpdate : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
};
ON_ALL_LAYOUTS(AssignInUpdate);

TEST_ON_EACH_WORKER(AssignInUpdate, ChangesTheCopyThatIsUpdatedOnly) {
  for (const auto synchronization : {ON_WRITE, ON_READ}) {
    for (const A aggregation : kAggregations) {
      const Variable v = make(synchronization, aggregation);
      extended().update(v, [&](at::Tensor&) {
        v.assign(10.0f * float(*update_replica_id()));
        v.assign_add(v + 1);
        EXPECT_EQ(number(v.value()), 20.0 * *update_replica_id() + 1);
      });
      Numbers expected;
      for (int i = 0; i < n_here; ++i) {
        expected.push_back(20 * (synchronization == ON_READ ? i : owners(v)[i]) + 1);
      }
      EXPECT_EQ(components(v), expected);
    }
  }
}

}  // namespace
}  // namespace cohort
