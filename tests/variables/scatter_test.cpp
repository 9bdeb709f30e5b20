#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

at::Tensor rows(std::vector<std::int64_t> indices) { return at::tensor(indices); }

/// What values are multiples of where they are divided by a number of replicas, to be exact.
constexpr int kUnit = 40;

/// In replica r: r and r + 1 units, for the rows r and r + 1.
IndexedSlices two_rows() {
  const int r = id();
  return {at::tensor({r * kUnit, (r + 1) * kUnit}, at::kFloat), rows({r, r + 1})};
}

/// In replica r: r + 2 units, for the row r.
IndexedSlices one_row(c10::ScalarType dtype = at::kFloat, int unit = 1) {
  return {at::tensor({(id() + 2) * unit}, dtype), rows({id()})};
}

const auto sub_two = [](const Variable& v) { v.scatter_sub(two_rows()); };
const auto add_two = [](const Variable& v) { v.scatter_add(two_rows()); };
const auto mul_one = [](const Variable& v) { v.scatter_mul(one_row(at::kFloat, kUnit)); };
const auto update_one = [](const Variable& v) { v.scatter_update(one_row()); };
const auto min_one = [](const Variable& v) { v.scatter_min(one_row()); };
const auto max_one = [](const Variable& v) { v.scatter_max(one_row()); };

template <class F>
Numbers rows_after_run(const VariableWords& world, A aggregation, at::Tensor initial, F&& change) {
  const Variable v = world.make(AUTO, aggregation, initial);
  world.strategy.run([&] { change(v); });
  for (const at::Tensor& component : v.components()) {
    EXPECT_TRUE(at::equal(component, v.components()[0]));
  }
  return numbers(v.components().back());
}

struct ScatterInReplicas : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
  const at::Tensor zeros = at::zeros({n + 1});

  template <class F>
  Numbers after_run(A aggregation, const at::Tensor& initial, F&& change) const {
    return rows_after_run(VariableWords(strategy), aggregation, initial, change);
  }
  /// What the function makes of the number of each row.
  template <class F>
  Numbers each_row(F&& number_of) const {
    Numbers all;
    for (int row = 0; row <= n; ++row) all.push_back(number_of(row));
    return all;
  }
};
ON_ALL_LAYOUTS(ScatterInReplicas);

TEST_ON_EACH_WORKER(ScatterInReplicas, SlicesOfAllReplicasAreTakenTogether) {
  // Two replicas add to each row, but for the first and the last one.
  const Numbers sums = each_row([&](int row) { return (row < n ? 2. : 1.) * row * kUnit; });
  EXPECT_EQ(after_run(A::SUM, zeros, add_two), sums);
  EXPECT_EQ(after_run(A::SUM, zeros, sub_two), each_row([&](int row) { return -sums[row]; }));
  EXPECT_EQ(after_run(A::MEAN, zeros, add_two), each_row([&](int row) { return sums[row] / n; }));
  EXPECT_EQ(after_run(A::MEAN, zeros, sub_two), each_row([&](int row) { return -sums[row] / n; }));
  EXPECT_EQ(after_run(A::ONLY_FIRST_REPLICA, zeros, add_two),
            each_row([](int row) { return row == 1 ? kUnit : 0; }));
}

TEST_ON_EACH_WORKER(ScatterInReplicas, SlicesOfAllReplicasAreMultipliedBy) {
  const at::Tensor two = at::full({n + 1}, 2.f);
  const auto factor = [&](int row) { return row < n ? (row + 2.) * kUnit : 1.; };
  EXPECT_EQ(after_run(A::SUM, two, mul_one), each_row([&](int row) { return 2 * factor(row); }));
  EXPECT_EQ(after_run(A::MEAN, two, mul_one),
            each_row([&](int row) { return row < n ? 2 * factor(row) / n : 2; }));
  EXPECT_EQ(after_run(A::ONLY_FIRST_REPLICA, two, mul_one),
            each_row([&](int row) { return row == 0 ? 4 * kUnit : 2; }));
}

