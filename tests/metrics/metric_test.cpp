#include "cohort/metrics/metric.h"

#include <gtest/gtest.h>

#include "cohort/cohort.h"
#include "tests/base/failing.h"

namespace cohort::metrics {
namespace {

using at::Tensor;

int id() { return get_replica_context().replica_id_in_sync_group(); }

std::vector<Device> devices(int count) {
  std::vector<Device> all;
  for (int i = 0; i < count; ++i) all.emplace_back(DeviceType::CPU, i);
  return all;
}

class Metrics : public testing::TestWithParam<int> {
 protected:
  Metrics() { configure({.cpu_devices = 4}); }
  ~Metrics() override { configure({}); }

  /// Two replicas: with one storage (0), on one device, on two.
  static Strategy strategy() {
    if (GetParam() == 0) return CentralStorageStrategy({.compute_devices = devices(2)});
    return MirroredStrategy({.devices = devices(GetParam()), .replicas = 2});
  }
  const Strategy strategy_ = strategy();
  Scope scope_ = strategy_.scope();

  static double number(const Metric& metric) { return metric.result().item<double>(); }
};

std::string name_of(const testing::TestParamInfo<int>& info) {
  return info.param == 0 ? "Central" : cat("On", info.param);
}
INSTANTIATE_TEST_SUITE_P(, Metrics, testing::Values(0, 1, 2), name_of);

TEST_P(Metrics, MeanWeighsAllValuesAlikeHoweverTheyAreSpread) {
  Mean mean;
  EXPECT_EQ(number(mean), 0) << "before the first update";
  strategy_.run([&] { mean.update(id() == 0 ? torch::tensor({1, 2, 3}) : torch::tensor({10})); });
  EXPECT_EQ(number(mean), 4);
  strategy_.run([&] { mean.update(torch::full({2}, 6.0)); });
  EXPECT_EQ(number(mean), 5);
  EXPECT_EQ(mean.result().scalar_type(), at::kFloat);
  EXPECT_EQ(mean.result().dim(), 0);
}

TEST_P(Metrics, SumAddsUp) {
  Sum sum("examples");
  EXPECT_EQ(sum.name(), "examples");
  strategy_.run([&] { sum.update(torch::ones({3}) + id()); });
  EXPECT_EQ(number(sum), 9);
  strategy_.run([&] { sum.update(torch::tensor(2.0)); });
  EXPECT_EQ(number(sum), 13);
}

TEST_P(Metrics, AccuracyCountsLargestPredictions) {
  SparseCategoricalAccuracy accuracy;
  const Tensor predictions = torch::tensor({{0.9, 0.1, 0.0}, {0.2, 0.3, 0.5}, {0.4, 0.5, 0.1}});
  strategy_.run([&] { accuracy.update(torch::tensor({0, 2, id()}), predictions); });
  EXPECT_FLOAT_EQ(number(accuracy), 5.0 / 6);
  EXPECT_FAILS(strategy_.run([&] {
    accuracy.update(torch::tensor({0, 1}), predictions);
  }),
               InvalidArgument, "metric sparse_categorical_accuracy.update");
  EXPECT_FLOAT_EQ(number(accuracy), 5.0 / 6);
}

TEST_P(Metrics, WeightsCountForExamples) {
  Mean mean;
  Sum sum;
  SparseCategoricalAccuracy accuracy;
  const Tensor weights = torch::tensor({1.0, 3.0});
  strategy_.run([&] {
    mean.update(torch::tensor({{1.0, 3.0}, {5.0, 7.0}}), weights);
    sum.update(torch::tensor({1.0, 2.0}), weights);
    accuracy.update(torch::tensor({0, 0}), torch::eye(2), weights.unsqueeze(1));
  });
  EXPECT_EQ(number(mean), (4.0 + 36.0) / 8) << "the first row 1, the second row 3";
  EXPECT_EQ(number(sum), 14);
  EXPECT_EQ(number(accuracy), 0.25);
  EXPECT_FAILS(strategy_.run([&] { mean.update(torch::ones({3}), weights); }), InvalidArgument,
               "metric mean.update] the weights do not fit");
  strategy_.run([&] { sum.update(torch::ones({2, 2}), torch::tensor(0.5)); });
  EXPECT_EQ(number(sum), 18);
  mean.reset();
  strategy_.run([&] { mean.update(torch::ones({2}), torch::zeros({2})); });
  EXPECT_EQ(number(mean), 0) << "not NaN";
}

TEST_P(Metrics, ResultIsTheSameOnAllReplicasInsideOfRun) {
  Mean mean;
  Sum sum;
  const auto [means, sums] = strategy_.run([&] {
    mean.update(torch::tensor(1.0 + id()));
    sum.update(torch::tensor(1.0 + id()));
    return std::tuple{mean.result(), sum.result()};
  });
  for (const Tensor& each : means.values()) EXPECT_EQ(each.item<double>(), 1.5);
  for (const Tensor& each : sums.values()) EXPECT_EQ(each.item<double>(), 3);
}

TEST_P(Metrics, ResultIsKnownAfterTheScopeToo) {
  Mean mean;
  strategy_.run([&] { mean.update(torch::tensor(1.0 + id())); });
  scope_.exit();
  EXPECT_EQ(number(mean), 1.5);
  strategy_.run([&] { mean.update(torch::tensor(3.0)); });
  EXPECT_EQ(number(mean), 2.25);
}

TEST_P(Metrics, UpdateInCrossReplicaContextIsAnErrorAndChangesNothing) {
  Mean mean("loss");
  EXPECT_FAILS(mean.update(torch::tensor(3.0)), ValueError, "cross-replica context");
  EXPECT_FAILS(mean.update(torch::tensor(3.0)), ValueError, "metric loss.update");
  EXPECT_EQ(number(mean), 0);
}

TEST_P(Metrics, ResetBeginsAgain) {
  Mean mean;
  Mean copy = mean;
  strategy_.run([&] { mean.update(torch::tensor(3.0)); });
  EXPECT_EQ(number(copy), 3) << "copies are the same metric";
  mean.reset();
  EXPECT_EQ(number(copy), 0);
  strategy_.run([&] {
    mean.update(torch::tensor(3.0));
    mean.reset();
    mean.update(torch::tensor(5.0));
  });
  EXPECT_EQ(number(mean), 5);
}

TEST_P(Metrics, MadeOutsideOfTheScopeHaveOneStateForAllReplicas) {
  scope_.exit();
  Mean mean;
  Sum sum;
  for (int i = 0; i < 100; ++i) {
    strategy_.run([&] {
      mean.update(torch::tensor(1.0 + id()));
      sum.update(torch::tensor(1.0));
    });
  }
  EXPECT_EQ(number(mean), 1.5);
  EXPECT_EQ(number(sum), 200);
}

TEST(Metric, OfAnotherScopeIsRefusedByTPUStrategy) {
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
