// The annotations of a strategy, the errors of bad ones, and what can be asked of sharded tensors.

#include <fstream>
#include <sstream>

#include "cohort/base/torch_compat.h"
#include "cohort/device/configuration.h"
#include "cohort/distribute/default_strategy.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "cohort/strategies/one_device_strategy.h"
#include "cohort/variables/variable.h"
#include "tests/base/failing.h"
#include "tests/spmd/agreement.h"

namespace cohort {
namespace {

using spmd::full;
using spmd::is_sharded;
using testing::ElementsAre;
using testing::HasSubstr;
using torch::Tensor;

/// One replica of n logical devices.
Strategy spread_over(int n) {
  return OneDeviceStrategy("cpu:0", {.logical_devices_per_replica = n});
}
/// Runs fn in the one replica.
template <class F>
auto in_replica(const Strategy& strategy, F&& fn) {
  return strategy.local_results(strategy.run(fn))[0];
}

TEST(Annotations, ChangeNoValueAndSayWhereTensorsLie) {
  const Strategy strategy = spread_over(4);
  strategy.run([&] {
    const Tensor x = torch::arange(24.).reshape({4, 6});
    const Tensor split = strategy.split_to_logical_devices(x, {2, 2});
    EXPECT_TRUE(is_sharded(split));
    EXPECT_EQ(cat(spmd::layout_of(split)), "[4, 6] split {2, 2} over devices {0, 1, 2, 3}");
    EXPECT_TRUE(torch::equal(full(split), x));
    EXPECT_TRUE(torch::equal(spmd::to_local(split, 1), x.slice(0, 0, 2).slice(1, 3, 6)));
    const Tensor assigned = strategy.assign_to_logical_device(x, 2);
    EXPECT_EQ(cat(spmd::layout_of(assigned)), "[4, 6] on device 2");
    EXPECT_FALSE(spmd::to_local(assigned, 0).defined());
    EXPECT_FALSE(is_sharded(strategy.replicate_to_logical_devices(split)));
    EXPECT_TRUE(torch::equal(strategy.replicate_to_logical_devices(assigned), x));
  });
}

TEST(Annotations, OperationsRunOnTheThreadsOfTheirDevices) {
  const Strategy strategy = spread_over(3);
  strategy.run([&] {
    auto trace = spmd::trace();
    const Tensor x =
        strategy.split_to_logical_devices(torch::rand({6, 4}, torch::requires_grad()), {3, 1});
    (x * 2).exp().sum().backward();
    const Tensor y = strategy.assign_to_logical_device(torch::rand({4}), 2);
    EXPECT_EQ(cat(spmd::layout_of(y.sin())), "[4] on device 2");
    const auto rows = trace.rows();
    EXPECT_THAT(rows.at("aten::exp").tasks, ElementsAre(1, 1, 1));
    EXPECT_THAT(rows.at("aten::sin").tasks, ElementsAre(0, 0, 1));
    EXPECT_GE(rows.at("aten::mul").partitioned, 2);  // forward and backward
    EXPECT_EQ(trace.gathered(), 0) << trace;
  });
}

TEST(Annotations, GradientsFlowBackToWhereTensorsWere) {
  const Strategy strategy = spread_over(2);
  strategy.run([&] {
    const Tensor x = torch::rand({4, 3}, torch::requires_grad());
    const Tensor split = strategy.split_to_logical_devices(x, {2, 1});
    split.retain_grad();
    strategy.replicate_to_logical_devices(split.square()).sum().backward();
    EXPECT_TRUE(is_sharded(split.grad()));
    EXPECT_FALSE(is_sharded(x.grad()));
    EXPECT_TRUE(torch::allclose(x.grad(), 2 * x));
  });
}

TEST(Annotations, GiveTensorsOfTheirOwn) {
  const Strategy strategy = spread_over(2);
  strategy.run([&] {
    const Tensor x = torch::zeros({4, 3});
    strategy.split_to_logical_devices(x, {2, 1}).add_(1);
    Tensor assigned = strategy.assign_to_logical_device(x, 1);
    strategy.replicate_to_logical_devices(assigned.add_(1)).add_(1);
    EXPECT_EQ(x.sum().item<double>(), 0);
    EXPECT_EQ(assigned.sum().item<double>(), 12);
  });
}

TEST(Annotations, OfAShortBatchLeaveDevicesWithoutATile) {
  const Strategy strategy = spread_over(4);
  strategy.run([&] {
    const Tensor three =
        strategy.split_to_logical_devices(torch::arange(6.).reshape({3, 2}), {4, 1});
    EXPECT_EQ(cat(spmd::layout_of(three)), "[3, 2] split {3, 1} over devices {0, 1, 2}");
    EXPECT_EQ(three.sum().item<double>(), 15);
    const Tensor none = strategy.split_to_logical_devices(torch::rand({0, 2}), {4, 1});
    EXPECT_EQ((none * 2).sum().item<double>(), 0);
    const Tensor uneven = strategy.split_to_logical_devices(torch::rand({6, 2}), {4, 1});
    EXPECT_EQ(spmd::to_local(uneven, 0).size(0), 2);
    EXPECT_EQ(spmd::to_local(uneven, 3).size(0), 1);
  });
}

TEST(Annotations, ThatDoNotFitNameTensorLayoutAndDevices) {
  const Strategy strategy = spread_over(4);
  const auto split = [&](std::vector<std::int64_t> sizes, std::vector<std::int64_t> parts) {
    strategy.run([&] { strategy.split_to_logical_devices(torch::rand(sizes), parts); });
  };
  EXPECT_FAILS(split({4, 6}, {4}), ValueError, "for each of its 2 dimensions");
  EXPECT_FAILS(split({4, 6}, {1, 4}), ValueError,
               "dimension 1 of size 6 does not divide into 4 equal parts");
  EXPECT_FAILS(split({4, 6}, {2, 1}), ValueError, "[4, 6] can't be split [2, 1]: that is 2 parts");
  EXPECT_FAILS(split({4, 6}, {2, 3}), ValueError, "a replica has 4 logical devices");
  EXPECT_FAILS(split({4, 6}, {-4, -1}), ValueError, "positive");
  const auto assign = [&](int device) {
    strategy.run([&] { strategy.assign_to_logical_device(torch::rand({2}), device); });
  };
  EXPECT_FAILS(assign(4), ValueError, "[2] can't be assigned to logical device 4: expected 0 to 3");
  EXPECT_FAILS(assign(-1), ValueError, "expected 0 to 3");
}

TEST(Annotations, OutsideOfAReplicaAreAnError) {
  const Strategy strategy = spread_over(2);
  EXPECT_FAILS(strategy.split_to_logical_devices(torch::rand({2, 3}), {2, 1}), ValueError,
               "[2, 3] can't be split [2, 1] outside of a replica: the 2 logical devices");
  EXPECT_FAILS(strategy.assign_to_logical_device(torch::rand({2}), 1), ValueError,
               "call this inside of strategy.run()");
  const Strategy other = spread_over(2);
  EXPECT_FAILS(strategy.run([&] { other.replicate_to_logical_devices(torch::rand({2})); }),
               ValueError, "another OneDeviceStrategy");
}

TEST(Annotations, OfAStrategyWithOneLogicalDevicePassThrough) {
  for (const Strategy& strategy : {default_strategy(), Strategy(OneDeviceStrategy("cpu:0"))}) {
    const Tensor x = torch::rand({2, 3});
    EXPECT_TRUE(strategy.assign_to_logical_device(x, 0).is_same(x));
    EXPECT_TRUE(strategy.split_to_logical_devices(x, {1, 1}).is_same(x));
    EXPECT_TRUE(strategy.replicate_to_logical_devices(x).is_same(x));
    EXPECT_FAILS(strategy.assign_to_logical_device(x, 1), ValueError, "1 logical device");
    EXPECT_FAILS(strategy.split_to_logical_devices(x, {2, 1}), ValueError, "1 logical device");
  }
}

TEST(Annotations, TensorsOfDifferentMeshesCannotMeet) {
  const Strategy a = spread_over(2), b = spread_over(2);
  const Tensor x = in_replica(a, [&] { return a.split_to_logical_devices(torch::rand({4}), {2}); });
  const Tensor y = in_replica(b, [&] { return b.split_to_logical_devices(torch::rand({4}), {2}); });
  EXPECT_FAILS(x + y, ValueError, "tensors of different meshes can't meet");
  EXPECT_FAILS(x + y, ValueError, "[4] split {2} over devices {0, 1}");
  EXPECT_FAILS(x + y, ValueError, "the 2 logical devices of replica 0");
}

TEST(ShardedTensors, CanBeAskedForWhatTheyHold) {
  const auto& mesh = spmd::test_mesh(2);
  const Tensor x = spmd::split(torch::arange(6).reshape({2, 3}), mesh, {2, 1});
  EXPECT_EQ(x.sum().item<int>(), 15);
  EXPECT_EQ(x.select(0, 1).select(0, 2).item<int>(), 5);
  std::ostringstream text;
  spmd::print(text, x);
  EXPECT_THAT(text.str(), HasSubstr("[2, 3] split {2, 1}"));
  EXPECT_THAT(text.str(), HasSubstr("3  4  5"));
  const Tensor again = spmd::from_local({spmd::to_local(x, 0), spmd::to_local(x, 1)}, mesh, {2, 1});
  EXPECT_TRUE(torch::equal(full(again), full(x)));
  EXPECT_FAILS(spmd::from_local({torch::rand({1, 2}), torch::rand({1, 3})}, mesh, {2, 1}),
               ValueError, "tile 1 does not fit");
  const auto columns = std::make_shared<spmd::Layout>(spmd::Layout::split({2, 3}, {1, 2}));
  EXPECT_TRUE(torch::equal(full(spmd::redistribute(x, columns)), full(x)));
  EXPECT_FAILS(spmd::redistribute(torch::rand({3}), columns), ValueError, "name the mesh");
  EXPECT_FAILS(spmd::redistribute(x.t(), columns), ValueError, "another tensor");
  EXPECT_FAILS(spmd::to_local(x, 7), ValueError, "there is no logical device 7");
}

TEST(ShardedTensors, HaveNoMemoryThatLibTorchCouldSave) {
  const Tensor x = spmd::split(torch::rand({4}), spmd::test_mesh(2), {2});
  const auto names_full = testing::ThrowsMessage<std::exception>(HasSubstr("spmd::full(tensor)"));
  std::ostringstream out;
  EXPECT_THAT([&] { static_cast<void>(x.storage()); }, names_full);
  EXPECT_THAT([&] { torch::save(x, out); }, names_full);
  if constexpr (torch_compat::explains_missing_memory<>) {
    EXPECT_THAT([&] { static_cast<void>(x.data_ptr()); }, names_full);
    EXPECT_THAT([&] { out << x; }, names_full);
  } else {
    EXPECT_ANY_THROW(static_cast<void>(x.data_ptr()));
    EXPECT_ANY_THROW(out << x);
  }
}

TEST(StrictMode, ThrowsOnAGatherAndSaysWhatToDo) {
  const Tensor x = spmd::split(torch::rand({4, 4}), spmd::test_mesh(2), {2, 1});
  EXPECT_EQ(std::get<0>(torch::linalg_qr(x)).size(0), 4);  // gathers
  const spmd::Strict strict;
  EXPECT_FAILS(torch::linalg_qr(x), RuntimeError, "[aten::linalg_qr] this operation would gather");
  EXPECT_FAILS(torch::linalg_qr(x), RuntimeError, "[4, 4] split {2, 1}");
  EXPECT_FAILS(torch::linalg_qr(x), RuntimeError, "replicate_to_logical_devices()");
}

TEST(Trace, CountsAndWritesChromesFormat) {
  const Tensor x = spmd::split(torch::rand({4, 4}), spmd::test_mesh(2), {2, 1});
  auto trace = spmd::trace();
  EXPECT_FAILS(spmd::trace(), RuntimeError, "another trace");
  torch::linalg_qr(x);
  static_cast<void>(x.mm(x));
  const auto rows = trace.rows();
  EXPECT_EQ(rows.at("aten::linalg_qr").gathered, 1);
  EXPECT_EQ(rows.at("aten::linalg_qr").reason, "there is no rule for it");
  EXPECT_EQ(rows.at("aten::mm").partitioned, 1);
  EXPECT_EQ(rows.at("aten::mm").bytes_moved, 2 * 2 * 4 * 4);  // each reads half of the right side
  EXPECT_THAT(cat(trace), HasSubstr("aten::mm"));
  const std::string path = testing::TempDir() + "cohort_trace.json";
  trace.write_chrome(path);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_THAT(text.str(), HasSubstr(R"("name":"aten::mm")"));
  EXPECT_THAT(text.str(), HasSubstr(R"("tid":1)"));
  std::remove(path.c_str());
}

TEST(Replicas, HaveLogicalDevicesOfTheirOwn) {
  configure({.cpu_devices = 4});
  const Strategy strategy = MirroredStrategy(
      {.devices = {"cpu:0", "cpu:1", "cpu:2", "cpu:3"}, .logical_devices_per_replica = 2});
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  const auto sums = strategy.run([&] {
    const int id = get_replica_context().replica_id_in_sync_group();
    Tensor x = strategy.split_to_logical_devices(torch::full({4, 4}, id + 1.), {2, 1});
    for (int i = 0; i < 50; ++i) x = x.mm(x).tanh() + id;
    return full(x).sum();
  });
  EXPECT_NE(sums.values()[0].item<double>(), sums.values()[1].item<double>());
  configure({});
}

TEST(Replicas, GiveTheSameBitsOnAnyDevices) {
  configure({.cpu_devices = 4});
  std::vector<Tensor> results;
  for (const std::vector<Device>& devices :
       {std::vector<Device>{"cpu:0"}, {"cpu:0", "cpu:1"}, {"cpu:0", "cpu:1", "cpu:2", "cpu:3"}}) {
    const Strategy strategy = MirroredStrategy(MirroredStrategy::Options{
        .devices = devices, .replicas = 2, .logical_devices_per_replica = 2});
    const auto all = strategy.run([&] {
      torch::manual_seed(3);
      Tensor x =
          strategy.split_to_logical_devices(torch::arange(5000.).reshape({50, 100}).sin(), {1, 2});
      return full(x.t().mm(x).softmax(0).mm(x.t()));
    });
    results.push_back(all.values()[1]);
  }
  EXPECT_TRUE(torch::equal(results[0], results[1]));
  EXPECT_TRUE(torch::equal(results[0], results[2]));
  configure({});
}

TEST(Replicas, CombineWhatTheyHaveSpread) {
  configure({.cpu_devices = 4});
  for (const std::vector<Device>& devices :
       {std::vector<Device>{"cpu:0"}, {"cpu:0", "cpu:1", "cpu:2", "cpu:3"}}) {
    const Strategy strategy = MirroredStrategy(MirroredStrategy::Options{
        .devices = devices, .replicas = 2, .logical_devices_per_replica = 2});
    const auto scope = strategy.scope();
    const Tensor ones = torch::ones({4, 2});
    Variable total(torch::zeros({4, 2}), {.aggregation = Aggregation::SUM});
    const auto split = strategy.run([&] {
      const double id = get_replica_context().replica_id_in_sync_group();
      const Tensor own = strategy.split_to_logical_devices(ones * (id + 1), {2, 1});
      const Tensor weight = (own * 1).detach().set_requires_grad(true);
      const Tensor sum = get_replica_context().all_reduce(ReduceOp::SUM, weight * 2);
      EXPECT_TRUE(torch::equal(sum, ones * 6));
      sum.sum().backward();
      EXPECT_TRUE(torch::equal(full(weight.grad()), ones * 4));
      const Tensor rows = get_replica_context().all_gather(own, 0);
      EXPECT_TRUE(torch::equal(rows, torch::cat({ones, ones * 2})));
      total.assign_add(strategy.assign_to_logical_device(ones * (id + 1), 1));
      const Variable made(own);
      EXPECT_TRUE(torch::equal(made.value(), ones));
      return own;
    });
    EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::SUM, split), ones * 3));
    EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::MEAN, split), ones * 1.5));
    EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::SUM, split, 0), torch::full({2}, 12.)));
    EXPECT_TRUE(torch::equal(strategy.gather(split, 1), torch::cat({ones, ones * 2}, 1)));
    EXPECT_TRUE(torch::equal(total.value(), ones * 3));
  }
  configure({});
}

TEST(Replicas, NeedDevicesThatDivide) {
  configure({.cpu_devices = 3});
  EXPECT_FAILS(MirroredStrategy(MirroredStrategy::Options{.logical_devices_per_replica = 2}),
               ValueError, "3 devices do not divide into replicas of 2");
  EXPECT_FAILS(OneDeviceStrategy("cpu:0", {.logical_devices_per_replica = 0}), ValueError,
               "must be positive");
  configure({});
}

}  // namespace
}  // namespace cohort