TEST_ON_EACH_WORKER(ScatterInReplicas, TheSameNumberOfReplicasGivesTheSameBitsOnAnyDevices) {
  const auto change = [](const Strategy& strategy) {
    const Variable v = VariableWords(strategy).make(AUTO, A::MEAN, at::ones({2, 3}));
    strategy.run([&] {
      const at::Tensor values = at::sin(at::arange(9).reshape({3, 3}) + id() * 0.37f) + 1.5f;
      const at::Tensor indices = rows({id() % 2, 1, 0});
      v.scatter_add({values, indices});
      v.scatter_mul({values, indices});
      v.scatter_sub({values, indices});
      v.scatter_div({values, indices});
    });
    return v.read_value();
  };
  const Strategy alone = MirroredStrategy({.devices = {"cpu:0"}, .replicas = n});
  EXPECT_TRUE(at::equal(change(strategy), change(alone)));
}

TEST_ON_EACH_WORKER(ScatterInReplicas, ReplicasMayBringDifferentNumbersOfRows) {
  const auto add = [](const Variable& v) {
    v.scatter_add({at::full({id() + 1}, 1.0f * kUnit), at::zeros({id() + 1}, at::kLong)});
  };
  const auto add_of_last = [&](const Variable& v) {
    const int own = id() == last ? 1 : 0;
    v.scatter_add({at::full({own}, 1.0f * kUnit), at::zeros({own}, at::kLong)});
  };
  const at::Tensor zero = at::zeros({1});
  const double all = n * (n + 1) / 2. * kUnit;
  EXPECT_EQ(after_run(A::SUM, zero, add), Numbers{all});
  EXPECT_EQ(after_run(A::MEAN, zero, add), Numbers{all / n});
  EXPECT_EQ(after_run(A::ONLY_FIRST_REPLICA, zero, add), Numbers{kUnit});
  EXPECT_EQ(after_run(A::SUM, zero, add_of_last), Numbers{kUnit});
  EXPECT_EQ(after_run(A::ONLY_FIRST_REPLICA, zero, add_of_last), Numbers{n == 1 ? kUnit : 0.});
}

TEST_ON_EACH_WORKER(ScatterInReplicas, RowsOfMatricesAndReturnedValues) {
  const Variable v = make(AUTO, A::SUM, at::zeros({n + 1, 2}));
  const auto returned = strategy.run([&] {
    return v.scatter_add({at::full({1, 2}, id() + 1.f), rows({id()})}).clone();
  });
  at::Tensor expected = at::zeros({n + 1, 2});
  for (int row = 0; row < n; ++row) expected[row].fill_(row + 1.f);
  for (const at::Tensor& each : returned.values()) EXPECT_TRUE(at::equal(each, expected));
  for (const at::Tensor& each : v.components()) EXPECT_TRUE(at::equal(each, expected));
}

TEST(ScatterInReplicas, CentralStorageTakesTheSlicesOfAllReplicas) {
  EXPECT_EQ(rows_after_run(central_storage(), A::SUM, at::zeros({3}), add_two),
            (Numbers{0, 2 * kUnit, 2 * kUnit}));
  EXPECT_EQ(rows_after_run(central_storage(), A::SUM, at::zeros({3}), update_one),
            (Numbers{2, 3, 0}));
}

TEST_ON_EACH_WORKER(ScatterInReplicas, IntegersDivideTowardsZero) {
  const auto div = [](const Variable& v) { v.scatter_div(one_row(at::kInt)); };
  for (const int x : {6, -7}) {
    EXPECT_EQ(after_run(A::SUM, at::full({n + 1}, x, at::kInt), div),
              each_row([&](int row) { return row < n ? x / (row + 2) : x; }));
  }
}

TEST_ON_EACH_WORKER(ScatterInReplicas, MinMaxAndUpdateNeedTheFirstReplica) {
  const auto first_row = [&](double x, double others) {
    return each_row([&](int row) { return row == 0 ? x : others; });
  };
  EXPECT_EQ(after_run(A::ONLY_FIRST_REPLICA, zeros, update_one), first_row(2, 0));
  EXPECT_EQ(after_run(A::ONLY_FIRST_REPLICA, zeros + 5, min_one), first_row(2, 5));
  EXPECT_EQ(after_run(A::ONLY_FIRST_REPLICA, zeros, max_one), first_row(2, 0));
  const Variable sum = make(AUTO, A::SUM, zeros), mean = make(AUTO, A::MEAN, zeros);
  EXPECT_RUN_FAILS(strategy.run([&] { update_one(sum); }), NotImplementedError, "scatter_update");
  EXPECT_RUN_FAILS(strategy.run([&] { min_one(sum); }), NotImplementedError, "scatter_min");
  EXPECT_RUN_FAILS(strategy.run([&] { max_one(mean); }), NotImplementedError, "scatter_max");
}

