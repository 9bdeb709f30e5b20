#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

at::Tensor rows(std::vector<std::int64_t> indices) { return at::tensor(indices); }

/// In replica r: r and r + 1, for the rows r and r + 1.
IndexedSlices two_rows(c10::ScalarType dtype = at::kFloat) {
  const auto r = get_replica_context().replica_id_in_sync_group();
  return {at::tensor({r, r + 1}, dtype), rows({r, r + 1})};
}

/// In replica r: r + 2, for the row r.
IndexedSlices one_row(c10::ScalarType dtype = at::kFloat) {
  const auto r = get_replica_context().replica_id_in_sync_group();
  return {at::tensor({r + 2}, dtype), rows({r})};
}

template <class F>
Numbers after_run(const VariableWords& world, A aggregation, at::Tensor initial, F&& change) {
  const Variable v = world.make(AUTO, aggregation, initial);
  world.strategy.run([&] { change(v); });
  EXPECT_TRUE(at::equal(v.components()[0], v.components()[1]));
  return numbers(v.components()[1]);
}

TEST(ScatterInReplicas, SlicesOfAllReplicasAreTakenTogether) {
  const VariableWords world = two_replicas();
  const at::Tensor zeros = at::zeros({3});
  const auto sub = [](const Variable& v) { v.scatter_sub(two_rows()); };
  const auto add = [](const Variable& v) { v.scatter_add(two_rows()); };
  const auto mul = [](const Variable& v) { v.scatter_mul(one_row()); };
  EXPECT_EQ(after_run(world, A::MEAN, zeros, sub), (Numbers{0, -1, -1}));
  EXPECT_EQ(after_run(world, A::MEAN, zeros, add), (Numbers{0, 1, 1}));
  EXPECT_EQ(after_run(world, A::SUM, zeros, add), (Numbers{0, 2, 2}));
  EXPECT_EQ(after_run(world, A::ONLY_FIRST_REPLICA, zeros, add), (Numbers{0, 1, 0}));
  EXPECT_EQ(after_run(world, A::MEAN, at::tensor({2.f, 1.f, 1.f}), mul), (Numbers{2, 1.5, 1}));
  EXPECT_EQ(after_run(world, A::SUM, at::tensor({2.f, 1.f, 1.f}), mul), (Numbers{4, 3, 1}));
  EXPECT_EQ(after_run(central_storage(), A::SUM, zeros, add), (Numbers{0, 2, 2}));
  EXPECT_EQ(after_run(four_replicas_on_two_devices(), A::SUM, at::zeros({5}), add),
            (Numbers{0, 2, 4, 6, 4}));
}

TEST(ScatterInReplicas, IntegersDivideTowardsZero) {
  const auto div = [](const Variable& v) { v.scatter_div(one_row(at::kInt)); };
  EXPECT_EQ(after_run(two_replicas(), A::SUM, at::tensor({1, 6, 1}, at::kInt), div),
            (Numbers{0, 2, 1}));
}

TEST(ScatterInReplicas, MinMaxAndUpdateNeedTheFirstReplica) {
  const VariableWords world = two_replicas();
  const at::Tensor zeros = at::zeros({3});
  const auto update = [](const Variable& v) { v.scatter_update(one_row()); };
  const auto min = [](const Variable& v) { v.scatter_min(one_row()); };
  const auto max = [](const Variable& v) { v.scatter_max(one_row()); };
  EXPECT_EQ(after_run(world, A::ONLY_FIRST_REPLICA, zeros, update), (Numbers{2, 0, 0}));
  EXPECT_EQ(after_run(world, A::ONLY_FIRST_REPLICA, zeros + 5, min), (Numbers{2, 5, 5}));
  EXPECT_FAILS(after_run(world, A::SUM, zeros, update), NotImplementedError, "scatter_update");
  EXPECT_FAILS(after_run(world, A::SUM, zeros, min), NotImplementedError, "scatter_min");
  EXPECT_FAILS(after_run(world, A::MEAN, zeros, max), NotImplementedError, "scatter_max");
  EXPECT_EQ(after_run(central_storage(), A::SUM, zeros, update), (Numbers{2, 3, 0}));
}

