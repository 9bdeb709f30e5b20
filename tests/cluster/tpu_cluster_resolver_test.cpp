#include "cohort/cluster/tpu_cluster_resolver.h"

#include <gtest/gtest.h>

#include "cohort/device/configuration.h"
#include "tests/base/failing.h"
#include "tests/base/scoped_environment.h"

namespace cohort::cluster {
namespace {

TEST(TPUClusterResolver, SimulatesTheMeshThatItIsTold) {
  const TPUClusterResolver resolver("local:2x3x1x4");
  EXPECT_EQ(resolver.tpu(), "local:2x3x1x4");
  EXPECT_EQ(resolver.mesh_shape(), (std::vector{2, 3, 1, 4}));
  EXPECT_EQ(resolver.num_accelerators(), (std::map<std::string, int>{{"TPU", 24}}));
}

TEST(TPUClusterResolver, SimulatesAChipWithACoreForEachCpuSlotIfNotTold) {
  configure({.cpu_devices = 3});
  const TPUClusterResolver resolver("local");
  configure({});
  EXPECT_EQ(resolver.mesh_shape(), (std::vector{1, 1, 1, 3}));
  EXPECT_EQ(resolver.num_accelerators().at("TPU"), 3);
}

TEST(TPUClusterResolver, IsTaskZeroOfItsJobAndHasNoAddress) {
  const TPUClusterResolver resolver("local:1x1x1x1");
  EXPECT_EQ(resolver.master(), "");
  EXPECT_EQ(resolver.environment(), "");
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.get_job_name(), "worker");
  EXPECT_EQ(resolver.task_id(), 0);
  EXPECT_EQ(TPUClusterResolver("local:1x1x1x1", "trainer").get_job_name(), "trainer");
}

TEST(TPUClusterResolver, SaysWhatTheSystemConsistsOf) {
  const auto metadata = TPUClusterResolver("local:2x1x1x2").get_tpu_system_metadata();
  EXPECT_EQ(metadata.num_cores, 4);
  EXPECT_EQ(metadata.num_hosts, 1);
  EXPECT_EQ(metadata.num_of_cores_per_host, 4);
  ASSERT_EQ(metadata.devices.size(), 4U);
  EXPECT_EQ(metadata.devices[3], "/job:localhost/replica:0/task:0/device:TPU:3");
}

TEST(TPUClusterResolver, RefusesAMalformedMeshAndShowsTheForm) {
  for (const char* text :
       {"local:", "local:2", "local:2x2x1", "local:2x2x1x2x1", "local:2x2x1x", "local:x2x2x1x2",
        "local:2x2x1x2 ", "local: 2x2x1x2", "local:2X2X1X2", "local:2x2x0x2", "local:2x-2x1x2",
        "local:2x2x1.5x2", "local:axbxcxd", "local:99999999999x1x1x1"}) {
    EXPECT_FAILS(TPUClusterResolver{text}, ValueError,
                 "malformed mesh: expected \"local:XxYxZxC\"");
    EXPECT_FAILS(TPUClusterResolver{text}, ValueError, text);
  }
}

TEST(TPUClusterResolver, RefusesMoreCoresThanAMachineSimulates) {
  EXPECT_FAILS(TPUClusterResolver("local:16x16x16x2"), ValueError, "4096 at most");
  EXPECT_FAILS(TPUClusterResolver("local:65536x65536x65536x65536"), ValueError, "too many cores");
  EXPECT_EQ(TPUClusterResolver("local:16x16x16x1").num_accelerators().at("TPU"), 4096);
}

TEST(TPUClusterResolver, SaysThatThereIsNoTPUAndHowToSimulateOne) {
  for (const char* text : {"my-tpu", "locally", "LOCAL"}) {
    EXPECT_FAILS(TPUClusterResolver{text}, ValueError, "there is no TPU here");
    EXPECT_FAILS(TPUClusterResolver{text}, ValueError, text);
    EXPECT_FAILS(TPUClusterResolver{text}, ValueError, "\"local:XxYxZxC\"");
  }
  EXPECT_FAILS(TPUClusterResolver(""), ValueError, "Please provide a TPU Name");
  EXPECT_FAILS(TPUClusterResolver(""), ValueError, "there is no TPU here");
}

TEST(TPUClusterResolver, UnderstandsAddressesButCannotConnect) {
  const TPUClusterResolver resolver("grpc://10.1.2.3:8470,10.1.2.4");
  EXPECT_EQ(resolver.cluster_spec().at("worker"),
            (std::vector<std::string>{"10.1.2.3:8470", "10.1.2.4:8470"}));
  EXPECT_EQ(resolver.master(), "grpc://10.1.2.3:8470");
  EXPECT_EQ(resolver.master("worker", 1), "grpc://10.1.2.4:8470");
  EXPECT_FAILS(resolver.master("worker", 5), ValueError, "No task with index 5");
  EXPECT_FAILS(resolver.master("ps", 0), ValueError, "No such job");
  EXPECT_FAILS(resolver.num_accelerators(), RuntimeError, "can't be reached");
  EXPECT_FAILS(resolver.mesh_shape(), RuntimeError, "\"local:XxYxZxC\"");
}

TEST(TPUClusterResolver, TakesAListOfOne) {
  EXPECT_EQ(TPUClusterResolver(std::vector<std::string>{"local:1x1x1x2"}).tpu(), "local:1x1x1x2");
  EXPECT_FAILS(TPUClusterResolver(std::vector<std::string>()), ValueError, "At least one TPU");
  EXPECT_FAILS(TPUClusterResolver(std::vector<std::string>{"a", "b"}), NotImplementedError,
               "multiple TPUs");
}

TEST(TPUClusterResolver, AsksTheEnvironmentWhereNothingIsNamed) {
  const ScopedEnvironment name("TPU_NAME", "local:1x2x1x2");
  EXPECT_EQ(TPUClusterResolver("").mesh_shape(), (std::vector{1, 2, 1, 2}));
  const ScopedEnvironment endpoints("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "grpc://a:1");
  EXPECT_EQ(TPUClusterResolver("").master(), "grpc://a:1");
}

}  // namespace
}  // namespace cohort::cluster
