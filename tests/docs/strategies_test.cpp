// The snippets of docs/guide/strategies.md, as they stand there: markdown_test.cpp compares.
#include "tests/docs/guide_fixture.h"

using guide::Net;
using testing::ElementsAre;

// clang-format off

TEST_F(Guide, PickAStrategy) {
  cohort::Strategy strategy = cohort::MirroredStrategy();  // every GPU; without one, every core
  auto scope = strategy.scope();                           // what is made below belongs to it
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
}

TEST_F(Guide, MakeStrategies) {
  cohort::MirroredStrategy all;
  cohort::MirroredStrategy two({"cpu:0", "cpu:1"});
  cohort::MirroredStrategy eight({.devices = {"cpu:0", "cpu:1"}, .replicas = 8});
  cohort::OneDeviceStrategy one("cpu:0");
  cohort::CentralStorageStrategy central({.compute_devices = {"cpu:0", "cpu:1"},
                                          .parameter_device = "cpu:0"});
  EXPECT_EQ(two.num_replicas_in_sync(), 2);
  EXPECT_EQ(eight.num_replicas_in_sync(), 8);
  EXPECT_EQ(central.extended().parameter_devices(), std::vector<cohort::Device>{"cpu:0"});
}

TEST_F(Guide, ConfigureDevices) {
  cohort::configure({.cpu_devices = 8});
  for (const cohort::Device& device : cohort::list_logical_devices()) std::cout << device << '\n';
  EXPECT_EQ(cohort::list_logical_devices(c10::kCPU).size(), 8u);
}

TEST_F(Guide, RunAndCombine) {
  cohort::MirroredStrategy strategy({"cpu:0", "cpu:1"});
  auto batch = torch::arange(6, torch::kFloat);

  auto parts = strategy.distribute_values_from_function([&](const cohort::ValueContext& value) {
    return batch.tensor_split(value.num_replicas_in_sync)[value.replica_id_in_sync_group];
  });
  auto squares = strategy.run([](const torch::Tensor& x) { return x.square(); }, parts);

  std::vector<torch::Tensor> each = strategy.local_results(squares);            // one per replica
  torch::Tensor sum = strategy.reduce(cohort::ReduceOp::SUM, squares);          // element by element
  torch::Tensor mean = strategy.reduce(cohort::ReduceOp::MEAN, squares, 0);     // of all examples
  torch::Tensor whole = strategy.gather(squares, 0);                            // in replica order

  EXPECT_EQ(each.size(), 2u);
  EXPECT_TRUE(sum.equal(torch::tensor({9.0f, 17.0f, 29.0f})));
  EXPECT_FLOAT_EQ(mean.item<float>(), 55.0f / 6);
  EXPECT_TRUE(whole.equal(batch.square()));
}

TEST_F(Guide, ReturnSeveralValues) {
  cohort::MirroredStrategy strategy({"cpu:0", "cpu:1"});
  auto parts = strategy.distribute_values_from_function(
      [](const cohort::ValueContext&) { return torch::ones({3}); });

  auto [total, count] = strategy.run(
      [](const torch::Tensor& x) { return std::tuple{x.sum(), x.size(0)}; }, parts);
  auto mean = strategy.reduce("sum", total) / strategy.reduce("sum", count);

  EXPECT_EQ(mean.item<float>(), 1);
}

TEST_F(Guide, Train) {
  cohort::MirroredStrategy strategy({"cpu:0", "cpu:1"});
  auto scope = strategy.scope();

  cohort::Model<Net> model;
  cohort::Optimizer<torch::optim::SGD> optimizer(
      model, torch::optim::SGDOptions(0.1).momentum(0.9),
      cohort::OptimizerOptions{.clip_global_norm = 1.0});

  auto step = [&](const torch::Tensor& x, const torch::Tensor& y) {
    optimizer.zero_grad();
    auto losses = (model(x) - y).square().flatten();         // one for each example
    auto loss = cohort::average_loss(losses, /*global_batch_size=*/8);
    loss.backward();                                         // gradients are summed meanwhile
    optimizer.step();
    return loss.detach();
  };

  auto x = torch::linspace(0, 1, 4).unsqueeze(1);
  const auto loss = [&] { return strategy.reduce("sum", strategy.run(step, x, x * 2)).item<float>(); };
  const float before = loss();
  for (int i = 0; i < 50; ++i) loss();
  EXPECT_LT(loss(), before / 2);
}

TEST_F(Guide, AccumulateGradients) {
  cohort::MirroredStrategy strategy({"cpu:0", "cpu:1"});
  auto scope = strategy.scope();
  cohort::Model<Net> model;
  cohort::Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.1));
  auto loss_of = [&](const torch::Tensor& x) { return cohort::average_loss(model(x).flatten(), 8); };

  auto step = [&](const torch::Tensor& first, const torch::Tensor& second) {
    optimizer.zero_grad();
    {
      auto waiting = optimizer.no_sync();  // adds up on each replica alone
      loss_of(first).backward();
    }
    loss_of(second).backward();            // now over all replicas
    optimizer.step();
  };

  const std::string before = cohort::fingerprint(model);
  strategy.run(step, torch::ones({2, 1}), torch::ones({2, 1}));
  EXPECT_NE(cohort::fingerprint(model), before);
}

TEST_F(Guide, WhenAReplicaThrows) {
  cohort::MirroredStrategy strategy({"cpu:0", "cpu:1"});
  testing::internal::CaptureStderr();

  try {
    strategy.run([] {
      auto& replica = cohort::get_replica_context();
      if (replica.replica_id_in_sync_group() == 1) throw std::out_of_range("no such row");
      replica.all_reduce(cohort::ReduceOp::SUM, torch::ones({}));  // waits for replica 1: stopped
    });
  } catch (const std::out_of_range& error) {
    std::cerr << "replica " << cohort::failed_replica() << ": " << error.what() << '\n';
  }

  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("replica 1: no such row (in replica 1)"));
  EXPECT_THAT(strategy.local_results(strategy.run([] { return 1; })), ElementsAre(1, 1));
}

TEST_F(Guide, WaitForAWhile) {
  cohort::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"},
                                     .timeout = std::chrono::minutes(5)});
  strategy.run([] {
    auto& replica = cohort::get_replica_context();
    replica.all_reduce(cohort::ReduceOp::SUM, torch::ones({}), {.timeout = std::chrono::seconds(10)});
    replica.barrier();  // waits for all replicas
  });
  EXPECT_EQ(strategy.extended().communication().timeout, std::chrono::minutes(5));
}
