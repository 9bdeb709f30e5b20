// The program of README.md, as it stands there.
#include <gmock/gmock.h>

#define main readme_program  // NOLINT: the program's own
// clang-format off
#include <cohort/cohort.h>

#include <iostream>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return out(torch::tanh(hidden(x))); }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(1, 64));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(64, 1));
};
TORCH_MODULE(Net);

int main() {
  cohort::Strategy strategy = cohort::MirroredStrategy();  // every GPU; without one, every core
  auto scope = strategy.scope();

  cohort::Model<Net> model;  // a copy on each device, kept identical
  cohort::Optimizer<torch::optim::Adam> optimizer(model, torch::optim::AdamOptions(0.01));
  cohort::metrics::Mean loss("loss");

  auto train_step = [&] {  // on every replica, all at the same time
    optimizer.zero_grad();
    auto x = torch::rand({128, 1}) * 6;
    auto losses = (model(x) - torch::sin(x)).square().flatten();
    cohort::average_loss(losses).backward();
    optimizer.step();  // with gradients summed over all replicas
    loss.update(losses);
  };

  for (int step = 1; step <= 1000; ++step) {
    strategy.run(train_step);
    if (step % 200 != 0) continue;
    std::cout << "step " << step << ": loss " << loss.result().item<float>() << '\n';
    loss.reset();
  }
  std::cout << cohort::fingerprint(model) << '\n';  // the same bits give the same sixteen digits
  return 0;
}
// clang-format on
#undef main

TEST(Readme, TheProgramLearns) {
  cohort::configure({.cpu_devices = 2});
  testing::internal::CaptureStdout();
  EXPECT_EQ(readme_program(), 0);
  const std::string output = testing::internal::GetCapturedStdout();
  cohort::configure({});

  const auto last = output.rfind("loss ");
  ASSERT_NE(last, std::string::npos) << output;
  EXPECT_LT(std::stof(output.substr(last + 5)), 0.05) << output;
}
