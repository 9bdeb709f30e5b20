// The snippets of docs/guide/multi_worker.md, as they stand there.
#include "tests/docs/guide_fixture.h"

namespace multi_worker {

using guide::Net;

TEST_F(Guide, TheSameProgramRunsOnEveryWorker) {
  std::ostringstream printed;
  auto* const before = std::cout.rdbuf(printed.rdbuf());
  torch::manual_seed(1);
  // clang-format off

cohort::run_workers(3, [](const cohort::Worker& worker) {
  cohort::MultiWorkerMirroredStrategy strategy({.worker = worker, .replicas = 8});
  auto scope = strategy.scope();

  cohort::Model<Net> model;                                     // starts with the chief's values
  cohort::Optimizer<torch::optim::SGD> optimizer(model, 0.1);
  for (int step = 0; step < 20; ++step) {
    strategy.run([&] {
      optimizer.zero_grad();
      auto x = torch::rand({32, 1}) * 6;
      cohort::average_loss((model(x) - torch::sin(x)).square().flatten()).backward();
      optimizer.step();
    });
  }
  auto print = cohort::fingerprint(model);                      // every worker calls it
  if (worker.is_chief()) std::cout << print << '\n';
});

  // clang-format on
  std::cout.rdbuf(before);
  EXPECT_EQ(printed.str().size(), 17U);
}

}  // namespace multi_worker
