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

struct Batch {
  Tensor images, labels;
};

Batch load(const std::string& set) {
  const std::string folder = "/usr/share/datasets/fashion-mnist/";
  const Tensor images = cohort::io::read_idx(folder + set + "-images-idx3-ubyte.gz");
  const Tensor labels = cohort::io::read_idx(folder + set + "-labels-idx1-ubyte.gz");
  return {images.unsqueeze(1).to(torch::kFloat).div(255), labels.to(torch::kLong)};
}

/// The rows of a global batch that are a replica's: an even cut, in replica order.
cohort::PerReplica<Batch> cut(const cohort::Strategy& strategy, const Batch& all) {
  const auto images = all.images.tensor_split(strategy.num_replicas_in_sync());
  const auto labels = all.labels.tensor_split(strategy.num_replicas_in_sync());
  return strategy.distribute_values_from_function([&](const cohort::ValueContext& value) {
    return Batch{images[value.replica_id_in_sync_group], labels[value.replica_id_in_sync_group]};
  });
}

int main(int argc, char** argv) {
  const int epochs = argc == 3 && !std::strcmp(argv[1], "--epochs") ? std::atoi(argv[2]) : 5;
  constexpr std::int64_t kGlobalBatch = 256;
  torch::manual_seed(1);

  cohort::Strategy strategy = cohort::MirroredStrategy();  // every GPU; without one, every core
  auto scope = strategy.scope();
  std::cout << cohort::describe_machine() << strategy.num_replicas_in_sync() << " replicas\n";

  cohort::Model<Net> model;
  cohort::Optimizer<torch::optim::Adam> optimizer(model, torch::optim::AdamOptions(2e-3));
  cohort::metrics::Mean train_loss("loss");
  cohort::metrics::SparseCategoricalAccuracy accuracy("accuracy");

  auto train_step = [&](const Batch& batch) {
    optimizer.zero_grad();
    const Tensor losses = nn::functional::cross_entropy(
        model(batch.images), batch.labels,
        nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    cohort::average_loss(losses, kGlobalBatch).backward();
    optimizer.step();  // with gradients that are summed over all replicas
    train_loss.update(losses);
  };
  auto test_step = [&](const Batch& batch) {
    torch::NoGradGuard no_grad;
    accuracy.update(batch.labels, model(batch.images));
  };

  const Batch train = load("train"), test = load("t10k");
  const std::int64_t examples = train.images.size(0);
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    ProgressBar bar("epoch " + std::to_string(epoch) + "/" + std::to_string(epochs), examples);
    model.train();
    train_loss.reset();
    const Tensor order = torch::randperm(examples);
    for (std::int64_t done = 0; done < examples; done += kGlobalBatch) {
      const Tensor rows = order.slice(0, done, std::min(done + kGlobalBatch, examples));
      strategy.run(train_step, cut(strategy, {train.images.index_select(0, rows),
                                              train.labels.index_select(0, rows)}));
      std::ostringstream text;
      text << "loss " << std::fixed << std::setprecision(4) << train_loss.result().item<float>();
      bar.show(done + rows.size(0), text.str());
    }
  }

  model.eval();
  for (std::int64_t row = 0; row < test.images.size(0); row += 1000) {
    strategy.run(test_step, cut(strategy, {test.images.slice(0, row, row + 1000),
                                           test.labels.slice(0, row, row + 1000)}));
  }
  std::cout << "fingerprint: " << cohort::fingerprint(model) << '\n';
  std::cout << "test accuracy: " << std::setprecision(4) << accuracy.result().item<float>() << '\n';
}
