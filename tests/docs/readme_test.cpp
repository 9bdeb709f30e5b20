// The program of README.md, as it stands there.
#include <gmock/gmock.h>

#define main readme_program  // NOLINT: the program's own
// clang-format off
#include <cohort/cohort.h>

#include <iostream>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return output(torch::tanh(hidden(x))); }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(1, 64));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(64, 1));
};
TORCH_MODULE(Net);

int main() {
  torch::manual_seed(1);  // the first weights
  cohort::set_seed(1);    // random numbers inside of run
  // Four replicas, on every GPU; without one, on every core.
  cohort::Strategy strategy = cohort::MirroredStrategy({.replicas = 4});
  auto scope = strategy.scope();

  cohort::Model<Net> model;  // a copy on each device, kept identical
  cohort::Optimizer<torch::optim::Adam> optimizer(model, torch::optim::AdamOptions(0.01));
  cohort::metrics::Mean loss("loss");

  auto train_step = [&] {  // on every replica, all at the same time
    optimizer.zero_grad();
    auto x = torch::rand({32, 1}) * 6;
    auto losses = (model(x) - torch::sin(x)).square().flatten();
    cohort::average_loss(losses).backward();  // .grad is then the sum over all replicas
    optimizer.step();
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

namespace {

std::string output_on(int cores) {
  cohort::configure({.cpu_devices = cores});
  testing::internal::CaptureStdout();
  EXPECT_EQ(readme_program(), 0);
  cohort::configure({});
  return testing::internal::GetCapturedStdout();
}

}  // namespace

TEST(Readme, TheProgramLearns) {
  const std::string output = output_on(2);
  const auto last = output.rfind("loss ");
  ASSERT_NE(last, std::string::npos) << output;
  EXPECT_LT(std::stof(output.substr(last + 5)), 0.05) << output;
}

TEST(Readme, TheProgramPrintsTheSameOnAnyNumberOfCores) {
  const std::string output = output_on(1);
  EXPECT_EQ(output_on(1), output);
  EXPECT_EQ(output_on(3), output);
}
