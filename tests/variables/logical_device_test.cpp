// Which logical devices a variable may be placed on, and what is said of others.

#include <torch/torch.h>

#include "cohort/spmd/placement.h"
#include "cohort/strategies/one_device_strategy.h"
#include "cohort/strategies/tpu_strategy.h"
#include "cohort/variables/logical_device.h"
#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

Strategy spread_over_devices(int n) {
  return OneDeviceStrategy("cpu:0", {.logical_devices_per_replica = n});
}

/// What one worker of a layout sees whose replicas have two logical devices each.
struct LogicalDevicesOfVariables {
  LogicalDevicesOfVariables(const Layout& layout, const std::optional<Worker>& worker)
      : strategy(worker ? strategy_of({layout.replicas, layout.workers}, *worker, 2)
                        : spread_over_devices(layout)) {}
  void after() {}

  static Strategy spread_over_devices(const Layout& layout) {
    std::vector<Device> devices;
    for (int i = 0; i < 2 * layout.devices; ++i) devices.emplace_back(DeviceType::CPU, i);
    return MirroredStrategy(
        {.devices = devices, .replicas = layout.replicas, .logical_devices_per_replica = 2});
  }

  const Strategy strategy;
  const int n = strategy.num_replicas_in_sync();
  const int first_here = strategy.extended().world().first();
};
ON_ALL_LAYOUTS(LogicalDevicesOfVariables);

TEST_ON_EACH_WORKER(LogicalDevicesOfVariables, MustExist) {
  const auto scope = strategy.scope();
  const torch::Tensor x = torch::ones({4, 3});
  EXPECT_FAILS(Variable(x, {.name = "w", .logical_device = 7}), ValueError,
               "'w' can't be placed on logical device 7: a replica has 2 logical devices: expected "
               "0 to 1");
  EXPECT_FAILS(Variable(x, {.logical_device = -1}), ValueError, "logical device -1");
  EXPECT_FAILS(Variable(x, {.logical_device = 0, .logical_split = {2, 1}}), ValueError,
               "set .logical_device or .logical_split");
  EXPECT_FAILS(Variable(x, {.name = "w", .logical_split = {2}}), ValueError,
               "'w' of sizes [4, 3] can't be split [2]");
  EXPECT_FAILS(Variable(x, {.logical_split = {1, 2}}), ValueError, "does not divide");
  EXPECT_FAILS(Variable(x, {.logical_split = {4, 1}}), ValueError, "4 parts");
  EXPECT_FAILS(static_cast<void>(strategy.extended().logical_device(2)), ValueError, "got 2");
}

TEST_ON_EACH_WORKER(LogicalDevicesOfVariables, AreThereInEveryReplica) {
  const auto scope = strategy.scope();
  const at::Tensor initial = at::full({4}, 5.0f + first_here);
  const auto layouts = [&](const Variable& v) {
    EXPECT_FALSE(spmd::is_sharded(v.value())) << "outside of replicas";
    EXPECT_EQ(numbers(v.read_value()), Numbers(4, 5)) << "the chief's value";
    return values_of(strategy.run([&] { return cat(spmd::layout_of(v.value())); }));
  };
  EXPECT_THAT(layouts(Variable(initial, {.logical_device = 1})), testing::Each("[4] on device 1"));
  EXPECT_THAT(layouts(Variable(initial, {.logical_device = 0})), testing::Each("[4] on device 0"));
  const Variable split(initial, {.logical_split = {2}});
  layouts(split);
  strategy.run([&] { EXPECT_TRUE(spmd::is_sharded(split.value())); });
  const auto on = strategy.extended().logical_device(1);
  EXPECT_THAT(layouts(Variable(initial)), testing::Each("[4] on device 1"));
}

TEST_ON_EACH_WORKER(LogicalDevicesOfVariables, KeepWhatReplicasAssign) {
  const auto scope = strategy.scope();
  const std::vector<VariableOptions> all{{.aggregation = Aggregation::SUM, .logical_device = 1},
                                         {.aggregation = Aggregation::SUM, .logical_split = {2}}};
  for (const VariableOptions& options : all) {
    const Variable v(at::ones({4}), options);
    strategy.run([&] {
      v.assign_add(at::full({4}, static_cast<float>(id())));
      v.assign(v.value());  // summed
    });
    const double sum = n * (n - 1) / 2.;
    for (const at::Tensor& component : v.components()) {
      EXPECT_EQ(numbers(component), Numbers(4, n * (1 + sum)));
    }
  }
}

TEST(LogicalDevicesOfVariables, AreThoseOfTheScopesOwnStrategy) {
  const Strategy four = spread_over_devices(4), two = spread_over_devices(2);
  const auto on = four.extended().logical_device(3);
  const auto inner = two.extended().logical_device(1);
  const auto where = [](const Strategy& strategy) {
    const auto scope = strategy.scope();
    const Variable v(torch::ones({4}));
    const auto text = strategy.run([&] {
      EXPECT_EQ(cat(spmd::layout_of(v.read_value())), cat(spmd::layout_of(v.value())));
      return cat(spmd::layout_of(v.value()));
    });
    return strategy.local_results(text)[0];
  };
  EXPECT_EQ(where(four), "[4] on device 3");
  EXPECT_EQ(where(two), "[4] on device 1");
}

TEST(LogicalDevicesOfVariables, AreNoneWhereEverythingIsPartitioned) {
  const cluster::TPUClusterResolver resolver("local:1x1x1x2");
  const auto assignment = tpu::DeviceAssignment::build(tpu::Topology::full_mesh({1, 1, 1, 2}, 1),
                                                       {.computation_shape = {1, 1, 1, 2}});
  const TPUStrategy strategy(resolver, assignment, {.spmd_xla_partitioning = true});
  const auto scope = strategy.scope();
  const auto on = strategy.extended().logical_device(1);
  const Variable v(torch::ones({4}));
  strategy.run([&] { EXPECT_FALSE(spmd::is_sharded(v.value())); });
  EXPECT_FAILS(Variable(torch::ones({4}), {.logical_device = 1}), ValueError,
               "partitions all tensors itself");
}

TEST(TpuGather, NeedsEqualShapes) {
  const TPUStrategy strategy(cluster::TPUClusterResolver("local:1x1x1x2"));
  const auto rows = strategy.run([] {
    return torch::ones({get_replica_context().replica_id_in_sync_group() + 1, 1});
  });
  EXPECT_FAILS(strategy.gather(rows, 0), InvalidArgument, "expected [1, 1] as on replica 0");
  EXPECT_THROW(strategy.run([] {
    const int id = get_replica_context().replica_id_in_sync_group();
    return get_replica_context().all_gather(torch::ones({id + 1, 1}), 0);
  }),
               Error);
}

}  // namespace
}  // namespace cohort
