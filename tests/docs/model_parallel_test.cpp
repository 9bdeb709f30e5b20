// The snippets of docs/guide/model_parallel.md, as they stand there.
#include "tests/docs/guide_fixture.h"

// clang-format off

TEST_F(Guide, LogicalDevices) {
  cohort::MirroredStrategy strategy(cohort::MirroredStrategy::Options{
      .replicas = 2, .logical_devices_per_replica = 2});

  auto images = torch::rand({4, 3, 32, 32});
  auto weight = torch::rand({8, 3, 3, 3});
  strategy.run([&] {
    auto x = strategy.split_to_logical_devices(images, {1, 1, 2, 1});  // the height in halves
    auto y = torch::relu(torch::conv2d(x, weight, {}, 1, 1));         // on both devices at once
    auto mean = y.mean();                                            // combined
    assert(torch::allclose(mean, torch::relu(torch::conv2d(images, weight, {}, 1, 1)).mean()));
  });
}

TEST_F(Guide, PlacesOfTensors) {
  cohort::MirroredStrategy strategy(cohort::MirroredStrategy::Options{
      .replicas = 2, .logical_devices_per_replica = 2});
  strategy.run([&] {
    auto x = strategy.split_to_logical_devices(torch::arange(6.).reshape({2, 3}), {2, 1});
    assert(cohort::spmd::to_local(x, 1).sizes() == torch::IntArrayRef({1, 3}));
    assert(cohort::spmd::full(x * 2).sum().item<double>() == 30);
  });
}

TEST_F(Guide, TraceAndStrictMode) {
  cohort::MirroredStrategy strategy(cohort::MirroredStrategy::Options{
      .replicas = 2, .logical_devices_per_replica = 2});
  strategy.run([&] {
    if (cohort::get_replica_context().replica_id_in_sync_group() != 0) return;
    auto trace = cohort::spmd::trace();
    auto x = strategy.split_to_logical_devices(torch::rand({8, 8}), {2, 1});
    auto y = x.mm(x.t()).softmax(1);
    std::cout << trace;  // calls partitioned and gathered, bytes moved, tasks of each device
    assert(trace.gathered() == 0);

    cohort::spmd::Strict strict;  // from here on, a gather throws and says why
    bool threw = false;
    try {
      torch::linalg_qr(x);
    } catch (const cohort::RuntimeError&) {
      threw = true;
    }
    assert(threw);
  });
}

struct MlpImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return down(torch::relu(up(x))); }
  torch::nn::Linear up = register_module("up", torch::nn::Linear(16, 64));
  torch::nn::Linear down = register_module("down", torch::nn::Linear(64, 16));
};
TORCH_MODULE(Mlp);

TEST_F(Guide, TensorParallelism) {
  cohort::MirroredStrategy strategy(cohort::MirroredStrategy::Options{
      .replicas = 2, .logical_devices_per_replica = 2});
  auto scope = strategy.scope();

  cohort::Model<Mlp> model(cohort::ModelOptions{
      .split_parameters = cohort::tensor_parallel({.columns = {"up"}, .rows = {"down"}})});
  cohort::Optimizer<torch::optim::Adam> optimizer(model, torch::optim::AdamOptions(0.01));

  strategy.run([&] {
    cohort::spmd::Strict strict;                    // nothing is gathered
    auto hidden = model->up(torch::rand({4, 16}));  // each device has half of the columns
    assert(cohort::cat(cohort::spmd::layout_of(hidden)) == "[4, 64] split {1, 2} over devices {0, 1}");
    auto y = model->down(torch::relu(hidden));      // added: an ordinary tensor
    assert(!cohort::spmd::is_sharded(y));
    y.square().mean().backward();
    optimizer.step();                               // each device its own part
  });

  cohort::Model<Mlp> large(cohort::ModelOptions{
      .split_parameters = cohort::tensor_parallel({.columns = {"up"}, .rows = {"down"}}),
      .make_in_parts = true});
}

TEST_F(Guide, Pipelines) {
  torch::nn::Sequential front(torch::nn::Linear(4, 8), torch::nn::ReLU());
  torch::nn::Sequential back(torch::nn::Linear(8, 1));
  auto pipe = cohort::spmd::pipeline({front, back}, /*micro_batches=*/4);
  cohort::OneDeviceStrategy one("cpu:0", {.logical_devices_per_replica = 2});
  one.run([&] {
    pipe(torch::rand({16, 4})).mean().backward();
    assert(front->parameters()[0].grad().defined());
  });
}

TEST_F(Guide, TPUStrategy) {
  cohort::cluster::TPUClusterResolver resolver("local:2x2x1x2");  // 2x2x1 chips of 2 cores
  auto topology = cohort::tpu::initialize_system(resolver);
  auto assignment = cohort::tpu::DeviceAssignment::build(
      topology, {.computation_shape = {1, 2, 1, 2}, .num_replicas = 2});
  cohort::TPUStrategy tpu(resolver, assignment);
  assert(tpu.num_replicas_in_sync() == 2);
  assert(tpu.extended().logical_devices_per_replica() == 4);
}
