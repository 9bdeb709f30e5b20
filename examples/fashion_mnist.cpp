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

#include "progress_bar.h"

namespace data = cohort::data;
namespace nn = torch::nn;
using cohort::ReduceOp;
using torch::Tensor;

struct NetImpl : nn::Module {
  Tensor forward(Tensor x) {
    x = torch::max_pool2d(torch::relu(norm1(conv1(x))), 2);
    x = torch::max_pool2d(torch::relu(norm2(conv2(x))), 2);
    return fc2(drop(torch::relu(fc1(x.flatten(1)))));
  }
  nn::Conv2d conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)));
  nn::BatchNorm2d norm1 = register_module("norm1", nn::BatchNorm2d(16));
  nn::Conv2d conv2 = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)));
  nn::BatchNorm2d norm2 = register_module("norm2", nn::BatchNorm2d(32));
  nn::Linear fc1 = register_module("fc1", nn::Linear(32 * 7 * 7, 128));
  nn::Dropout drop = register_module("drop", nn::Dropout(0.3));
  nn::Linear fc2 = register_module("fc2", nn::Linear(128, 10));
};
TORCH_MODULE(Net);

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
        model(batch.image), batch.label,
        nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    cohort::average_loss(losses, kGlobalBatch).backward();
    optimizer.step();  // with gradients that are summed over all replicas
    train_loss.update(losses);
  };
  auto test_step = [&](const data::Example& batch) {
    torch::NoGradGuard no_grad;
    accuracy.update(batch.label, model(batch.image));
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
