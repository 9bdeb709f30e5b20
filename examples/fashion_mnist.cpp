// Trains a small convolutional network on Fashion-MNIST, on every core of this machine.
//
//     make run                     # about two minutes; ends with `test accuracy: 0.9…`
//     make run ARGS="--epochs 1"
//
// The loop is plain LibTorch. Only the lines with `cohort::` make it run on all devices.
#include <cohort/cohort.h>

#include <cstring>
#include <iostream>
#include <sstream>

#include "fashion_net.h"
#include "progress_bar.h"

namespace data = cohort::data;
namespace nn = torch::nn;
using cohort::ReduceOp;
using torch::Tensor;

int main(int argc, char** argv) {
  const int epochs = argc == 3 && !std::strcmp(argv[1], "--epochs") ? std::atoi(argv[2]) : 5;
  constexpr std::int64_t kGlobalBatch = 256;
  torch::manual_seed(1);

  cohort::Strategy strategy = cohort::MirroredStrategy();  // every GPU; without one, every core
  auto scope = strategy.scope();
  std::cout << cohort::describe_machine() << strategy.num_replicas_in_sync() << " replicas\n";

  cohort::Model<Net> model;
  cohort::Optimizer<torch::optim::Adam> optimizer(model, torch::optim::AdamOptions(2e-3));
  cohort::Scheduler<torch::optim::StepLR> schedule(optimizer, /*step_size=*/2, 0.3);
  cohort::metrics::Mean train_loss("loss");
  cohort::metrics::SparseCategoricalAccuracy accuracy("accuracy");

  auto train_step = [&](const data::Example& batch) {
    optimizer.zero_grad();
    const Tensor losses = nn::functional::cross_entropy(
        model(batch.images), batch.labels,
        nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    cohort::average_loss(losses, kGlobalBatch).backward();
    optimizer.step();  // with gradients that are summed over all replicas
    train_loss.update(losses);
  };
  auto test_step = [&](const data::Example& batch) {
    torch::NoGradGuard no_grad;
    accuracy.update(batch.labels, model(batch.images));
  };

  const auto examples = data::fashion_mnist("train");
  const std::int64_t count = examples.cardinality();
  const auto train = strategy.distribute_dataset(examples.shuffle(count).batch(kGlobalBatch));
  const auto test = strategy.distribute_dataset(data::fashion_mnist("test").batch(1000));
  std::cout << train.explain();

  for (int epoch = 1; epoch <= epochs; ++epoch) {
    ProgressBar bar("epoch " + std::to_string(epoch) + "/" + std::to_string(epochs), count);
    model.train();
    train_loss.reset();
    std::int64_t done = 0;
    for (const auto& batch : train) {
      strategy.run(train_step, batch);
      std::ostringstream text;
      text << "loss " << std::fixed << std::setprecision(4) << train_loss.result().item<float>();
      bar.show(std::min(done += kGlobalBatch, count), text.str());
    }
    schedule.step();  // slower and slower
  }

  model.eval();
  for (const auto& batch : test) strategy.run(test_step, batch);
  std::cout << "fingerprint: " << cohort::fingerprint(model) << '\n';
  std::cout << "test accuracy: " << std::setprecision(4) << accuracy.result().item<float>() << '\n';
}
