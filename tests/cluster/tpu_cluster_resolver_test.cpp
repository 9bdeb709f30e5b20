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

TEST(TPUClusterResolver, RefusesAnAddressWithoutAHost) {
  for (const char* text : {"grpc://", "grpc://,", "grpc://a:1,", "grpc://,a:1", "grpc://a:1,,b:1",
                           "grpc://:8470", "grpc://a:", "grpc://a:1,grpc://"}) {
    EXPECT_FAILS(TPUClusterResolver{text}, ValueError, "malformed address");
    EXPECT_FAILS(TPUClusterResolver{text}, ValueError, cat("got \"", text, '"'));
  }
}

TEST(TPUClusterResolver, TakesAListOfOne) {
  const std::string name("local:1x1x1x2");
  EXPECT_EQ(TPUClusterResolver({"local:1x1x1x2"}).tpu(), name);
  EXPECT_EQ(TPUClusterResolver({name}).tpu(), name);
  EXPECT_EQ(TPUClusterResolver(std::vector{name}).tpu(), name);
  EXPECT_EQ(TPUClusterResolver({name}, {.job_name = "trainer"}).get_job_name(), "trainer");
  EXPECT_EQ(TPUClusterResolver(std::vector{name}, "trainer").get_job_name(), "trainer");
}

TEST(TPUClusterResolver, RefusesAListOfNoneOrSeveral) {
  EXPECT_FAILS(TPUClusterResolver({}), ValueError, "At least one TPU");
  EXPECT_FAILS(TPUClusterResolver(std::vector<std::string>()), ValueError,
               "At least one TPU must be specified, got an empty list");
  EXPECT_FAILS(TPUClusterResolver({"a", "b"}), NotImplementedError, "multiple TPUs");
  EXPECT_FAILS(TPUClusterResolver({"a", "b", "c"}), NotImplementedError, "got 3: name one");
  EXPECT_FAILS(TPUClusterResolver(std::vector<std::string>{"a", "b"}), NotImplementedError,
               "multiple TPUs");
}

TEST(TPUClusterResolver, InBracesHasItsJobAsItsSecondText) {
  const TPUClusterResolver resolver{"local:1x1x1x1", "trainer"};
  EXPECT_EQ(resolver.get_job_name(), "trainer");
  EXPECT_EQ(resolver.task_type(), "trainer");
  EXPECT_FAILS(TPUClusterResolver("local:1x1x1x1", ""), ValueError, "expected a job_name");
}

TEST(TPUClusterResolver, IsTheTaskThatItIsTold) {
  TPUClusterResolver resolver("grpc://a:1,b:2");
  resolver.set_task_id(1);
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.master(), "grpc://b:2");
  EXPECT_EQ(resolver.master("worker", 0), "grpc://a:1");
  EXPECT_EQ(resolver.master("worker", std::nullopt), "grpc://b:2");
  resolver.set_task_id(2);
  EXPECT_FAILS(resolver.master(), ValueError, "No task with index 2");
}

TEST(TPUClusterResolver, CallsItsJobByTheTaskTypeThatItIsTold) {
  TPUClusterResolver resolver("grpc://a:1,b:2");
  resolver.set_task_type("learner");
  EXPECT_EQ(resolver.get_job_name(), "learner");
  EXPECT_EQ(resolver.cluster_spec(), (ClusterResolver::ClusterSpec{{"learner", {"a:1", "b:2"}}}));
  EXPECT_EQ(resolver.master(), "grpc://a:1");
  EXPECT_EQ(resolver.master("learner", 1), "grpc://b:2");
  EXPECT_FAILS(resolver.master("worker", 1), ValueError, "No such job in cluster: 'worker'");
  TPUClusterResolver simulated("local:1x1x1x2");
  simulated.set_task_type("learner");
  EXPECT_EQ(simulated.num_accelerators("learner", 0).at("TPU"), 2);
}

TEST(TPUClusterResolver, IsTalkedToWithGrpcWhateverIsAsked) {
  const TPUClusterResolver resolver("grpc://a:1");
  EXPECT_EQ(resolver.rpc_layer(), "grpc");
  EXPECT_EQ(resolver.master("worker", 0, "http"), "grpc://a:1");
}

TEST(TPUClusterResolver, CopiesWithTheTaskThatItIs) {
  TPUClusterResolver resolver("grpc://a:1,b:2");
  const TPUClusterResolver before = resolver;
  resolver.set_task_id(1);
  const TPUClusterResolver after = resolver;
  EXPECT_EQ(before.master(), "grpc://a:1");
  EXPECT_EQ(after.master(), "grpc://b:2");
}

