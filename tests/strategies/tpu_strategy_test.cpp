// TPUStrategy on a simulated system: rules 15.9 to 15.15.

#include "cohort/strategies/tpu_strategy.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/device/configuration.h"
#include "cohort/metrics/metric.h"
#include "cohort/optim/model.h"
#include "cohort/optim/optimizer.h"
#include "cohort/spmd/placement.h"
#include "cohort/spmd/trace.h"
#include "cohort/tpu/tpu_system.h"
#include "cohort/variables/logical_device.h"
#include "cohort/variables/operators.h"
#include "cohort/variables/reading.h"
#include "cohort/variables/update.h"
#include "cohort/variables/variable.h"
#include "tests/base/failing.h"
#include "tests/base/scoped_environment.h"

namespace cohort {
namespace {

using cluster::TPUClusterResolver;
using testing::ElementsAre;
using torch::Tensor;
using tpu::DeviceAssignment;

/// 2x2x1 chips of 2 cores; replicas of `shape`.
TPUStrategy strategy_of(const std::vector<int>& shape, int replicas,
                        TPUStrategy::Options options = {}) {
  const TPUClusterResolver resolver("local:2x2x1x2");
  const auto assignment = DeviceAssignment::build(
      tpu::topology_of(resolver), {.computation_shape = shape, .num_replicas = replicas});
  return TPUStrategy(resolver, assignment, options);
}

TEST(TPUStrategy, HasAReplicaOnEachCoreByDefault) {
  const TPUClusterResolver resolver("local:2x2x1x2");
  const TPUStrategy strategy(resolver);
  EXPECT_EQ(strategy.num_replicas_in_sync(), 8);
  EXPECT_EQ(strategy.extended().logical_devices_per_replica(), 1);
  EXPECT_EQ(strategy.num_hosts(), 1);
  EXPECT_EQ(strategy.num_replicas_per_host(), 8);
  EXPECT_EQ(strategy.tpu_devices(), resolver.get_tpu_system_metadata().devices);
  EXPECT_EQ(strategy.tpu_devices()[7], "/job:localhost/replica:0/task:0/device:TPU:7");
  EXPECT_TRUE(strategy.extended().require_static_shapes());
  const auto ids = strategy.run([] { return get_replica_context().replica_id_in_sync_group(); });
  EXPECT_THAT(ids.values(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(TPUStrategy, TakesReplicasAndLogicalDevicesFromTheAssignment) {
  const TPUStrategy strategy = strategy_of({1, 2, 1, 2}, 2);
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_EQ(strategy.extended().logical_devices_per_replica(), 4);
  EXPECT_EQ(strategy.num_replicas_per_host(), 2);
  EXPECT_EQ(strategy.device_assignment().num_cores_per_replica(), 4);
}

/// A system of two slots, each of which plays half of the cores.
class TPUStrategyOnTwoSlots : public testing::Test {
 protected:
  TPUStrategyOnTwoSlots() { configure({.cpu_devices = 2}); }
  ~TPUStrategyOnTwoSlots() override { configure({}); }

  /// A replica on each of the cores of a chip, in this order.
  static TPUStrategy on_cores(const std::vector<int>& cores, const char* tpu = "local:1x1x1x2") {
    const TPUClusterResolver resolver(tpu);
    std::vector<std::vector<tpu::Coordinates>> assignment;
    for (const int core : cores) assignment.push_back({{0, 0, 0, core}});
    return TPUStrategy(resolver, DeviceAssignment(tpu::topology_of(resolver), assignment));
  }
};

TEST_F(TPUStrategyOnTwoSlots, HasAWorkerDeviceForEachReplica) {
  const TPUStrategy strategy(TPUClusterResolver("local:2x1x1x2"));
  const std::vector<Device> slots{"cpu:0", "cpu:0", "cpu:1", "cpu:1"};
  EXPECT_EQ(strategy.extended().worker_devices(), slots);
  EXPECT_EQ(strategy.extended().parameter_devices(), slots);
  const auto scope = strategy.scope();
  EXPECT_EQ(*Variable(1.0f).devices(), slots);
}

TEST_F(TPUStrategyOnTwoSlots, UpdatesOnceOnTheHostWhatBelongsToNoVariable) {
  const TPUStrategy strategy(TPUClusterResolver("local:2x1x1x2"));
  auto& extended = strategy.extended();
  const auto scope = strategy.scope();
  const Variable v(1.0f, {.aggregation = Aggregation::MEAN});
  EXPECT_EQ(extended.non_slot_devices({v}), std::vector<Device>{"cpu:0"});
  EXPECT_EQ(extended.non_slot_devices({}), std::vector<Device>{"cpu:0"});
  int calls = 0;
  const auto count = [&](float x) {
    ++calls;
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_EQ(update_replica_id(), std::nullopt);
    EXPECT_EQ(v.value().item<float>(), 1);
    return x;
  };
  const Mirrored<float> of_replicas(std::vector<float>{5, 6, 7, 8}, v.devices());
  EXPECT_THAT(extended.update_non_slot({"cpu:0"}, count, of_replicas).values(), ElementsAre(5));
  EXPECT_THAT(update_non_slot_ungrouped(extended, {"cpu:0"}, count, 2.0f), ElementsAre(2));
  EXPECT_EQ(calls, 2);
  extended.update(v, [&](Tensor&) {
    const auto id = update_replica_id();
    EXPECT_TRUE(id);
    extended.update_non_slot({"cpu:0"}, [] { EXPECT_FALSE(update_replica_id()); });
    EXPECT_EQ(update_replica_id(), id);
  });
  EXPECT_FAILS(extended.update_non_slot({"cpu:0", "cpu:1"}, [] {}), ValueError,
               "expected 1 of them, got 2; pass what non_slot_devices() returns");
  EXPECT_FAILS(extended.update_non_slot({"cpu:1"}, [] {}), ValueError, "non_slot_devices()");
}

TEST_F(TPUStrategyOnTwoSlots, ReadsVariablesOfAnotherOneByCore) {
  const TPUStrategy forward = on_cores({0, 1}), reversed = on_cores({1, 0});
  EXPECT_THAT(reversed.tpu_devices(), ElementsAre("/job:localhost/replica:0/task:0/device:TPU:1",
                                                  "/job:localhost/replica:0/task:0/device:TPU:0"));
  const auto make = [&](const VariableOptions& options) {
    const auto scope = forward.scope();
    return Variable(1.0f, options);
  };
  const Variable v = make({.trainable = false});
  const Variable on_read =
      make({.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::SUM});
  for (const Variable& each : {v, on_read}) each.components()[1].fill_(42);
  for (const Variable& each : {v, on_read}) {
    const auto read = [&] { return each.read_value().item<double>(); };
    EXPECT_THAT(forward.run(read).values(), ElementsAre(1, 42));
    EXPECT_THAT(reversed.run(read).values(), ElementsAre(42, 1));
  }
  EXPECT_THAT(reversed.run([&] { return v.device(); }).values(), ElementsAre("cpu:1", "cpu:0"));
  const auto sum = [&] {
    const VariableSyncOnReadContext sync;
    return Tensor(on_read).item<double>();
  };
  EXPECT_THAT(reversed.run(sum).values(), ElementsAre(43, 43));
}

TEST_F(TPUStrategyOnTwoSlots, MixesWithAnotherOneOnlyToReadInReplicasOnItsCores) {
  const TPUStrategy strategy = on_cores({0}), reversed = on_cores({1, 0});
  const TPUStrategy elsewhere = on_cores({0}, "local:1x1x1x4");
  const auto make = [&] {
    const auto scope = strategy.scope();
    return Variable(1.0f);
  };
  const Variable v = make();
  const auto read = [&] { return v.value().item<float>(); };
  EXPECT_EQ(on_cores({0}).run(read).values()[0], 1);
  EXPECT_FAILS(reversed.run(read), RuntimeError, "Mixing different");
  EXPECT_FAILS(elsewhere.run(read), RuntimeError, "Mixing different");
  EXPECT_FAILS(on_cores({0}).run([&] { v.assign(2.0f); }), RuntimeError, "Mixing different");
  const auto scope = reversed.scope();
  EXPECT_FAILS(read(), RuntimeError, "Mixing different");
}

TEST(TPUStrategy, CountsTheHostsThatHaveReplicas) {
  const TPUClusterResolver resolver("local:2x2x1x2");
  const auto on_two_tasks = [&](int replicas) {
    return TPUStrategy(resolver, DeviceAssignment::build(tpu::Topology::full_mesh({2, 2, 1, 2}, 2),
                                                         {.computation_shape = {1, 1, 1, 2},
                                                          .num_replicas = replicas}));
  };
  EXPECT_EQ(on_two_tasks(1).num_hosts(), 1);
  EXPECT_EQ(on_two_tasks(1).num_replicas_per_host(), 1);
  EXPECT_EQ(on_two_tasks(4).num_hosts(), 2);
  EXPECT_EQ(on_two_tasks(4).num_replicas_per_host(), 2);
}

TEST(TPUStrategy, RefusesAnAssignmentForAnotherMesh) {
  const auto large = tpu::topology_of(TPUClusterResolver("local:4x2x1x2"));
  EXPECT_FAILS(TPUStrategy(TPUClusterResolver("local:2x2x1x2"), DeviceAssignment::build(large)),
               ValueError, "local:2x2x1x2: expected [2, 2, 1, 2], got [4, 2, 1, 2]");
}

TEST(TPUStrategy, RefusesAnAssignmentOnDevicesThatAreMissing) {
  const tpu::Topology with_a_gap({1, 1, 1, 2}, {{{0, 0, 0, 1}}});
  const DeviceAssignment on_the_gap(with_a_gap, {{{0, 0, 0, 1}}, {{0, 0, 0, 0}}});
  EXPECT_FAILS(TPUStrategy(TPUClusterResolver("local:1x1x1x2"), on_the_gap), ValueError,
               "logical core 0 of replica 1 of the device assignment is at [0, 0, 0, 0], where the "
               "device is missing");
}

TEST(TPUStrategy, HandsOutItsResolver) {
  const TPUStrategy strategy(TPUClusterResolver("local:1x1x1x2", "learner"));
  const Strategy& base = strategy;
  const std::shared_ptr<ClusterResolver> resolver = base.cluster_resolver();
  ASSERT_TRUE(resolver);
  EXPECT_EQ(resolver->task_type(), "learner");
  EXPECT_EQ(resolver.get(), &strategy.tpu_cluster_resolver());
  EXPECT_EQ(base.cluster_resolver(), resolver);
}

TEST(TPUStrategy, WithoutAResolverAsksTheEnvironment) {
  const ScopedEnvironment endpoints("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", nullptr);
  const ScopedEnvironment config("TPU_CONFIG", nullptr);
  {
    const ScopedEnvironment name("TPU_NAME", "local:1x1x1x2");
    const TPUStrategy strategy;
    EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
    EXPECT_EQ(strategy.tpu_cluster_resolver().tpu(), "local:1x1x1x2");
  }
  const ScopedEnvironment name("TPU_NAME", nullptr);
  EXPECT_FAILS(TPUStrategy{}, ValueError, "Please provide a TPU Name");
}

/// A strategy on a system that was started, and a variable of it.
class TPUVariable : public testing::Test {
 protected:
  TPUVariable() { tpu::initialize_system(resolver); }
  ~TPUVariable() override { tpu::shutdown_system(resolver); }

  Variable make(const TPUStrategy& strategy) const {
    const auto scope = strategy.scope();
    return Variable(1.0f, {.name = "weight", .aggregation = Aggregation::MEAN});
  }
  void expect_lost(const TPUStrategy& strategy, const Variable& v) const {
    const char* const text =
        "MirroredVariable 'weight' is lost: the TPU system local:1x2x1x2 was started again or "
        "stopped after its TPUStrategy was made; make the strategy and its variables anew";
    EXPECT_FAILS(v.value(), RuntimeError, text);
    EXPECT_FAILS(v.assign(2.0f), RuntimeError, text);
    EXPECT_FAILS(strategy.run([&] { v.assign_add(1.0f); }), RuntimeError, text);
    EXPECT_FAILS(strategy.extended().update(v, [](Tensor&) {}), RuntimeError, text);
    EXPECT_FAILS(strategy.extended().read_var(v), RuntimeError, text);
    EXPECT_FAILS(TPUStrategy(resolver).run([&] { v.value(); }), RuntimeError, text);
  }

  const TPUClusterResolver resolver{"local:1x2x1x2"};
};

TEST_F(TPUVariable, IsLostWhenItsSystemIsStartedAgain) {
  const TPUStrategy strategy(resolver);
  const Variable v = make(strategy);
  EXPECT_EQ(v.value().item<float>(), 1);
  tpu::initialize_system(resolver);
  expect_lost(strategy, v);
  const TPUStrategy anew(resolver);
  EXPECT_EQ(make(anew).value().item<float>(), 1);
}

TEST_F(TPUVariable, IsLostWhenItsSystemIsStopped) {
  const TPUStrategy strategy(resolver);
  const Variable v = make(strategy);
  tpu::shutdown_system(resolver);
  expect_lost(strategy, v);
  tpu::initialize_system(resolver);
  expect_lost(strategy, v);
}

TEST_F(TPUVariable, StaysWhenAnotherSystemIsStartedAgain) {
  const TPUStrategy strategy(resolver);
  const Variable v = make(strategy);
  const TPUClusterResolver other("local:1x2x2x1");
  for (int i = 0; i < 2; ++i) tpu::initialize_system(other);
  tpu::shutdown_system(other);
  EXPECT_EQ(v.value().item<float>(), 1);
}

TEST(TPUStrategy, TakesRunOptionsWhichChangeNothing) {
  const TPUStrategy strategy = strategy_of({1, 1, 1, 1}, 2);
  const auto twice = [](int x) { return 2 * x; };
  const RunOptions options{.xla_options = XLAOptions{.enable_xla_dynamic_padder = false}};
  EXPECT_THAT(strategy.run(options, twice, 3).values(), ElementsAre(6, 6));
  EXPECT_THAT(strategy.run({.enable_dynamic_batch_size = false}, twice, 4).values(),
              ElementsAre(8, 8));
}

TEST(TPUStrategy, ReducesAsTheOthersDo) {
  const TPUStrategy strategy = strategy_of({1, 1, 1, 1}, 2);
  const auto values = strategy.run([] {
    const double x = get_replica_context().replica_id_in_sync_group() + 2;
    return torch::full({}, x * x);
  });
  EXPECT_EQ(strategy.reduce(ReduceOp::SUM, values).item<double>(), 13);
  EXPECT_EQ(strategy.reduce(ReduceOp::MEAN, values).item<double>(), 6.5);
}

TEST(TPUStrategy, VariablesAreMirrored) {
  const TPUStrategy strategy = strategy_of({1, 1, 1, 2}, 2);
  const auto scope = strategy.scope();
  const Variable v(1.0f, {.aggregation = Aggregation::SUM});
  strategy.run([&] { v.assign_add(1.0f); });
  EXPECT_EQ(v.value().item<float>(), 3);
}

TEST(TPUStrategy, VariablesCanBePlacedOnALogicalDevice) {
  const TPUStrategy strategy = strategy_of({1, 1, 1, 2}, 2);
  const auto scope = strategy.scope();
  const auto make = [&](int device) {
    const auto on = strategy.extended().logical_device(device);
    return Variable(torch::ones({4}));
  };
  const Variable v = make(1);
  const Variable split(torch::arange(4.), {.logical_split = {2}});
  strategy.run([&] {
    EXPECT_EQ(cat(spmd::layout_of(v.value() * 2)), "[4] on device 1");
    EXPECT_EQ(cat(spmd::layout_of(split + 1)), "[4] split {2} over devices {0, 1}");
  });
  EXPECT_FALSE(spmd::is_sharded(v.value()));  // outside of replicas
  v.assign(torch::full({4}, 3.f));
  split.assign(torch::full({4}, 5.f));
  const auto sums =
      strategy.run([&] { return (v.value().sum() + split.value().sum()).item<double>(); });
  EXPECT_THAT(sums.values(), ElementsAre(32, 32));
  EXPECT_FAILS(make(2), ValueError, "a replica has 2 logical devices: expected 0 to 1, got 2");
  EXPECT_FAILS(make(-1), ValueError, "got -1");
}

TEST(TPUStrategy, ThatPartitionsItselfRefusesToAssign) {
  const TPUStrategy strategy = strategy_of({1, 1, 1, 2}, 1, {.spmd_xla_partitioning = true});
  EXPECT_FAILS(strategy.run([&] { strategy.assign_to_logical_device(torch::rand({2}), 0); }),
               ValueError, "use split_to_logical_devices()");
  strategy.run([&] { strategy.split_to_logical_devices(torch::rand({2}), {2}); });
}

TEST(TPUStrategy, WithoutATPUSaysWhatToDo) {
  const TPUClusterResolver resolver("grpc://10.1.2.3:8470");
  EXPECT_FAILS(TPUStrategy{resolver}, RuntimeError, "can't be reached");
  EXPECT_FAILS(tpu::initialize_system(resolver), RuntimeError, "\"local:XxYxZxC\"");
  const TPUClusterResolver local("local:1x1x1x2");
  const auto none = DeviceAssignment::build(tpu::topology_of(local), {.num_replicas = 0});
  EXPECT_FAILS(TPUStrategy(local, none), ValueError, "no replicas");
}

struct NetImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) { return out(torch::tanh(hidden(x))); }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(6, 8));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(8, 3));
};
TORCH_MODULE(Net);

/// What the parameters are after a few steps.
std::vector<Tensor> trained(const Strategy& strategy, bool split) {
  const auto scope = strategy.scope();
  torch::manual_seed(1);
  Model<Net> model;
  Optimizer<torch::optim::Adam> optimizer(model, torch::optim::AdamOptions(0.01));
  for (int step = 0; step < 5; ++step) {
    strategy.run([&] {
      const int id = get_replica_context().replica_id_in_sync_group();
      Tensor x = torch::arange(48.).reshape({8, 6}).add(100 * id + step).sin();
      if (split) x = strategy.split_to_logical_devices(x, {4, 1});
      optimizer.zero_grad();
      strategy.replicate_to_logical_devices(model(x).square()).sum().backward();
      optimizer.step();
    });
  }
  return model->parameters();
}

TEST(TPUStrategy, TrainsAModelOverLogicalDevices) {
  const auto plain = trained(strategy_of({1, 2, 1, 2}, 2), false);
  const auto split = trained(strategy_of({1, 2, 1, 2}, 2), true);
  ASSERT_EQ(plain.size(), split.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(torch::allclose(plain[i], split[i], 1e-4, 1e-5));
    EXPECT_FALSE(spmd::is_sharded(split[i].grad()));
  }
  const auto again = trained(strategy_of({1, 2, 1, 2}, 2), true);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(torch::equal(split[i], again[i]));
}

/// What a model with these parameters split is after a few steps; plain ones for none.
StateDict trained_with(const SplitTable& table, bool once_more = false) {
  const TPUStrategy strategy = strategy_of({1, 1, 1, 2}, 2);
  const auto scope = strategy.scope();
  torch::manual_seed(1);
  Model<Net> model(ModelOptions{.split_parameters = table});
  Optimizer<torch::optim::Adam> optimizer(model, torch::optim::AdamOptions(0.01));
  for (int step = 0; step < 4; ++step) {
    strategy.run([&] {
      const int id = get_replica_context().replica_id_in_sync_group();
      const Tensor x = torch::arange(48.).reshape({8, 6}).add(100 * id + step).sin();
      optimizer.zero_grad();
      strategy.replicate_to_logical_devices(model(x).square()).sum().backward();
      optimizer.step();
    });
  }
  if (once_more) model.load_state_dict(model.state_dict());
  for (const auto& entry : model->named_parameters()) {
    const bool is_split = !table.empty() && entry.key() != "out.bias";
    EXPECT_EQ(spmd::is_sharded(entry.value()), is_split) << entry.key();
  }
  return model.state_dict();
}

TEST(LogicalDevices, MetricsAndVariablesTakeWhatIsSpread) {
  const TPUStrategy strategy = strategy_of({1, 1, 1, 2}, 2);
  const auto scope = strategy.scope();
  metrics::Mean mean("mean");
  metrics::SparseCategoricalAccuracy accuracy("accuracy");
  Variable last(torch::zeros({2}),
                {.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::SUM});
  strategy.run([&] {
    const Tensor scores = torch::tensor({{1., 2.}, {4., 3.}});
    const Tensor labels = torch::tensor({1, 1});
    const Tensor columns = strategy.split_to_logical_devices(scores, {1, 2});
    const Tensor there = strategy.assign_to_logical_device(scores, 1);
    mean.update(columns);
    mean.update(there + 1, torch::tensor({1., 0.}).unsqueeze(1).expand({2, 2}));
    accuracy.update(labels, columns);
    accuracy.update(strategy.assign_to_logical_device(labels, 1), there);
    last.assign(there.select(0, 1));
    last.assign_add(columns.sum(0));
  });
  EXPECT_DOUBLE_EQ(mean.result().item<double>(), 15. / 6);
  EXPECT_DOUBLE_EQ(accuracy.result().item<double>(), 0.5);
  EXPECT_TRUE(torch::equal(last.value(), torch::tensor({18., 16.})));
}

TEST(SplitParameters, TrainAsWholeOnes) {
  const SplitTable table{{"hidden.weight", {2, 1}}, {"hidden.b*", {2}}, {"out.weight", {1, 2}}};
  const StateDict plain = trained_with({}), split = trained_with(table, true);
  for (const auto& [name, value] : plain) {
    EXPECT_TRUE(torch::allclose(value, split.at(name), 1e-4, 1e-5)) << name;
  }
  const StateDict again = trained_with(table);
  for (const auto& [name, value] : split) EXPECT_TRUE(torch::equal(value, again.at(name))) << name;
}

TEST(SplitParameters, KeepTheirOptimizersStateSplit) {
  const TPUStrategy strategy = strategy_of({1, 1, 1, 2}, 1);
  const auto scope = strategy.scope();
  Model<Net> model(ModelOptions{.split_parameters = {{"*.weight", {1, 2}}, {"hidden.bias", {2}}}});
  Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.1).momentum(0.9));
  strategy.run([&] {
    const spmd::Strict strict;
    strategy.replicate_to_logical_devices(model(torch::rand({4, 6}))).sum().backward();
    EXPECT_TRUE(spmd::is_sharded(model->hidden->weight.grad()));
    optimizer.step();
  });
}

TEST(SplitParameters, ThatDoNotFitAreErrors) {
  const TPUStrategy strategy = strategy_of({1, 1, 1, 2}, 1);
  const auto scope = strategy.scope();
  const auto make = [](SplitTable table) {
    Model<Net> model(ModelOptions{.split_parameters = std::move(table)});
  };
  EXPECT_FAILS(make({{"nothing.*", {2}}}), ValueError, "no parameter fits the pattern");
  EXPECT_FAILS(make({{"hidden.weight", {2}}}), ValueError, "hidden.weight of sizes [8, 6]");
  EXPECT_FAILS(make({{"hidden.weight", {3, 1}}}), ValueError, "the 2 logical devices");
}

}  // namespace
}  // namespace cohort
