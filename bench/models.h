#pragma once

#include <torch/torch.h>

/// The models of the benchmarks, each with a batch of one replica. tools/bench_peers_*
/// have the same ones in Python: change all.
namespace bench {

namespace nn = torch::nn;
using torch::Tensor;

struct Batch {
  Tensor inputs, targets;
};

struct MlpImpl : nn::Module {
  static constexpr const char* kName = "mlp";
  static Batch batch() { return {torch::randn({64, 784}), torch::randint(10, {64})}; }

  Tensor forward(const Tensor& x) { return c(torch::relu(b(torch::relu(a(x))))); }

  nn::Linear a = register_module("a", nn::Linear(784, 512));
  nn::Linear b = register_module("b", nn::Linear(512, 512));
  nn::Linear c = register_module("c", nn::Linear(512, 10));
};

struct CnnImpl : nn::Module {
  static constexpr const char* kName = "cnn";
  static Batch batch() { return {torch::randn({32, 1, 28, 28}), torch::randint(10, {32})}; }

  Tensor forward(const Tensor& x) {
    const Tensor features = torch::max_pool2d(torch::relu(conv2(torch::relu(conv1(x)))), 2);
    return fc2(torch::relu(fc1(features.flatten(1))));
  }

  nn::Conv2d conv1 = register_module("conv1", nn::Conv2d(1, 32, 3));
  nn::Conv2d conv2 = register_module("conv2", nn::Conv2d(32, 64, 3));
  nn::Linear fc1 = register_module("fc1", nn::Linear(64 * 12 * 12, 128));
  nn::Linear fc2 = register_module("fc2", nn::Linear(128, 10));
};

/// A transformer that predicts the next token at each position.
struct LanguageModelImpl : nn::Module {
  static constexpr const char* kName = "lm";
  static constexpr int kTokens = 1000, kWidth = 128, kLength = 64;
  static Batch batch() {
    return {torch::randint(kTokens, {8, kLength}), torch::randint(kTokens, {8 * kLength})};
  }

  Tensor forward(const Tensor& tokens) {
    const Tensor x = (embedding(tokens) + positions).transpose(0, 1);
    return head(encoder(x, mask)).transpose(0, 1).flatten(0, 1);
  }

  static nn::TransformerEncoderLayer layer() {
    return nn::TransformerEncoderLayer(
        nn::TransformerEncoderLayerOptions(kWidth, 4).dim_feedforward(4 * kWidth).dropout(0));
  }

  nn::Embedding embedding = register_module("embedding", nn::Embedding(kTokens, kWidth));
  Tensor positions = register_parameter("positions", torch::zeros({kLength, kWidth}));
  nn::TransformerEncoder encoder =
      register_module("encoder", nn::TransformerEncoder(nn::TransformerEncoderOptions(layer(), 2)));
  nn::Linear head = register_module("head", nn::Linear(kWidth, kTokens));
  Tensor mask = nn::TransformerImpl::generate_square_subsequent_mask(kLength);
};

TORCH_MODULE(Mlp);
TORCH_MODULE(Cnn);
TORCH_MODULE(LanguageModel);

inline torch::optim::SGDOptions sgd() { return torch::optim::SGDOptions(0.01).momentum(0.9); }

/// The loop that a user of LibTorch alone writes, on the batches of so many replicas together.
template <class M>
class PlainTraining {
 public:
  explicit PlainTraining(int replicas = 1) : batch_(M::Impl::batch()) {
    for (int i = 1; i < replicas; ++i) {
      const Batch more = M::Impl::batch();
      batch_ = {torch::cat({batch_.inputs, more.inputs}),
                torch::cat({batch_.targets, more.targets})};
    }
  }

  void step() {
    for (Tensor& parameter : parameters_) parameter.mutable_grad().reset();  // as Cohort does
    nn::functional::cross_entropy(module_(batch_.inputs), batch_.targets).backward();
    optimizer_.step();
  }
  const M& module() const { return module_; }
  std::int64_t batch_size() const { return batch_.inputs.size(0); }

 private:
  M module_;
  std::vector<Tensor> parameters_ = module_->parameters();
  torch::optim::SGD optimizer_{parameters_, sgd()};
  Batch batch_;
};

}  // namespace bench
