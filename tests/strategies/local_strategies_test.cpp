// The strategies of one machine: what they are made of, and what they refuse.

#include <chrono>

#include "cohort/device/configuration.h"
#include "cohort/strategies/central_storage_strategy.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "cohort/strategies/multi_worker_mirrored_strategy.h"
#include "cohort/strategies/one_device_strategy.h"
#include "cohort/strategies/tpu_strategy.h"
#include "tests/base/captured_log.h"
#include "tests/base/failing.h"
#include "tests/base/scoped_environment.h"

namespace cohort {
namespace {

using Devices = std::vector<Device>;

class LocalStrategies : public testing::Test {
 protected:
  void SetUp() override { configure({.cpu_devices = 4}); }
};

TEST_F(LocalStrategies, MirroredTakesAllDevicesByDefault) {
  const MirroredStrategy strategy;
  EXPECT_EQ(strategy.num_replicas_in_sync(), 4);
  EXPECT_EQ(strategy.extended().worker_devices(), (Devices{"cpu:0", "cpu:1", "cpu:2", "cpu:3"}));
  EXPECT_EQ(strategy.extended().parameter_devices(), strategy.extended().worker_devices());
}

TEST_F(LocalStrategies, MirroredAnEmptyListMeansAllDevices) {
  EXPECT_EQ(MirroredStrategy(Devices()).num_replicas_in_sync(), 4);
}

TEST_F(LocalStrategies, MirroredTakesDevicesInAnySpelling) {
  const MirroredStrategy strategy({"/cpu:1", "CPU:0"});
  EXPECT_EQ(strategy.extended().worker_devices(), (Devices{"cpu:1", "cpu:0"}));
}

TEST_F(LocalStrategies, MirroredTakesAsManyOfAllDevicesAsItHasReplicas) {
  const MirroredStrategy strategy({.replicas = 3});
  EXPECT_EQ(strategy.extended().worker_devices(), (Devices{"cpu:0", "cpu:1", "cpu:2"}));
  EXPECT_EQ(strategy.cluster_resolver(), nullptr);
}

TEST_F(LocalStrategies, MirroredDealsReplicasToDevicesInBlocks) {
  const MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1", "cpu:2"}, .replicas = 8});
  const auto devices = strategy.run([] { return get_replica_context().devices()[0].index(); });
  EXPECT_EQ(std::vector<int>(devices.values().begin(), devices.values().end()),
            (std::vector{0, 0, 0, 1, 1, 1, 2, 2}));
}

TEST_F(LocalStrategies, MirroredRefusesDevicesThatItCantUse) {
  EXPECT_FAILS(MirroredStrategy({"cpu:0", "cpu:9"}), ValueError, "cpu:9");
  EXPECT_FAILS(MirroredStrategy({"cpu:0", "CPU:0"}), ValueError, "twice");
  EXPECT_FAILS(MirroredStrategy({"cpu:0", "/job:worker/task:1"}), ValueError, "another task");
  EXPECT_FAILS(MirroredStrategy({"/job:worker/task:1"}), RuntimeError, "another task");
}

TEST_F(LocalStrategies, MirroredRefusesFewerReplicasThanDevices) {
  EXPECT_FAILS(MirroredStrategy({.devices = {"cpu:0", "cpu:1"}, .replicas = 1}), ValueError,
               "fewer replicas than devices");
  EXPECT_FAILS(MirroredStrategy({.replicas = -1}), ValueError, "");
  EXPECT_FAILS(MirroredStrategy({.intra_op_threads = -1}), ValueError, "intra_op_threads");
}

TEST_F(LocalStrategies, MirroredSaysWhatItUses) {
  const ScopedEnvironment environment("TF_CONFIG", "{}");
  const CapturedLog log;
  const MirroredStrategy strategy({"cpu:0", "cpu:1"});
  EXPECT_EQ(log.count(log::Level::INFO, "Using MirroredStrategy with devices cpu:0, cpu:1"), 1);
  EXPECT_EQ(log.count(log::Level::INFO, "TF_CONFIG is ignored"), 1);
}

TEST_F(LocalStrategies, CopiesAreTheSameStrategy) {
  const MirroredStrategy strategy({"cpu:0", "cpu:1"});
  const Strategy copy = strategy;
  EXPECT_EQ(copy, strategy);
  EXPECT_FALSE(copy == MirroredStrategy({"cpu:0", "cpu:1"}));
}

TEST_F(LocalStrategies, OneDeviceRunsInTheCallersThreadWithItsSettings) {
  const OneDeviceStrategy strategy("cpu:1");
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
  EXPECT_EQ(strategy.extended().worker_devices(), Devices{"cpu:1"});
  const auto caller = std::this_thread::get_id();
  const int threads = at::get_num_threads();
  strategy.run([&] {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(at::get_num_threads(), threads);
  });
  EXPECT_FAILS(OneDeviceStrategy("cpu:7"), ValueError, "cpu:7");
}

TEST_F(LocalStrategies, CentralStorageTakesAllDevicesByDefault) {
  const CentralStorageStrategy strategy;
  EXPECT_EQ(strategy.num_replicas_in_sync(), 4);
  EXPECT_EQ(strategy.extended().worker_devices(), (Devices{"cpu:0", "cpu:1", "cpu:2", "cpu:3"}));
  EXPECT_EQ(strategy.extended().parameter_devices(), Devices{"cpu:0"});
}

TEST_F(LocalStrategies, CentralStorageKeepsVariablesInOnePlace) {
  const CentralStorageStrategy strategy(
      {.compute_devices = {"cpu:0", "cpu:1"}, .parameter_device = "CPU:2"});
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_EQ(strategy.extended().parameter_devices(), Devices{"cpu:2"});
  EXPECT_EQ(strategy.extended().parameter_devices()[0].spelled(), "CPU:2");
  EXPECT_TRUE(strategy.extended().between_graph());
}

TEST_F(LocalStrategies, CentralStorageChoosesWhereVariablesAre) {
  const CentralStorageStrategy alone({.compute_devices = {"cpu:3"}});
  EXPECT_EQ(alone.extended().parameter_devices(), Devices{"cpu:3"});
  const CentralStorageStrategy both({.compute_devices = {"cpu:1", "cpu:2"}});
  EXPECT_EQ(both.extended().parameter_devices(), Devices{"cpu:0"});
}

TEST_F(LocalStrategies, CentralStorageTakesADeviceTwice) {
  EXPECT_EQ(CentralStorageStrategy({.compute_devices = {"cpu:0", "cpu:0"}}).num_replicas_in_sync(),
            2);
  EXPECT_FAILS(CentralStorageStrategy({.compute_devices = {"cpu:0"}, .parameter_device = "cpu:9"}),
               ValueError, "cpu:9");
}

TEST_F(LocalStrategies, AllTakeTheTimesOfWaits) {
  constexpr std::chrono::minutes kTimeout(5), kWarnAfter(1);
  const auto expect_times = [&](const Strategy& strategy) {
    EXPECT_EQ(strategy.extended().communication().timeout, kTimeout);
    EXPECT_EQ(strategy.extended().communication().warn_after, kWarnAfter);
  };
  expect_times(MirroredStrategy({.timeout = kTimeout, .warn_after = kWarnAfter}));
  expect_times(MultiWorkerMirroredStrategy({.timeout = kTimeout, .warn_after = kWarnAfter}));
  expect_times(CentralStorageStrategy({.timeout = kTimeout, .warn_after = kWarnAfter}));
  expect_times(OneDeviceStrategy("cpu:0", {.timeout = kTimeout, .warn_after = kWarnAfter}));
  expect_times(TPUStrategy(cluster::TPUClusterResolver("local:2x2x1x2"), std::nullopt,
                           TPUStrategy::Options{.timeout = kTimeout, .warn_after = kWarnAfter}));
}

TEST_F(LocalStrategies, WaitForeverAndWarnAfterHalfAMinuteUnlessTold) {
  const MirroredStrategy strategy;
  const CommunicationOptions& communication = strategy.extended().communication();
  EXPECT_FALSE(communication.timeout);
  EXPECT_EQ(communication.warn_after, std::chrono::seconds(30));
}

TEST_F(LocalStrategies, WaitForWorkersForTenMinutesUnlessTold) {
  constexpr std::chrono::minutes kTimeout(10);
  const MultiWorkerMirroredStrategy alone;
  EXPECT_EQ(alone.extended().communication().timeout, kTimeout);
  EXPECT_EQ(alone.extended().communication().warn_after, std::chrono::seconds(30));
  run_workers(2, [&](const Worker& worker) {
    const MultiWorkerMirroredStrategy strategy({.worker = worker});
    EXPECT_EQ(strategy.extended().communication().timeout, kTimeout);
    EXPECT_EQ(strategy.extended().world().limits().timeout, kTimeout);
  });
}

TEST_F(LocalStrategies, RefuseTimesThatAreNotPositive) {
  EXPECT_FAILS(MirroredStrategy({.timeout = std::chrono::seconds(0)}), ValueError,
               "timeout must be positive, got 0 s");
  EXPECT_FAILS(MirroredStrategy({.warn_after = std::chrono::seconds(-1)}), ValueError,
               "warn_after must be positive, got -1 s");
}

using Batch = std::vector<std::pair<PerReplica<at::Tensor>, Destinations>>;

TEST_F(LocalStrategies, ABatchIsReducedOnTheHostOrOnTheDevicesNotBoth) {
  const MirroredStrategy strategy({"cpu:0", "cpu:1"});
  const auto of = [&](at::ScalarType dtype) {
    return strategy.run([=] { return at::ones({1}, dtype); });
  };
  const Batch mixed{{of(at::kInt), "cpu:0"}, {of(at::kFloat), "cpu:0"}};
  EXPECT_FAILS(strategy.extended().batch_reduce_to("SUM", mixed), ValueError,
               "must be either all on the host or all on the compute devices");
  const Batch integers{{of(at::kInt), "cpu:0"}, {of(at::kInt), "cpu:0"}};
  EXPECT_EQ(strategy.extended().batch_reduce_to("SUM", integers)[1].values()[1].item<int>(), 2);
}

}  // namespace
}  // namespace cohort
