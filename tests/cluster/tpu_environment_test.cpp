#include "cohort/cluster/tpu_environment.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/base/failing.h"
#include "tests/base/scoped_environment.h"

namespace cohort::cluster {
namespace {

/// Tests that set what they need over an environment without TPUs.
class TPUEnvironment : public testing::Test {
 private:
  const ScopedEnvironment endpoints_{"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", nullptr};
  const ScopedEnvironment name_{"TPU_NAME", nullptr};
  const ScopedEnvironment config_{"TPU_CONFIG", nullptr};
};

TEST_F(TPUEnvironment, IsAskedForEndpointsThenForANameThenForAConfiguration) {
  const ScopedEnvironment config("TPU_CONFIG", R"({"tpu_node_name": "last"})");
  EXPECT_EQ(tpu_in_environment().tpu, "last");
  const ScopedEnvironment name("TPU_NAME", "second");
  EXPECT_EQ(tpu_in_environment().tpu, "second");
  const ScopedEnvironment endpoints("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "grpc://first:1");
  EXPECT_EQ(tpu_in_environment().tpu, "grpc://first:1");
}

TEST_F(TPUEnvironment, PassesOverVariablesThatAreEmpty) {
  const ScopedEnvironment endpoints("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "");
  const ScopedEnvironment name("TPU_NAME", "mine");
  EXPECT_EQ(tpu_in_environment().tpu, "mine");
}

TEST_F(TPUEnvironment, HasTheProjectAndTheZoneInItsConfiguration) {
  const ScopedEnvironment config(
      "TPU_CONFIG", R"({"tpu_node_name": "t", "project": "p", "zone": "z", "more": [1]})");
  EXPECT_EQ(tpu_in_environment().tpu, "t");
  EXPECT_EQ(tpu_in_environment().project, "p");
  EXPECT_EQ(tpu_in_environment().zone, "z");
  const ScopedEnvironment name("TPU_NAME", "mine");
  EXPECT_EQ(tpu_in_environment().project, "");
}

TEST_F(TPUEnvironment, WithoutATPUIsToldToNameOne) {
  EXPECT_FAILS(tpu_in_environment(), ValueError, "Please provide a TPU Name");
  EXPECT_FAILS(tpu_in_environment(), ValueError, "\"local:2x2x1x2\"");
}

TEST_F(TPUEnvironment, RefusesAMalformedConfigurationAndSaysWhatIsWrong) {
  const auto refused = [](const char* text, const char* words) {
    const ScopedEnvironment config("TPU_CONFIG", text);
    EXPECT_FAILS(tpu_in_environment(), ValueError, words);
    EXPECT_FAILS(tpu_in_environment(), ValueError, "correct or unset TPU_CONFIG");
  };
  refused(R"({"tpu_node_name": "t")", "malformed JSON");
  refused("my-tpu", "malformed JSON");
  refused("\xff", "malformed JSON");
  refused(R"(["t"])", "expected a JSON object, got [\"t\"]");
  refused("null", "expected a JSON object");
  refused("{}", "Please provide a TPU Name");
  refused(R"({"tpu_node_name": ""})", "expected one under \"tpu_node_name\"");
  refused(R"({"tpu_node_name": 5})", "expected a string under \"tpu_node_name\", got 5");
  refused(R"({"tpu_node_name": "t", "zone": ["z"]})", "expected a string under \"zone\"");
}

}  // namespace
}  // namespace cohort::cluster
