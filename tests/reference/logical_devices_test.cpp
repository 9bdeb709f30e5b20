// The examples of the pages about TPUStrategy, and about the methods for logical devices.

#include "cohort/data/sources.h"
#include "cohort/optim/model.h"
#include "cohort/spmd/placement.h"
#include "cohort/strategies/tpu_strategy.h"
#include "cohort/tpu/tpu_system.h"
#include "tests/base/failing.h"
#include "tests/base/scoped_environment.h"
#include "tests/reference/reference.h"

namespace cohort {
namespace {

using cluster::TPUClusterResolver;
using testing::ElementsAre;
using tpu::DeviceAssignment;

class LogicalDevicesPage : public Reference {
 protected:
  /// Images as the pages have them: [batch, width, height, channels].
  static Tensor images() { return torch::arange(2 * 8 * 8 * 3.).reshape({2, 8, 8, 3}).sin(); }
  /// "model()", whose operations work on every element and on the channels.
  static Tensor model(const Tensor& x) { return (x * 2).tanh().sum(3); }
};

// experimental_split_to_logical_devices: "Initializing TPU system with 8 logical devices and 1
// replica". The page's tpu='' asks a TPU of Google's; here the system is named.
TEST_F(LogicalDevicesPage, Split) {
  EXPECT_FAILS(TPUClusterResolver(""), ValueError, "Please provide a TPU Name");
  const TPUClusterResolver resolver("local:1x2x2x2");
  const auto topology = tpu::initialize_system(resolver);
  const auto device_assignment =
      DeviceAssignment::build(topology, {.computation_shape = {1, 2, 2, 2}, .num_replicas = 1});
  const TPUStrategy strategy(resolver, device_assignment);
  const auto step_fn = [&](const Tensor& inputs) {
    const Tensor split = strategy.split_to_logical_devices(inputs, {1, 2, 4, 1});
    EXPECT_EQ(spmd::layout_of(split).tiles(), 8);
    return spmd::full(model(split));
  };
  const auto output = strategy.run(step_fn, images());
  EXPECT_TRUE(torch::allclose(output.values()[0], model(images())));
}

// experimental_replicate_to_logical_devices: the page's system has 2 logical devices and 4
// replicas, but its step splits 2 x 4 ways, which the rules forbid.
TEST_F(LogicalDevicesPage, Replicate) {
  const TPUClusterResolver resolver("local:2x2x1x2");
  const auto topology = tpu::initialize_system(resolver);
  const auto device_assignment =
      DeviceAssignment::build(topology, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
  const TPUStrategy strategy(resolver, device_assignment);
  const auto step_fn = [&](std::vector<std::int64_t> parts) {
    return strategy.run([&] {
      const Tensor split = strategy.split_to_logical_devices(images(), parts);
      Tensor output = model(split);
      Tensor labels = strategy.replicate_to_logical_devices(torch::ones({2, 8, 8}));
      output = strategy.replicate_to_logical_devices(output);
      EXPECT_FALSE(spmd::is_sharded(output));
      return (labels - output).square().mean();
    });
  };
  EXPECT_FAILS(step_fn({1, 2, 4, 1}), ValueError, "that is 8 parts");
  const Tensor expected = (1 - model(images())).square().mean();
  const auto losses = step_fn({1, 2, 1, 1});
  for (const Tensor& loss : losses.values()) {
    EXPECT_TRUE(torch::allclose(loss, expected));
  }
}

// experimental_assign_to_logical_device: "Initializing TPU system with 2 logical devices and 4
// replicas. […] Add operation will be executed on logical device 0". As printed, with tpu='': the
// system is the one that the environment names.
TEST_F(LogicalDevicesPage, Assign) {
  const ScopedEnvironment endpoints("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", nullptr);
  const ScopedEnvironment name("TPU_NAME", "local:2x2x1x2");
  const TPUClusterResolver resolver("");
  compat::experimental_connect_to_cluster(resolver);
  const auto topology = tpu::initialize_system(resolver);
  const auto device_assignment =
      DeviceAssignment::build(topology, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
  const compat::TPUStrategy strategy(resolver,
                                     {.experimental_device_assignment = device_assignment});
  const auto inputs = strategy.distribute_dataset(data::range(8).batch(8));
  auto iterator = inputs.iterator();
  const auto step_fn = [&](const Tensor& own) {
    Tensor output = torch::add(own, own);
    output = compat::experimental_assign_to_logical_device(strategy, output, 0);
    EXPECT_EQ(cat(spmd::layout_of(output)), "[2] on device 0");
    return spmd::full(output);
  };
  const auto outputs = strategy.run(step_fn, iterator.get_next());
  EXPECT_THAT(numbers(outputs.values()[0]), ElementsAre(0, 2));
  EXPECT_THAT(numbers(outputs.values()[3]), ElementsAre(12, 14));
}

// "operations on `tensor` will be invoked on logical core device id `logical_device_id`".
TEST_F(LogicalDevicesPage, AssignToAnotherDevice) {
  const TPUClusterResolver resolver("local:2x2x1x2");
  const auto device_assignment = DeviceAssignment::build(
      tpu::initialize_system(resolver), {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
  const TPUStrategy strategy(resolver, device_assignment);
  const auto results = strategy.run([&] {
    const Tensor x = torch::full({3}, own_id() + 1.);
    const Tensor y = strategy.assign_to_logical_device(x.square(), 1);
    const Tensor z = y + 1;  // runs on logical device 1
    EXPECT_EQ(cat(spmd::layout_of(z)), "[3] on device 1");
    return spmd::full(z);
  });
  EXPECT_EQ(number(results.values()[3].sum()), 3 * 17);
}

// "device_assignment: … Currently only supports the usecase of using a single core within a TPU
// cluster."
TEST_F(LogicalDevicesPage, ASingleCore) {
  const TPUClusterResolver resolver("local:2x2x1x2");
  const auto device_assignment =
      DeviceAssignment::build(tpu::initialize_system(resolver), {.num_replicas = 1});
  EXPECT_EQ(TPUStrategy(resolver, device_assignment).num_replicas_in_sync(), 1);
}

// The TPUStrategy page: datasets, values and run as in every strategy.
TEST_F(LogicalDevicesPage, TPUStrategyRunsATrainingLoop) {
  const TPUStrategy strategy{TPUClusterResolver("local:1x1x1x2")};
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  const auto scope = strategy.scope();
  double total = 0;
  for (const auto& x : strategy.distribute_dataset(data::range(8).batch(4))) {
    const auto sums = compat::experimental_run_v2(
        strategy, [](const Tensor& own) { return own.sum(); }, x);
    total += number(strategy.reduce(ReduceOp::SUM, sums));
  }
  EXPECT_EQ(total, 28);
}

// Its experimental_distribute_datasets_from_function and experimental_make_numpy_dataset; the array
// is printed without a batch, which two replicas can't share.
TEST_F(LogicalDevicesPage, TPUStrategyDistributesDatasets) {
  const TPUStrategy strategy{TPUClusterResolver("local:1x1x1x2")};
  const auto dataset_fn = [](const InputContext& input_context) {
    const auto batch_size = input_context.get_per_replica_batch_size(8);
    const auto d = data::from_tensors(torch::tensor({{1.f}})).repeat().batch(batch_size);
    return d.shard(input_context.num_input_pipelines, input_context.input_pipeline_id);
  };
  const auto inputs = compat::experimental_distribute_datasets_from_function(strategy, dataset_fn);
  const auto rows =
      strategy.run([](const Tensor& own) { return own.size(0); }, inputs.iterator().get_next());
  EXPECT_THAT(strategy.local_results(rows), ElementsAre(4, 4));

  const auto dataset = compat::experimental_make_numpy_dataset(strategy, torch::ones({10}));
  EXPECT_FAILS(strategy.distribute_dataset(dataset).iterator().get_next(), ValueError, "batch");
  EXPECT_EQ(strategy.distribute_dataset(dataset.batch(2)).cardinality(), 5);
}

// Its reduce: "a global batch size of 8 and 2 replicas", and "if the last batch has size 6".
TEST_F(LogicalDevicesPage, TPUStrategyReduces) {
  const TPUStrategy strategy{TPUClusterResolver("local:1x1x1x2")};
  const auto whole = batch({0, 1, 2, 3}, {4, 5, 6, 7});
  EXPECT_THAT(numbers(strategy.reduce(ReduceOp::SUM, whole)), ElementsAre(4, 6, 8, 10));
  EXPECT_EQ(number(strategy.reduce(ReduceOp::SUM, whole, 0)), 28);
  const auto partial = batch({0, 1, 2, 3}, {4, 5});
  EXPECT_FAILS(strategy.reduce(ReduceOp::SUM, partial), InvalidArgument, "give an axis");
  EXPECT_EQ(number(strategy.reduce(ReduceOp::MEAN, partial, 0)), 2.5);
}

}  // namespace
}  // namespace cohort
