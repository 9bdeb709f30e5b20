// The snippets of docs/guide/porting.md, as they stand there.
#include "tests/docs/guide_fixture.h"

#include <set>

namespace porting {

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return output(torch::tanh(hidden(x))); }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(2, 8));
  torch::nn::Linear output = register_module("output", torch::nn::Linear(8, 1));
};
TORCH_MODULE(Net);

struct Batch {
  torch::Tensor x, y;
};

auto sixteen_rows() {
  torch::manual_seed(7);
  const auto x = torch::randn({16, 2});
  return cohort::data::from_tensor_slices(Batch{x, x.sum(1, true).sin()}).batch(8).repeat(10);
}

// clang-format off

std::vector<torch::Tensor> trained_by_plain_libtorch() {
  const auto dataset = sixteen_rows();
  torch::manual_seed(1);

  Net net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  for (const Batch& batch : dataset) {
    optimizer.zero_grad();
    auto loss = torch::mse_loss(net(batch.x), batch.y);                  // the mean over the batch
    loss.backward();
    torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
  }

  return net->parameters();
}

TEST_F(Guide, APortedLoopTrainsTheSameModel) {
  const auto dataset = sixteen_rows();
  torch::manual_seed(1);

  cohort::Strategy strategy = cohort::MirroredStrategy({.replicas = 4});
  auto scope = strategy.scope();                                         // 1
  cohort::Model<Net> model;                                              // 2
  cohort::Optimizer<torch::optim::SGD> optimizer(                        // 3
      model, torch::optim::SGDOptions(0.1),
      cohort::OptimizerOptions{.reduce = cohort::ReduceOp::MEAN});       // 4
  for (const auto& batch : strategy.distribute_dataset(dataset)) {       // 5
    strategy.run([&](const Batch& own) {                                 // 6
      optimizer.zero_grad();
      auto loss = torch::mse_loss(model(own.x), own.y);
      loss.backward();                                                   // 7
      torch::nn::utils::clip_grad_norm_(model.parameters(), 1.0);
      optimizer.step();
    }, batch);
  }

  const auto plain = trained_by_plain_libtorch();
  const auto ported = model.parameters();
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(torch::allclose(plain[i], ported[i], 1e-4, 1e-6)) << i;
  }
}

TEST_F(Guide, InitialValuesReachAllReplicas) {
  cohort::MirroredStrategy strategy;
  auto scope = strategy.scope();
  cohort::Model<Net> model;

  model->apply([](torch::nn::Module& module) {
    if (auto* linear = module.as<torch::nn::Linear>()) torch::nn::init::xavier_uniform_(linear->weight);
  });
  torch::nn::init::zeros_(model->output->bias);
  {
    torch::NoGradGuard no_grad;
    for (auto& parameter : model.parameters()) parameter.mul_(0.5);
  }

  const auto weights = strategy.run([&] { return model->hidden->weight.detach().clone(); });
  const auto each = strategy.local_results(weights);
  EXPECT_TRUE(each[0].equal(each[1]));
  EXPECT_TRUE(each[0].equal(model->hidden->weight));
}

TEST_F(Guide, UpdatesInsideOfRun) {
  cohort::MirroredStrategy strategy;
  auto scope = strategy.scope();
  cohort::Model<Net> model, target;
  const auto before = target->hidden->weight.detach().clone();
  const auto online = model->hidden->weight.detach().clone();
  torch::nn::init::constant_(model->output->weight, 3);
  strategy.run([&] {

  model.update([](const std::string& name, torch::Tensor parameter) {
    if (name == "output.weight") parameter.clamp_(-1, 1);
  });
  target.update([](const std::string&, torch::Tensor own, const torch::Tensor& online) {
    own.lerp_(online, 0.01);                                   // a target network follows the model
  }, model);

  });
  EXPECT_TRUE(model->output->weight.eq(1).all().item<bool>());
  EXPECT_TRUE(target->hidden->weight.equal(before.lerp(online, 0.01)));
}

TEST_F(Guide, GradientsThatTheProgramMakesItself) {
  cohort::MirroredStrategy strategy;
  auto scope = strategy.scope();
  cohort::Model<Net> model;
  cohort::Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.1));
  const auto bias = model->output->bias.detach().clone();
  auto slopes = strategy.run([&] {
    const auto x = torch::randn({4, 2}), y = torch::randn({4, 1});

  model->zero_grad();                                          // or optimizer.zero_grad()
  auto loss = torch::mse_loss(model(x), y);
  auto gradients = torch::autograd::grad({loss}, model.parameters());
  for (std::size_t i = 0; i < gradients.size(); ++i) model.parameters()[i].mutable_grad() = gradients[i];
  optimizer.step();

    return gradients.back();
  });
  const auto slope = strategy.reduce(cohort::ReduceOp::SUM, slopes);
  EXPECT_TRUE(torch::allclose(model->output->bias, bias - 0.1 * slope));
}

TEST_F(Guide, AGanWithTwoOptimizers) {
  cohort::MirroredStrategy strategy;
  auto scope = strategy.scope();
  cohort::Model<torch::nn::Linear> generator(2, 2), discriminator(2, 1);
  cohort::Optimizer<torch::optim::SGD> generator_optimizer(generator, torch::optim::SGDOptions(0.1));
  cohort::Optimizer<torch::optim::SGD> discriminator_optimizer(discriminator,
                                                               torch::optim::SGDOptions(0.1));
  const auto loss_of = [](const torch::Tensor& score, double wanted) {
    return (score - wanted).square().mean();
  };
  const auto before = generator->weight.detach().clone();
  for (int i = 0; i < 3; ++i) strategy.run([&] {
    const auto real = torch::randn({4, 2}), noise = torch::randn({4, 2});

    discriminator_optimizer.zero_grad();
    loss_of(discriminator(real), 1).backward();
    loss_of(discriminator(generator(noise).detach()), 0).backward();
    discriminator_optimizer.step();

    generator_optimizer.zero_grad();
    loss_of(discriminator(generator(noise)), 1).backward();     // reaches the discriminator too
    generator_optimizer.step();
  });
  EXPECT_FALSE(generator->weight.equal(before));
}

TEST_F(Guide, LearningRatesAndEvaluation) {
  cohort::MirroredStrategy strategy;
  auto scope = strategy.scope();
  cohort::Model<Net> model;
  const auto x = torch::randn({4, 2});

  cohort::Optimizer<torch::optim::SGD> optimizer(model, 0.1, {{"output", 0.02}});
  optimizer.set_lr(0.01);                                      // of all parameters
  optimizer.set_lr(0.002, "output");                           // of that group

  model.eval();
  torch::NoGradGuard no_grad;
  auto prediction = model(x);

  std::multiset<double> rates;
  for (const auto& group : optimizer.copy(0).param_groups()) rates.insert(group.options().get_lr());
  EXPECT_THAT(rates, testing::ElementsAre(0.002, 0.01));
  EXPECT_EQ(prediction.sizes(), (torch::IntArrayRef{4, 1}));
}

// clang-format on

}  // namespace porting
