#include <sched.h>

#include "tests/optim/training.h"

namespace cohort {
namespace {

struct SmallCnnImpl : nn::Module {
  SmallCnnImpl() {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(1, 4, 3)));
    norm = register_module("norm", nn::BatchNorm2d(4));
    drop = register_module("drop", nn::Dropout(0.3));
    head = register_module("head", nn::Linear(4 * 3 * 3, 3));
  }
  Tensor forward(Tensor x) {
    x = torch::max_pool2d(torch::relu(norm(conv(x))), 2);
    return head(drop(x.flatten(1)));
  }
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d norm{nullptr};
  nn::Dropout drop{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(SmallCnn);

struct Training {
  int steps = 200;
  int passes = 1;  // before the gradients are summed over replicas
  int replicas = 8;
  int logical_devices = 1;
  std::vector<std::int64_t> split_images{};  // over logical devices; empty: not at all
  SplitTable split_parameters{};
};

/// Trains for some steps and returns the fingerprint.
std::string train(const Strategy& strategy, const Training& job) {
  seed_thread(7);
  auto scope = strategy.scope();
  Model<SmallCnn> model(ModelOptions{.split_parameters = job.split_parameters});
  Optimizer<torch::optim::Adam> optimizer(model, torch::optim::AdamOptions(1e-2));
  auto images = strategy.distribute_values_from_function([](const ValueContext& value) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(value.replica_id_in_sync_group);
    return torch::rand({4, 1, 8, 8}, generator);
  });
  auto labels = strategy.distribute_values_from_function([](const ValueContext& value) {
    return torch::arange(4).add(value.replica_id_in_sync_group).remainder(3);
  });
  const auto step = [&](const Tensor& x, const Tensor& y) {
    optimizer.zero_grad();
    const Tensor images =
        job.split_images.empty() ? x : strategy.split_to_logical_devices(x, job.split_images);
    for (int pass = 0; pass < job.passes; ++pass) {
      std::optional<Optimizer<torch::optim::Adam>::NoSync> waiting;
      if (pass + 1 < job.passes) waiting.emplace(optimizer.core());
      const auto losses = nn::functional::cross_entropy(
          model(images), y, nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
      average_loss(losses, 4 * job.replicas).backward();
    }
    optimizer.step();
  };
  for (int i = 0; i < job.steps; ++i) strategy.run(step, images, labels);
  return fingerprint(model);
}

std::string train(int devices, const Training& job) {
  set_seed(11);
  return train(MirroredStrategy({.devices = first_devices(devices),
                                 .replicas = job.replicas,
                                 .logical_devices_per_replica = job.logical_devices}),
               job);
}

/// While it lives, this thread and those that it starts share one core.
class OnOneCore {
 public:
  OnOneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OnOneCore() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

using SameBits = ManyDevices;

TEST_F(SameBits, OfACnnWithBatchNormAndDropoutOnAnyNumberOfDevices) {
  const std::string alone = train(1, {});
  for (const int devices : {2, 3, 4, 8}) EXPECT_EQ(train(devices, {}), alone) << devices;
  EXPECT_EQ(train(2, {}), alone) << "run after run";
}

TEST_F(SameBits, WithGradientAccumulation) {
  const Training job{.passes = 2};
  const std::string alone = train(1, job);
  for (const int devices : {2, 3, 4, 8}) EXPECT_EQ(train(devices, job), alone) << devices;
}

TEST_F(SameBits, OfALayoutOverLogicalDevicesOnAnyNumberOfDevicesAndCores) {
  const Training quarters{
      .steps = 20,
      .replicas = 2,
      .logical_devices = 4,
      .split_images = {1, 1, 2, 2},
      .split_parameters = {{"conv.weight", {4, 1, 1, 1}}, {"head.weight", {1, 4}}}};
  const std::string alone = train(1, quarters);
  for (const int devices : {2, 3, 4, 8}) EXPECT_EQ(train(devices, quarters), alone) << devices;
  {
    const OnOneCore one;
    EXPECT_EQ(train(4, quarters), alone) << "on one core";
  }
  Training rows = quarters;
  rows.split_images = {4, 1, 1, 1};
  EXPECT_EQ(train(2, rows), train(4, rows));
}

TEST_F(SameBits, DependOnTheNumberOfSteps) {
  EXPECT_NE(train(2, {.steps = 3}), train(2, {.steps = 4}));
}

const Training kHalves{.steps = 10,
                       .passes = 2,
                       .replicas = 8,
                       .logical_devices = 2,
                       .split_images = {1, 1, 2, 1},
                       .split_parameters = {{"conv.weight", {2, 1, 1, 1}}}};

struct SameBitsOfJobs : OnStrategies {
  using OnStrategies::OnStrategies;
};
SUITE_ON_EACH_WORKER(SameBitsOfJobs, NamedStrategy,
                     testing::Values(NamedStrategy({8, 1}, 2), NamedStrategy({8, 3}, 2)));

TEST_P(SameBitsOfJobsOnEachWorker, WithALayoutOverLogicalDevices) {
  configure({.cpu_devices = 8});
  const std::string alone = train(1, kHalves);
  on_each_worker<SameBitsOfJobs>(GetParam(), [&](const SameBitsOfJobs& test) {
    EXPECT_EQ(train(test.strategy, kHalves), alone);
  });
}

}  // namespace
}  // namespace cohort
