#include "cohort/collectives/cross_device_ops.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "cohort/base/error.h"
#include "cohort/collectives/cross_device_all_reduce.h"
#include "tests/base/captured_log.h"

namespace cohort {
namespace {

using Values = std::vector<at::Tensor>;

const std::vector<Device> kFour{"cpu:0", "cpu:1", "cpu:2", "cpu:3"};

/// Values whose sum depends on the order of addition.
Values rough(std::int64_t elements) {
  Values values;
  for (int r = 0; r < 4; ++r) {
    values.push_back((at::arange(elements, at::kFloat) + 0.3f * static_cast<float>(r)).sin().exp());
  }
  return values;
}

std::vector<std::shared_ptr<CrossDeviceOps>> all_algorithms() {
  return {
      std::make_shared<ReductionToOneDevice>(),
      std::make_shared<ReductionToOneDevice>(
          ReductionToOneDevice::Options{.reduce_to_device = "cpu:2"}),
      std::make_shared<HierarchicalCopyAllReduce>(),
      std::make_shared<HierarchicalCopyAllReduce>(0),
      std::make_shared<HierarchicalCopyAllReduce>(3),
      std::make_shared<NcclAllReduce>(2),
      std::make_shared<CollectiveAllReduce>(kFour, 4),
      std::make_shared<CollectiveAllReduce>(kFour, 8, CommunicationOptions{.bytes_per_pack = 64})};
}

TEST(CrossDeviceOps, AllAlgorithmsGiveTheSameBitsOnEveryDestination) {
  const Values values = rough(1000);
  for (const auto& op : {ReduceOp(ReduceOp::SUM), ReduceOp(ReduceOp::MEAN)}) {
    const at::Tensor expected = ReductionToOneDevice().reduce(op, values, kFour)[0];
    for (const auto& algorithm : all_algorithms()) {
      const Values results = algorithm->reduce(op, values, kFour);
      ASSERT_EQ(results.size(), 4U) << algorithm->name();
      for (const at::Tensor& result : results) EXPECT_TRUE(result.equal(expected));
    }
  }
}

TEST(CrossDeviceOps, ABatchGivesTheSameBitsAsOneAtATime) {
  const std::vector<Values> batch{rough(7), rough(1), Values(4, at::ones({2}, at::kDouble)),
                                  rough(100), Values(4, at::ones({3}, at::kInt))};
  for (const auto& algorithm : all_algorithms()) {
    const auto results = algorithm->batch_reduce("SUM", batch, kFour);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Values expected = algorithm->reduce("SUM", batch[i], kFour);
      for (int r = 0; r < 4; ++r)
        EXPECT_TRUE(results[i][r].equal(expected[r])) << algorithm->name();
    }
  }
}

TEST(CrossDeviceOps, ResultsDoNotShareMemory) {
  for (const auto& algorithm : all_algorithms()) {
    const Values results = algorithm->reduce("SUM", rough(3), kFour);
    results[0].fill_(0);
    EXPECT_NE(results[1][1].item<float>(), 0) << algorithm->name();
  }
}

TEST(CrossDeviceOps, OtherDestinationsThanTheValues) {
  const std::vector<Device> one{"cpu:5"};
  for (const auto& algorithm : all_algorithms()) {
    EXPECT_EQ(algorithm->reduce("SUM", rough(3), one).size(), 1U) << algorithm->name();
  }
}

TEST(CrossDeviceOps, SparseValuesAreConcatenated) {
  const Values sparse(4, at::ones({1, 1}).to_sparse(1));
  for (const auto& algorithm : all_algorithms()) {
    EXPECT_EQ(algorithm->reduce("SUM", sparse, kFour)[3]._nnz(), 4) << algorithm->name();
  }
}

TEST(CrossDeviceOps, ValuesThatDoNotFitAreInvalidArgument) {
  const std::vector<Values> batch{{at::ones({1}), at::ones({2}), at::ones({1}), at::ones({1})}};
  for (const auto& algorithm : all_algorithms()) {
    EXPECT_THROW(algorithm->reduce("SUM", batch[0], kFour), InvalidArgument) << algorithm->name();
    EXPECT_THROW(algorithm->batch_reduce("SUM", batch, kFour), InvalidArgument)
        << algorithm->name();
  }
}

TEST(CrossDeviceOps, BroadcastCopiesToEachDestination) {
  const at::Tensor value = at::ones({2});
  const Values copies = ReductionToOneDevice().broadcast(value, kFour);
  copies[0].fill_(5);
  EXPECT_TRUE(copies[3].equal(at::ones({2})));
  EXPECT_TRUE(value.equal(at::ones({2})));
}

TEST(ReductionToOneDevice, AnAccumulationTakesThePlaceOfAddition) {
  const ReductionToOneDevice largest({.accumulation_fn = [](std::span<const at::Tensor> values) {
    return at::stack({values.data(), values.size()}).amax(0);
  }});
  const Values values{at::full({}, 1.), at::full({}, 5.)};
  EXPECT_EQ(largest.reduce("SUM", values, kFour)[3].item<double>(), 5);
  EXPECT_EQ(largest.reduce("MEAN", values, kFour)[0].item<double>(), 2.5);
}

TEST(ReductionToOneDevice, LogsItsFirstTenReductions) {
  const CapturedLog log;
  const ReductionToOneDevice ops;
  for (int i = 0; i < 12; ++i) ops.reduce("SUM", rough(1), kFour);
  EXPECT_EQ(log.count(log::Level::INFO, "Reduce to cpu:0 then broadcast to cpu:0, cpu:1"), 10);
}

TEST(PackedAllReduce, RefusesANegativeNumberOfPacks) {
  EXPECT_THROW(HierarchicalCopyAllReduce(-1), ValueError);
  EXPECT_THROW(NcclAllReduce(-1), ValueError);
  EXPECT_EQ(NcclAllReduce(0).num_packs(), 0);
}

TEST(CollectiveAllReduce, TheGroupHasAsManyDevicesOnEachWorker) {
  EXPECT_THROW(CollectiveAllReduce({"cpu:0", "cpu:1"}, 3), ValueError);
  EXPECT_THROW(CollectiveAllReduce({}, 3), ValueError);
  EXPECT_THROW(CollectiveAllReduce({"cpu:0"}, 1, {.bytes_per_pack = -1}), ValueError);
}

TEST(DefaultCrossDeviceOps, GoByTheTypesOfDevices) {
  const std::vector<Device> mixed{"cpu:0", "cuda:0"}, cpus{"cpu:0", "cpu:1"};
  EXPECT_STREQ(default_cross_device_ops(mixed)->name(), "ReductionToOneDevice");
  EXPECT_STREQ(default_cross_device_ops(cpus)->name(), "CollectiveAllReduce");
}

TEST(SelectCrossDeviceOps, WarnsOfDevicesThatAreNoGpus) {
  const CapturedLog log;
  const std::vector<Device> cpus{"cpu:0", "cpu:1"}, gpus{"cuda:0", "cuda:1"};
  EXPECT_STREQ(select_cross_device_ops(cpus)->name(), "ReductionToOneDevice");
  EXPECT_EQ(log.count(log::Level::WARNING, "not all of cpu:0, cpu:1 are GPUs"), 1);
  EXPECT_STREQ(select_cross_device_ops(gpus)->name(), "NcclAllReduce");
  EXPECT_EQ(log.count(log::Level::WARNING, "does not have cuda:1"), 1);
}

}  // namespace
}  // namespace cohort
