// Several workers in one process: for tests, tutorials and what-if questions, before there is a
// cluster. The strategy, the order of addition and the bits are those of real machines; only the
// exchange of bytes is memory.
#include <cohort/cohort.h>

#include <iostream>

#include "net.h"

int main() {
  for (int workers : {1, 2, 3, 4}) {
    // Each worker is a thread with devices of its own; an exception of one ends all, and comes out
    // here.
    cohort::run_workers(workers, [&](const cohort::Worker& worker) {
      cohort::MultiWorkerMirroredStrategy strategy(
          {.worker = worker, .replicas = 8});  // 8 in the whole job
      auto scope = strategy.scope();

      cohort::Model<Net> model;  // starts as the chief's
      cohort::Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.1));
      auto batches =
          strategy.distribute_dataset(cohort::data::fashion_mnist("train").take(2048).batch(256));
      for (const auto& batch : batches) {
        strategy.run(
            [&](const cohort::data::Example& example) {
              optimizer.zero_grad();
              cohort::average_loss(
                  torch::nn::functional::cross_entropy(
                      model(example.images), example.labels,
                      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone)),
                  256)
                  .backward();
              optimizer.step();
            },
            batch);
      }
      const auto fingerprint = cohort::fingerprint(model);  // a collective: every worker calls it
      if (worker.index() == 0)
        std::cout << workers << " workers: " << fingerprint << '\n';  // four equal lines
    });
  }

  // A slow network: 100 MB/s and 0.2 ms to every other worker.
  cohort::run_workers(2, [](const cohort::Worker&) { /* … */ },
                      {.bytes_per_second = 100e6, .latency = std::chrono::microseconds(200)});
}
