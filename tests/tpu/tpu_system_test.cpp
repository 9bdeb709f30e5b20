#include "cohort/tpu/tpu_system.h"

#include <gtest/gtest.h>

#include "cohort/tpu/device_assignment.h"
#include "tests/base/captured_log.h"
#include "tests/base/scoped_environment.h"

namespace cohort::tpu {
namespace {

using cluster::TPUClusterResolver;

/// Leaves no system started behind.
class TPUSystem : public testing::Test {
 protected:
  ~TPUSystem() override {
    const CapturedLog log;
    shutdown_system(small_);
    shutdown_system(large_);
  }

  int warnings(const char* text) const { return log_.count(log::Level::WARNING, text); }

  const CapturedLog log_;
  const TPUClusterResolver small_{"local:2x2x1x2"};
  const TPUClusterResolver large_{"local:4x4x1x2"};
};

TEST_F(TPUSystem, IsOneTaskWithADeviceForEachCore) {
  const Topology topology = initialize_system(small_);
  EXPECT_EQ(topology.mesh_shape(), (std::vector{2, 2, 1, 2}));
  EXPECT_EQ(topology.num_tasks(), 1);
  EXPECT_EQ(topology.num_tpus_per_task(), 8);
  EXPECT_TRUE(topology.missing_devices().empty());
  EXPECT_EQ(topology.tpu_device_name_at_coordinates({1, 0, 0, 1}), "/task:0/device:TPU:3");
}

TEST_F(TPUSystem, HasRoomForTwoReplicasOfFourLogicalDevices) {
  const auto assignment = DeviceAssignment::build(
      initialize_system(small_), {.computation_shape = {1, 2, 1, 2}, .num_replicas = 2});
  EXPECT_EQ(assignment.num_replicas(), 2);
  EXPECT_EQ(assignment.num_cores_per_replica(), 4);
  EXPECT_EQ(assignment.coordinates(1, 0), (Coordinates{1, 0, 0, 0}));
  EXPECT_EQ(assignment.tpu_device(1, 0), "/task:0/device:TPU:2");
}

TEST_F(TPUSystem, IsTheOneOfTheEnvironmentIfNoneIsNamed) {
  const ScopedEnvironment endpoints("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", nullptr);
  const ScopedEnvironment name("TPU_NAME", "local:2x2x1x2");
  EXPECT_EQ(initialize_system().mesh_shape(), (std::vector{2, 2, 1, 2}));
  initialize_system(small_);
  EXPECT_EQ(warnings("local:2x2x1x2 has already been initialized"), 1);
  shutdown_system();
  initialize_system(small_);
  EXPECT_EQ(warnings("local:2x2x1x2 has already been initialized"), 1);
}

TEST_F(TPUSystem, WarnsWhenStartedTwice) {
  initialize_system(small_);
  EXPECT_EQ(warnings(""), 0);
  const Topology again = initialize_system(TPUClusterResolver("local:2x2x1x2"));
  EXPECT_EQ(warnings("local:2x2x1x2 has already been initialized"), 1);
  EXPECT_EQ(again.num_tpus_per_task(), 8);
}

TEST_F(TPUSystem, IsAnotherOneUnderAnotherName) {
  initialize_system(small_);
  initialize_system(large_);
  EXPECT_EQ(warnings(""), 0);
}

TEST_F(TPUSystem, StartsAnewAfterItWasStopped) {
  initialize_system(small_);
  shutdown_system(small_);
  initialize_system(small_);
  EXPECT_EQ(warnings(""), 0);
}

TEST_F(TPUSystem, LosesItsVariablesWhenStartedAgainAndWhenStopped) {
  const auto losses = losses_of(small_);
  const auto before = losses->load();
  initialize_system(small_);
  EXPECT_EQ(losses->load(), before);
  initialize_system(small_);
  EXPECT_EQ(losses->load(), before + 1);
  initialize_system(large_);
  EXPECT_EQ(losses->load(), before + 1);
  shutdown_system(small_);
  EXPECT_EQ(losses->load(), before + 2);
  initialize_system(small_);
  EXPECT_EQ(losses->load(), before + 2);
}

TEST_F(TPUSystem, WarnsWhenStoppedWithoutHavingBeenStarted) {
  shutdown_system(small_);
  EXPECT_EQ(warnings("local:2x2x1x2 is shut down, but has not been initialized"), 1);
}

}  // namespace
}  // namespace cohort::tpu
