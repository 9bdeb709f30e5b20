// Metrics count the examples of all replicas, however these lie on devices and workers.

#include "cohort/metrics/metric.h"

#include "cohort/cohort.h"
#include "tests/distribute/layouts.h"

namespace cohort::metrics {
namespace {

using at::Tensor;
using testing::Each;

/// With one storage for the variables, or with a copy on each device.
struct MetricLayout : Layout {
  bool is_central = false;
};

std::vector<MetricLayout> metric_layouts() {
  std::vector<MetricLayout> all{{{"Central", 2, 2}, true},
                                {{"CentralThreeOnTwo", 2, 3}, true},
                                {{"TwoOnOne", 1, 2}},
                                {{"TwoWorkersOfOne", 2, 2, 2}}};
  for (const Layout& layout : all_layouts()) all.push_back({layout});
  return all;
}

Strategy central(const Layout& layout) {
  std::vector<Device> devices;
  for (int i = 0; i < layout.replicas; ++i) devices.emplace_back(DeviceType::CPU, i % 2);
  return CentralStorageStrategy({.compute_devices = devices});
}

struct Metrics : OnLayouts {
  Metrics(const MetricLayout& layout, const std::optional<Worker>& worker)
      : OnLayouts(layout, worker),
        strategy(layout.is_central ? central(layout) : OnLayouts::strategy),
        scope(strategy.scope()) {}

  const Strategy strategy;
  Scope scope;
  const double sum_of_ids = n * (n - 1) / 2.;