TEST(ScatterInReplicas, WithoutAggregationIsAnError) {
  const auto sub = [](const Variable& v) { v.scatter_sub(two_rows()); };
  const auto min = [](const Variable& v) { v.scatter_min(one_row()); };
  for (const VariableWords& world : {two_replicas(), central_storage()}) {
    EXPECT_FAILS(after_run(world, A::NONE, at::zeros({3}), sub), ValueError,
                 "You must specify an aggregation method");
    EXPECT_FAILS(after_run(world, A::NONE, at::zeros({3}), min), ValueError,
                 "You must specify an aggregation method");
  }
}

TEST(ScatterOutsideOfReplicas, ChangesTheRowsOfAllCopies) {
  const Variable v = two_replicas().make(AUTO, A::NONE, at::tensor({4.f, 4.f, 4.f}));
  const IndexedSlices slices{at::tensor({2.f, 8.f}), rows({0, 2}), {3}};
  EXPECT_EQ(numbers(v.scatter_add(slices)), (Numbers{6, 4, 12}));
  EXPECT_EQ(numbers(v.scatter_sub(slices)), (Numbers{4, 4, 4}));
  EXPECT_EQ(numbers(v.scatter_mul(slices)), (Numbers{8, 4, 32}));
  EXPECT_EQ(numbers(v.scatter_div(slices)), (Numbers{4, 4, 4}));
  EXPECT_EQ(numbers(v.scatter_min(slices)), (Numbers{2, 4, 4}));
  EXPECT_EQ(numbers(v.scatter_max(slices)), (Numbers{2, 4, 8}));
  EXPECT_EQ(numbers(v.scatter_update({at::tensor({1.f}), rows({1})})), (Numbers{2, 1, 8}));
  EXPECT_TRUE(at::equal(v.components()[0], v.components()[1]));
}

TEST(ScatterOutsideOfReplicas, MinMaxAndUpdateFollowTheAggregationToo) {
  const Variable v = two_replicas().make(AUTO, A::SUM, at::zeros({3}));
  EXPECT_FAILS(v.scatter_max({at::ones({1}), rows({0})}), NotImplementedError, "scatter_max");
}

TEST(ScatterOutsideOfReplicas, ARowMayComeTwice) {
  const Variable v(at::ones({2, 2}));
  const IndexedSlices twice{at::full({2, 2}, 3.0f), rows({1, 1})};
  EXPECT_EQ(numbers(v.scatter_add(twice)), (Numbers{1, 1, 7, 7}));
  EXPECT_EQ(numbers(v.scatter_mul(twice)), (Numbers{1, 1, 63, 63}));
}

TEST(Scatter, OnReadHasNone) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(ON_READ, A::SUM, at::zeros({3}));
  const IndexedSlices slices{at::ones({1}), rows({0})};
  EXPECT_FAILS(v.scatter_update(slices), NotImplementedError, "`scatter_update`");
  EXPECT_FAILS(world.strategy.run([&] { v.scatter_add(slices); }), NotImplementedError,
               "`scatter_add`");
}

TEST(Scatter, TakesSparseTensors) {
  const Variable v(at::zeros({3, 2}));
  const at::Tensor sparse =
      at::sparse_coo_tensor(rows({2, 2}).unsqueeze(0), at::ones({2, 2}), {3, 2});
  EXPECT_EQ(numbers(v.scatter_add(IndexedSlices::from_sparse(sparse))),
            (Numbers{0, 0, 0, 0, 2, 2}));
  EXPECT_FAILS(IndexedSlices::from_sparse(at::zeros({2})), ValueError, "COO");
}

TEST(Scatter, SlicesThatDoNotFitAreRefused) {
  const Variable v(at::zeros({3, 2}));
  EXPECT_FAILS(v.scatter_add({at::ones({1, 3}), rows({0})}), InvalidArgument, "Shape mismatch");
  EXPECT_FAILS(v.scatter_add({at::ones({2, 2}), rows({0})}), InvalidArgument, "Shape mismatch");
  EXPECT_FAILS(v.scatter_add({at::ones({1, 2}), rows({0}), {4, 2}}), InvalidArgument,
               "Shape mismatch");
  EXPECT_FAILS(v.scatter_add({at::ones({1, 2}), rows({3})}), InvalidArgument, "expected 0 to 2");
  EXPECT_FAILS(Variable(1.0f).scatter_add({at::ones({1}), rows({0})}), InvalidArgument,
               "Shape mismatch");
}

}  // namespace
}  // namespace cohort
