// Which logical devices a variable may be placed on, and what is said of others.

#include <torch/torch.h>

#include "cohort/spmd/placement.h"
#include "cohort/strategies/one_device_strategy.h"
#include "cohort/strategies/tpu_strategy.h"
#include "cohort/variables/logical_device.h"
#include "tests/base/failing.h"

namespace cohort {
namespace {

Strategy spread_over_devices(int n) {
  return OneDeviceStrategy("cpu:0", {.logical_devices_per_replica = n});
}

TEST(LogicalDevicesOfVariables, MustExist) {
  const Strategy strategy = spread_over_devices(2);
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
