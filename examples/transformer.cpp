// Trains a small transformer to sort digits. Each of two replicas is spread over two logical
// devices: they share the heads of attention, the hidden units and the table of symbols.
//
//     make run EXAMPLE=transformer                     # 15 s; ends with `test accuracy: 0.9…`
//     make run EXAMPLE=transformer ARGS="--epochs 1"
//
// The model is plain LibTorch. What lies where, `tensor_parallel` says by the names of its layers.
#include <cohort/cohort.h>

#include <cmath>
#include <cstring>
#include <iomanip>
#include <iostream>

namespace data = cohort::data;
namespace nn = torch::nn;
namespace spmd = cohort::spmd;
using torch::Tensor;

constexpr std::int64_t kSymbols = 10, kLength = 10, kWidth = 64, kHeads = 4;

struct AttentionImpl : nn::Module {
  Tensor forward(const Tensor& x) {  // [batch, length, width]
    // [heads, batch, length, features]: what is split comes first, as matmul joins the dimensions
    // before the last two.
    const auto heads = [&](nn::Linear& layer) {
      return layer(x).view({x.size(0), kLength, kHeads, -1}).permute({2, 0, 1, 3});
    };
    const Tensor scores = heads(query).matmul(heads(key).transpose(2, 3));
    const Tensor weights = (scores / std::sqrt(kWidth / kHeads)).softmax(-1);
    return out(weights.matmul(heads(value)).permute({1, 2, 0, 3}).flatten(2));
  }
  nn::Linear query = register_module("query", nn::Linear(kWidth, kWidth));
  nn::Linear key = register_module("key", nn::Linear(kWidth, kWidth));
  nn::Linear value = register_module("value", nn::Linear(kWidth, kWidth));
  nn::Linear out = register_module("out", nn::Linear(kWidth, kWidth));
};
TORCH_MODULE(Attention);

struct BlockImpl : nn::Module {
  Tensor forward(Tensor x) {
    x = x + attention(norm1(x));
    return x + down(torch::gelu(up(norm2(x))));
  }
  nn::LayerNorm norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::LayerNorm norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  Attention attention = register_module("attention", Attention());
  nn::Linear up = register_module("up", nn::Linear(kWidth, 4 * kWidth));
  nn::Linear down = register_module("down", nn::Linear(4 * kWidth, kWidth));
};
TORCH_MODULE(Block);

struct TransformerImpl : nn::Module {
  Tensor forward(const Tensor& symbols) {
    const Tensor x = token(symbols) + position(torch::arange(kLength));
    return head(second(first(spmd::full(x))));  // all devices see all of x
  }
  nn::Embedding token = register_module("token", nn::Embedding(kSymbols, kWidth));
  nn::Embedding position = register_module("position", nn::Embedding(kLength, kWidth));
  Block first = register_module("first", Block()), second = register_module("second", Block());
  nn::Linear head = register_module("head", nn::Linear(kWidth, kSymbols));
};
TORCH_MODULE(Transformer);

/// Rows of digits, and the same digits in order.
auto digits_to_sort(std::int64_t count) {
  const Tensor digits = torch::randint(kSymbols, {count, kLength});
  return data::from_tensor_slices(std::pair(digits, std::get<0>(digits.sort(1))));
}

int main(int argc, char** argv) {
  const int epochs = argc == 3 && !std::strcmp(argv[1], "--epochs") ? std::atoi(argv[2]) : 3;
  constexpr std::int64_t kGlobalBatch = 64, kExamples = 6400;
  torch::manual_seed(1);

  cohort::Strategy strategy = cohort::MirroredStrategy(
      cohort::MirroredStrategy::Options{.replicas = 2, .logical_devices_per_replica = 2});
  auto scope = strategy.scope();

  cohort::Model<Transformer> model(cohort::ModelOptions{
      .split_parameters =
          cohort::tensor_parallel({.columns = {"*.query", "*.key", "*.value", "*.up"},
                                   .rows = {"*.out", "*.down"},
                                   .embedding_rows = {"token"}})});
  for (const auto& entry : model.named_parameters()) {
    std::cout << std::left << std::setw(32) << entry.key();
    if (spmd::is_sharded(entry.value())) {
      std::cout << spmd::layout_of(entry.value()) << '\n';
    } else {
      std::cout << entry.value().sizes() << " whole\n";
    }
  }

  cohort::Optimizer<torch::optim::Adam> optimizer(model, torch::optim::AdamOptions(2e-3));
  cohort::metrics::Mean loss("loss");
  cohort::metrics::SparseCategoricalAccuracy accuracy("accuracy");

  auto train_step = [&](const std::pair<Tensor, Tensor>& batch) {
    const auto& [digits, sorted] = batch;
    optimizer.zero_grad();
    const Tensor scores = model(digits);
    const Tensor losses = nn::functional::cross_entropy(
        scores.transpose(1, 2), sorted,
        nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    cohort::average_loss(losses.mean(1), kGlobalBatch).backward();
    optimizer.step();
    loss.update(losses);
    accuracy.update(sorted, scores);
  };
  auto test_step = [&](const std::pair<Tensor, Tensor>& batch) {
    torch::NoGradGuard no_grad;
    accuracy.update(batch.second, model(batch.first));
  };

  const auto train =
      strategy.distribute_dataset(digits_to_sort(kExamples).shuffle(kExamples).batch(kGlobalBatch));
  const auto test = strategy.distribute_dataset(digits_to_sort(1024).batch(256));

  {
    const auto trace = spmd::trace();
    strategy.run(train_step, *train.begin());
    std::cout << "operations of a step that were gathered: " << trace.gathered() << '\n';
  }
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    loss.reset();
    accuracy.reset();
    for (const auto& batch : train) strategy.run(train_step, batch);
    std::cout << "epoch " << epoch << '/' << epochs << std::fixed << std::setprecision(4)
              << "  loss " << loss.result().item<float>() << "  accuracy "
              << accuracy.result().item<float>() << std::endl;
  }

  accuracy.reset();
  for (const auto& batch : test) strategy.run(test_step, batch);
  std::cout << "test accuracy: " << accuracy.result().item<float>() << '\n';
}
