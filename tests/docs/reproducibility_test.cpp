// The snippets of docs/guide/reproducibility.md, as they stand there.
#include "tests/docs/guide_fixture.h"

using guide::Net;

// clang-format off

TEST_F(Guide, SameBits) {
  auto train = [](std::vector<cohort::Device> devices) {
    torch::manual_seed(1);                                                        // first weights
    cohort::set_seed(1);                                                          // inside of run
    cohort::MirroredStrategy strategy({.devices = devices, .replicas = 4});
    auto scope = strategy.scope();
    cohort::Model<Net> model;
    cohort::Optimizer<torch::optim::Adam> optimizer(model, torch::optim::AdamOptions(0.01));
    for (int step = 0; step < 50; ++step) {
      strategy.run([&] {
        optimizer.zero_grad();
        auto x = torch::rand({16, 1});                                            // its own numbers
        cohort::average_loss((model(x) - x.sin()).square().flatten()).backward();
        optimizer.step();
      });
    }
    return cohort::fingerprint(model);
  };
  assert(train({"cpu:0"}) == train({"cpu:0", "cpu:1"}));
}

TEST_F(Guide, DriftAlarm) {
  cohort::MirroredStrategy strategy;
  auto scope = strategy.scope();
  cohort::Model<Net> model;

  cohort::Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.1),
                                                 {.check_drift_every = 100});

  EXPECT_EQ(optimizer.copies(), 2);
}