  static double number(const Metric& metric) { return metric.result().item<double>(); }
};
SUITE_ON_EACH_WORKER(Metrics, MetricLayout, testing::ValuesIn(metric_layouts()));

TEST_ON_EACH_WORKER(Metrics, MeanWeighsAllValuesAlikeHoweverTheyAreSpread) {
  Mean mean;
  EXPECT_EQ(number(mean), 0) << "before the first update";
  strategy.run([&] { mean.update(id() == 0 ? torch::tensor({1, 2, 3}) : torch::tensor({10})); });
  EXPECT_FLOAT_EQ(number(mean), (6 + 10. * last) / (3 + last));
  strategy.run([&] { mean.update(torch::full({2}, 6.0)); });
  EXPECT_FLOAT_EQ(number(mean), (6 + 10. * last + 12 * n) / (3 + last + 2 * n));
  EXPECT_EQ(mean.result().scalar_type(), at::kFloat);
  EXPECT_EQ(mean.result().dim(), 0);
}

TEST_ON_EACH_WORKER(Metrics, ReplicasWithoutRowsCountForNothing) {
  Mean mean;
  SparseCategoricalAccuracy accuracy;
  strategy.run([&] {
    mean.update(torch::full({id()}, id()));  // the first one has none
    accuracy.update(torch::zeros({id()}, at::kLong), torch::ones({id(), 2}));
  });
  EXPECT_FLOAT_EQ(number(mean), n == 1 ? 0 : (2. * n - 1) / 3);  // sum of id² by sum of id
  EXPECT_EQ(number(accuracy), n == 1 ? 0 : 1);
}

TEST_ON_EACH_WORKER(Metrics, CountEveryRowOfADatasetOnce) {
  const int rows = 3 * n + 1;  // the last batch is short, and leaves replicas without rows
  Mean mean;
  Sum sum;
  for (const auto& batch : strategy.distribute_dataset(data::range(rows).batch(2 * n))) {
    strategy.run(
        [&](const Tensor& own) {
          mean.update(own);
          sum.update(torch::ones_like(own));
        },
        batch);
  }
  EXPECT_FLOAT_EQ(number(mean), (rows - 1) / 2.);
  EXPECT_EQ(number(sum), rows);
}

TEST_ON_EACH_WORKER(Metrics, SumAddsUp) {
  Sum sum("examples");
  EXPECT_EQ(sum.name(), "examples");
  strategy.run([&] { sum.update(torch::ones({3}) + id()); });
  EXPECT_EQ(number(sum), 3 * (n + sum_of_ids));
  strategy.run([&] { sum.update(torch::tensor(2.0)); });
  EXPECT_EQ(number(sum), 3 * (n + sum_of_ids) + 2 * n);
}

TEST_ON_EACH_WORKER(Metrics, AccuracyCountsLargestPredictions) {
  SparseCategoricalAccuracy accuracy;
  const Tensor predictions = torch::tensor({{0.9, 0.1, 0.0}, {0.2, 0.3, 0.5}, {0.4, 0.5, 0.1}});
  strategy.run([&] { accuracy.update(torch::tensor({0, 2, id() % 3}), predictions); });
  const int right = 2 * n + (n + 1) / 3;  // the third one where id % 3 is 1
  EXPECT_FLOAT_EQ(number(accuracy), right / (3. * n));
  EXPECT_RUN_FAILS(strategy.run([&] {
    accuracy.update(torch::tensor({0, 1}), predictions);
  }),
                   InvalidArgument, "metric sparse_categorical_accuracy.update");
  if (workers > 1) strategy.run([] {});  // ends the failure on all workers
  EXPECT_FLOAT_EQ(number(accuracy), right / (3. * n)) << "after an error";
  strategy.run([&] { accuracy.update(torch::tensor({1}), predictions.slice(0, 0, 1)); });
  EXPECT_FLOAT_EQ(number(accuracy), right / (4. * n)) << "and after a run that works";
}

TEST_ON_EACH_WORKER(Metrics, WeightsCountForExamples) {
  Mean mean;
  Sum sum;
  SparseCategoricalAccuracy accuracy;
  const Tensor weights = torch::tensor({1.0, 3.0});
  strategy.run([&] {
    mean.update(torch::tensor({{1.0, 3.0}, {5.0, 7.0}}), weights);
    sum.update(torch::tensor({1.0, 2.0}), weights);
    accuracy.update(torch::tensor({0, 0}), torch::eye(2), weights.unsqueeze(1));
  });
  EXPECT_EQ(number(mean), (4.0 + 36.0) / 8) << "the first row 1, the second row 3";
  EXPECT_EQ(number(sum), 7 * n);
  EXPECT_EQ(number(accuracy), 0.25);
  EXPECT_RUN_FAILS(strategy.run([&] { mean.update(torch::ones({3}), weights); }), InvalidArgument,
                   "metric mean.update] the weights do not fit");
  strategy.run([&] { sum.update(torch::ones({2, 2}), torch::tensor(0.5)); });
  EXPECT_EQ(number(sum), 9 * n);
  mean.reset();
  strategy.run([&] { mean.update(torch::ones({2}), torch::zeros({2})); });
  EXPECT_EQ(number(mean), 0) << "not NaN";
}

TEST_ON_EACH_WORKER(Metrics, WeightsMayDifferBetweenReplicas) {
  Mean mean;
  strategy.run([&] { mean.update(torch::full({2}, id()), torch::tensor({id(), 1})); });
  const double sum_of_squares = sum_of_ids * (2 * n - 1) / 3;
  EXPECT_FLOAT_EQ(number(mean), (sum_of_squares + sum_of_ids) / (sum_of_ids + n));
}

TEST_ON_EACH_WORKER(Metrics, ResultIsTheSameOnAllReplicasInsideOfRun) {
  Mean mean;
  Sum sum;
  const auto [means, sums] = strategy.run([&] {
    mean.update(torch::tensor(1.0 + id()));
    sum.update(torch::tensor(1.0 + id()));
    return std::tuple{mean.result().item<double>(), sum.result().item<double>()};
  });
  EXPECT_THAT(values_of(means), Each((n + 1) / 2.));
  EXPECT_THAT(values_of(sums), Each(n * (n + 1) / 2.));
  EXPECT_EQ(number(mean), (n + 1) / 2.) << "it may be asked for again";
}

TEST_ON_EACH_WORKER(Metrics, ResultIsKnownAfterTheScopeToo) {
  Mean mean;
  strategy.run([&] { mean.update(torch::tensor(1.0 + id())); });
  scope.exit();
  EXPECT_EQ(number(mean), (n + 1) / 2.);
  strategy.run([&] { mean.update(torch::tensor(3.0)); });
  EXPECT_EQ(number(mean), (n + 1) / 4. + 1.5);
}

TEST_ON_EACH_WORKER(Metrics, UpdateInCrossReplicaContextIsAnErrorAndChangesNothing) {
  Mean mean("loss");
  EXPECT_FAILS(mean.update(torch::tensor(3.0)), ValueError, "cross-replica context");
  EXPECT_FAILS(mean.update(torch::tensor(3.0)), ValueError, "metric loss.update");
  EXPECT_EQ(number(mean), 0);
}

TEST_ON_EACH_WORKER(Metrics, ResetBeginsAgain) {
  Mean mean;
  Mean copy = mean;
  strategy.run([&] { mean.update(torch::tensor(3.0)); });
  EXPECT_EQ(number(copy), 3) << "copies are the same metric";
  mean.reset();
  EXPECT_EQ(number(copy), 0);
  strategy.run([&] {
    mean.update(torch::tensor(3.0));
    mean.reset();
    mean.update(torch::tensor(5.0));
  });
  EXPECT_EQ(number(mean), 5);
}

TEST_ON_EACH_WORKER(Metrics, ResetInsideOfRunIsForTheReplicaThatCallsIt) {
  if (strategy.extended().variable_kind() != StrategyExtended::VariableKind::MIRRORED) return;
  Sum sum;
  strategy.run([&] { sum.update(torch::tensor(1.0)); });
  strategy.run([&] {
    if (id() == last) sum.reset();
  });
  EXPECT_EQ(number(sum), n - 1);
}

TEST_ON_EACH_WORKER(Metrics, MadeOutsideOfTheScopeHaveOneStateForAllReplicasOfAProcess) {
  scope.exit();
  Mean mean;
  Sum sum;
  for (int i = 0; i < 100; ++i) {
    strategy.run([&] {
      mean.update(torch::tensor(1.0 + id()));
      sum.update(torch::tensor(1.0));
    });
  }
  EXPECT_EQ(number(mean), first_here + (n_here + 1) / 2.);
  EXPECT_EQ(number(sum), 100 * n_here);
}

TEST(Metric, OfAnotherScopeIsRefusedByTPUStrategy) {
  configure({.cpu_devices = 4});
  Mean outside("outside");
  const TPUStrategy strategy(cluster::TPUClusterResolver("local:1x1x1x2"));
  const auto scope = strategy.scope();
  Mean own("own");
  EXPECT_FAILS(strategy.run([&] { outside.update(torch::ones({2})); }), ValueError,
               "made outside of the scope of the TPUStrategy");
  strategy.run([&] { own.update(torch::full({2}, static_cast<double>(id()))); });
  EXPECT_EQ(own.result().item<double>(), 0.5);
}

TEST(Metric, WorksWithoutAStrategy) {
  Mean mean;
  mean.update(torch::tensor({1.0, 2.0}));
  mean.update(torch::tensor({6.0}));
  EXPECT_EQ(mean.result().item<float>(), 3);
}

}  // namespace
}  // namespace cohort::metrics