TEST_ON_EACH_WORKER(ScatterInReplicas, WithoutAggregationIsAnError) {
  const Variable v = make(AUTO, A::NONE, zeros);
  EXPECT_RUN_FAILS(strategy.run([&] { sub_two(v); }), ValueError,
                   "You must specify an aggregation method");
  EXPECT_RUN_FAILS(strategy.run([&] { min_one(v); }), ValueError,
                   "You must specify an aggregation method");
}

TEST(ScatterInReplicas, CentralStorageNeedsAnAggregation) {
  EXPECT_FAILS(rows_after_run(central_storage(), A::NONE, at::zeros({3}), sub_two), ValueError,
               "You must specify an aggregation method");
  EXPECT_FAILS(rows_after_run(central_storage(), A::NONE, at::zeros({3}), min_one), ValueError,
               "You must specify an aggregation method");
}

TEST_ON_EACH_WORKER(ScatterInReplicas, SlicesOfOneReplicaThatDoNotFitAreAnErrorOnAll) {
  const Variable v = make(AUTO, A::SUM, zeros);
  EXPECT_REPLICA_FAILS(last, strategy.run([&] {
    v.scatter_add({at::ones({1}), rows({id() == last ? n + 1 : 0})});
  }),
                       InvalidArgument, cat("expected 0 to ", n));
  EXPECT_EQ(components(v), here(0));
}

struct ScatterOutsideOfReplicas : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
};
ON_ALL_LAYOUTS(ScatterOutsideOfReplicas);

TEST_ON_EACH_WORKER(ScatterOutsideOfReplicas, ChangesTheRowsOfAllCopies) {
  const Variable v = make(AUTO, A::NONE, at::tensor({4.f, 4.f, 4.f}));
  const IndexedSlices slices{at::tensor({2.f, 8.f}), rows({0, 2}), {3}};
  EXPECT_EQ(numbers(v.scatter_add(slices)), (Numbers{6, 4, 12}));
  EXPECT_EQ(numbers(v.scatter_sub(slices)), (Numbers{4, 4, 4}));
  EXPECT_EQ(numbers(v.scatter_mul(slices)), (Numbers{8, 4, 32}));
  EXPECT_EQ(numbers(v.scatter_div(slices)), (Numbers{4, 4, 4}));
  EXPECT_EQ(numbers(v.scatter_min(slices)), (Numbers{2, 4, 4}));
  EXPECT_EQ(numbers(v.scatter_max(slices)), (Numbers{2, 4, 8}));
  EXPECT_EQ(numbers(v.scatter_update({at::tensor({1.f}), rows({1})})), (Numbers{2, 1, 8}));
  for (const at::Tensor& each : v.components()) EXPECT_EQ(numbers(each), (Numbers{2, 1, 8}));
}

TEST_ON_EACH_WORKER(ScatterOutsideOfReplicas, MinMaxAndUpdateFollowTheAggregationToo) {
  const Variable v = make(AUTO, A::SUM, at::zeros({3}));
  EXPECT_FAILS(v.scatter_max({at::ones({1}), rows({0})}), NotImplementedError, "scatter_max");
}

TEST(ScatterOutsideOfReplicas, ARowMayComeTwice) {
  const Variable v(at::ones({2, 2}));
  const IndexedSlices twice{at::full({2, 2}, 3.0f), rows({1, 1})};
  EXPECT_EQ(numbers(v.scatter_add(twice)), (Numbers{1, 1, 7, 7}));
  EXPECT_EQ(numbers(v.scatter_mul(twice)), (Numbers{1, 1, 63, 63}));
}

TEST_ON_EACH_WORKER(ScatterOutsideOfReplicas, OnReadHasNone) {
  const Variable v = make(ON_READ, A::SUM, at::zeros({3}));
  const IndexedSlices slices{at::ones({1}), rows({0})};
  EXPECT_FAILS(v.scatter_update(slices), NotImplementedError, "`scatter_update`");
  EXPECT_RUN_FAILS(strategy.run([&] { v.scatter_add(slices); }), NotImplementedError,
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
