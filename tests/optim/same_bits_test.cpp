#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/device/configuration.h"
#include "cohort/optim/fingerprint.h"
#include "cohort/optim/losses.h"
#include "cohort/optim/optimizer.h"
#include "cohort/strategies/mirrored_strategy.h"

namespace cohort {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

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

std::vector<Device> first_devices(int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.emplace_back(c10::kCPU, i);
  return devices;
}

/// Trains for some steps and returns the fingerprint.
std::string train(int devices, int steps, int passes) {
  torch::manual_seed(7);
  set_seed(11);
  MirroredStrategy strategy({.devices = first_devices(devices), .replicas = 8});
  auto scope = strategy.scope();
  Model<SmallCnn> model;
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
    for (int pass = 0; pass < passes; ++pass) {
      std::optional<Optimizer<torch::optim::Adam>::NoSync> waiting;
      if (pass + 1 < passes) waiting.emplace(optimizer.core());
      const auto losses = nn::functional::cross_entropy(
          model(x), y, nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
      average_loss(losses, 32).backward();
    }
    optimizer.step();
  };
  for (int i = 0; i < steps; ++i) strategy.run(step, images, labels);
  return fingerprint(model);
}

class SameBits : public testing::Test {
 protected:
  void SetUp() override { configure({.cpu_devices = 8}); }
  void TearDown() override { configure({}); }
};

TEST_F(SameBits, OfACnnWithBatchNormAndDropoutOnAnyNumberOfDevices) {
  const std::string alone = train(1, 200, 1);
  for (const int devices : {2, 3, 4, 8}) EXPECT_EQ(train(devices, 200, 1), alone) << devices;
  EXPECT_EQ(train(2, 200, 1), alone) << "run after run";
}

TEST_F(SameBits, WithGradientAccumulation) {
  const std::string alone = train(1, 200, 2);
  for (const int devices : {2, 3, 4, 8}) EXPECT_EQ(train(devices, 200, 2), alone) << devices;
}

TEST_F(SameBits, DependOnTheNumberOfSteps) { EXPECT_NE(train(2, 3, 1), train(2, 4, 1)); }

}  // namespace
}  // namespace cohort
