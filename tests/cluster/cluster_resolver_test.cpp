#include "cohort/cluster/cluster_resolver.h"

#include <gtest/gtest.h>

#include <memory>
#include <type_traits>

#include "cohort/cluster/tpu_cluster_resolver.h"
#include "tests/base/failing.h"

namespace cohort {
namespace {

/// Says no more than every resolver has to.
class TwoWorkers : public ClusterResolver {
 public:
  ClusterSpec cluster_spec() const override { return {{"worker", {"a:1", "b:2"}}}; }

  using ClusterResolver::master;
  std::string master(const std::optional<std::string>& type, std::optional<int> id,
                     const std::optional<std::string>& rpc_layer) const override {
    return cluster::master_url(
        cluster::task_address(cluster_spec(), type.value_or("worker"), id.value_or(0)),
        rpc_layer.value_or(""));
  }

  using ClusterResolver::num_accelerators;
  std::map<std::string, int> num_accelerators(const std::optional<std::string>& type,
                                              std::optional<int> /*id*/) const override {
    if (type.value_or("worker") != "worker") return {};
    return {{"GPU", 2}};
  }
};

TEST(ClusterResolver, KnowsNoTaskEnvironmentOrRpcLayerUnlessItIsTold) {
  TwoWorkers resolver;
  EXPECT_EQ(resolver.task_type(), "");
  EXPECT_EQ(resolver.task_id(), -1);
  EXPECT_EQ(resolver.environment(), "");
  EXPECT_EQ(resolver.rpc_layer(), "");
  resolver.set_task_type("worker");
  resolver.set_task_id(1);
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
}

TEST(ClusterResolver, PutsTheRpcLayerBeforeAnAddressIfThereIsOne) {
  const TwoWorkers resolver;
  EXPECT_EQ(resolver.master(), "a:1");
  EXPECT_EQ(resolver.master("worker", 1), "b:2");
  EXPECT_EQ(resolver.master("worker", 1, "grpc"), "grpc://b:2");
}

TEST(ClusterResolver, RefusesATaskThatDoesNotExistAndSaysWhichDo) {
  const TwoWorkers resolver;
  EXPECT_FAILS(resolver.master("ps", 0), ValueError, "No such job in cluster: 'ps'");
  EXPECT_FAILS(resolver.master("ps", 0), ValueError, "expected 'worker'");
  EXPECT_FAILS(resolver.master("worker", 2), ValueError, "No task with index 2 in job 'worker'");
  EXPECT_FAILS(resolver.master("worker", -1), ValueError, "No task with index -1");
  EXPECT_FAILS(cluster::task_address({}, "worker", 0), ValueError, "the cluster is empty");
}

TEST(ClusterResolver, CountsAcceleratorsOfATaskOrOfAny) {
  const TwoWorkers resolver;
  EXPECT_EQ(resolver.num_accelerators().at("GPU"), 2);
  EXPECT_EQ(resolver.num_accelerators("worker", 1).at("GPU"), 2);
  EXPECT_TRUE(resolver.num_accelerators("ps", 0).empty());
}

TEST(ClusterResolver, IsWhatEveryStrategyHandsOutWhicheverKindItIs) {
  const std::shared_ptr<ClusterResolver> resolver =
      std::make_shared<cluster::TPUClusterResolver>("grpc://a:1,b:2");
  EXPECT_EQ(resolver->task_type(), "worker");
  EXPECT_EQ(resolver->cluster_spec().at("worker").size(), 2U);
  EXPECT_EQ(resolver->master("worker", 1), "grpc://b:2");
  EXPECT_TRUE((std::is_same_v<cluster::ClusterResolver, ClusterResolver>));
}

TEST(ClusterResolver, IsCopiedOnlyAsAWhole) {
  EXPECT_FALSE(std::is_copy_constructible_v<ClusterResolver>);
  EXPECT_FALSE(std::is_copy_assignable_v<ClusterResolver>);
  EXPECT_TRUE(std::is_copy_constructible_v<cluster::TPUClusterResolver>);
  EXPECT_TRUE(std::is_copy_assignable_v<cluster::TPUClusterResolver>);
}

}  // namespace
}  // namespace cohort