TEST(TPUClusterResolver, HasTheCoordinatorAsAJobOfItsOwn) {
  TPUClusterResolver resolver("grpc://a:1,b:2",
                              {.coordinator_name = "coordinator", .coordinator_address = "c:3"});
  EXPECT_EQ(resolver.cluster_spec(),
            (ClusterResolver::ClusterSpec{{"worker", {"a:1", "b:2"}}, {"coordinator", {"c:3"}}}));
  EXPECT_EQ(resolver.master("coordinator", 0), "grpc://c:3");
  resolver.set_task_type("coordinator");
  EXPECT_EQ(resolver.master(), "grpc://c:3");
  EXPECT_EQ(resolver.get_job_name(), "worker");
  EXPECT_EQ(resolver.master("worker", 1), "grpc://b:2");
  const TPUClusterResolver simulated(
      "local:1x1x1x1", {.coordinator_name = "coordinator", .coordinator_address = "c:3"});
  EXPECT_TRUE(simulated.cluster_spec().empty());
}

TEST(TPUClusterResolver, RefusesACoordinatorThatNobodyCanFind) {
  EXPECT_FAILS(TPUClusterResolver("grpc://a:1", {.coordinator_name = "c"}), ValueError,
               "say where it is");
  EXPECT_FAILS(TPUClusterResolver("grpc://a:1", {.coordinator_address = "c:3"}), ValueError,
               "expected a coordinator_name");
  EXPECT_FAILS(TPUClusterResolver("grpc://a:1",
                                  {.coordinator_name = "worker", .coordinator_address = "c:3"}),
               ValueError, "not the job_name");
}

TEST(TPUClusterResolver, CountsTheCoresOfItsOwnTaskOnly) {
  const TPUClusterResolver resolver("local:2x1x1x2", "trainer");
  EXPECT_EQ(resolver.num_accelerators("trainer", 0).at("TPU"), 4);
  EXPECT_EQ(resolver.num_accelerators("trainer", std::nullopt).at("TPU"), 4);
  EXPECT_TRUE(resolver.num_accelerators("trainer", 1).empty());
  EXPECT_TRUE(resolver.num_accelerators("worker", 0).empty());
  EXPECT_FAILS(TPUClusterResolver("grpc://a:1").num_accelerators("worker", 0), RuntimeError,
               "can't be reached");
}

/// Tests that set what they need over an environment without TPUs.
class TPUClusterResolverWithoutAName : public testing::Test {
 private:
  const ScopedEnvironment endpoints_{"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", nullptr};
  const ScopedEnvironment name_{"TPU_NAME", nullptr};
  const ScopedEnvironment config_{"TPU_CONFIG", nullptr};
};

TEST_F(TPUClusterResolverWithoutAName, AsksTheEnvironmentHoweverNothingIsSaid) {
  const ScopedEnvironment name("TPU_NAME", "local:1x2x1x2");
  const char* const unset = nullptr;
  for (const TPUClusterResolver& resolver :
       {TPUClusterResolver(), TPUClusterResolver(""), TPUClusterResolver(nullptr),
        TPUClusterResolver(unset), TPUClusterResolver({""}), TPUClusterResolver({unset})}) {
    EXPECT_EQ(resolver.tpu(), "local:1x2x1x2");
    EXPECT_EQ(resolver.mesh_shape(), (std::vector{1, 2, 1, 2}));
  }
  EXPECT_EQ(TPUClusterResolver("local:1x1x1x1").mesh_shape(), (std::vector{1, 1, 1, 1}));
}

TEST_F(TPUClusterResolverWithoutAName, SaysSoIfTheEnvironmentHasNoneEither) {
  EXPECT_FAILS(TPUClusterResolver(), ValueError, "Please provide a TPU Name");
  EXPECT_FAILS(TPUClusterResolver(""), ValueError, "there is no TPU here");
  EXPECT_FAILS(TPUClusterResolver(nullptr), ValueError, "Please provide a TPU Name");
  const ScopedEnvironment config("TPU_CONFIG", "{");
  EXPECT_FAILS(TPUClusterResolver(), ValueError, "TPU_CONFIG");
}

TEST_F(TPUClusterResolverWithoutAName, TakesEndpointsBeforeAName) {
  const ScopedEnvironment name("TPU_NAME", "local:1x2x1x2");
  const ScopedEnvironment endpoints("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "grpc://a:1");
  EXPECT_EQ(TPUClusterResolver().master(), "grpc://a:1");
}

TEST_F(TPUClusterResolverWithoutAName, TakesProjectAndZoneOfTheConfigurationUnlessTheyAreGiven) {
  const ScopedEnvironment config(
      "TPU_CONFIG", R"({"tpu_node_name": "local:1x1x1x2", "project": "p", "zone": "z"})");
  const TPUClusterResolver resolver;
  EXPECT_EQ(resolver.tpu(), "local:1x1x1x2");
  EXPECT_EQ(resolver.project(), "p");
  EXPECT_EQ(resolver.zone(), "z");
  const TPUClusterResolver given("", {.zone = "here"});
  EXPECT_EQ(given.project(), "p");
  EXPECT_EQ(given.zone(), "here");
  EXPECT_EQ(TPUClusterResolver("local:1x1x1x1").project(), "");
  EXPECT_EQ(TPUClusterResolver("local:1x1x1x1", {.project = "q"}).project(), "q");
}

}  // namespace
}  // namespace cohort::cluster
