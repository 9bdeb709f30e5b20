// What a long training keeps of the memory that it has used.
#include <unistd.h>

#include <fstream>

#include "tests/optim/training.h"

namespace cohort {
namespace {

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double pages = 0;
  file >> pages >> pages;  // the second number
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

class ResidentMemory : public ManyDevices {};

TEST_F(ResidentMemory, DoesNotGrowWithTheNumberOfTinySteps) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has an allocator of its own";
#endif
  const Strategy strategy = MirroredStrategy({.devices = {"cpu:0", "cpu:1"}, .replicas = 8});
  const auto scope = strategy.scope();
  Model<nn::Linear> model(16, 4);
  Optimizer<optim::Adam> optimizer(model, optim::AdamOptions(0.01));
  const auto train = [&](int steps) {
    for (int step = 0; step < steps; ++step) {
      strategy.run([&] {
        optimizer.zero_grad();
        average_loss(model(torch::randn({8, 16})).square().mean(1)).backward();
        optimizer.step();
      });
    }
    return resident_mib();
  };
  const double early = train(500);
  EXPECT_LT(train(2000) - early, 8) << "MiB; " << early << " MiB before";
}

}  // namespace
}  // namespace cohort
