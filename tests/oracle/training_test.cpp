// Whole trainings: losses of every step, final weights and moving averages. The recipe is at the
// head of tests/data/oracle/scripts/training.py; its words are used here.

#include "cohort/optim/losses.h"
#include "cohort/optim/optimizer.h"
#include "tests/oracle/oracle.h"
#include "tests/oracle/strategies.h"

namespace cohort::oracle::training_cases {
namespace {

ORACLE_THEME("training");
[[maybe_unused]] const bool kTolerance = oracle_theme().set_tolerance({.absolute = 1e-5});

/// Weight tensor number t.
Tensor formula(int t, std::vector<std::int64_t> shape) {
  std::int64_t size = 1;
  for (const std::int64_t side : shape) size *= side;
  return (0.5 * torch::sin(1 + torch::arange(size, at::kDouble) + 10 * t)).view(shape);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels) {
  namespace F = torch::nn::functional;
  return F::cross_entropy(logits, labels, F::CrossEntropyFuncOptions().reduction(torch::kNone));
}

/// The three models. `forward` gives one loss for each example.
struct RecipeImpl : torch::nn::Module {
  RecipeImpl(const std::string& model, at::ScalarType dtype) : model(model) {
    if (model == "linear") {
      add("W", formula(0, {4, 1}));
      add("b", torch::zeros({1}));
    } else if (model == "mlp") {
      add("W1", formula(0, {4, 8}));
      add("b1", torch::zeros({8}));
      add("W2", formula(1, {8, 3}));
      add("b2", torch::zeros({3}));
    } else {
      add("kernel", formula(0, {3, 3, 1, 4}));
      add("scale", torch::ones({4}));
      add("offset", torch::zeros({4}));
      add("W", formula(1, {4, 3}));
      add("b", torch::zeros({3}));
      register_buffer("moving_mean", torch::zeros({4}));
      register_buffer("moving_variance", torch::ones({4}));
    }
    to(dtype);
  }

  Tensor forward(const Tensor& x, const Tensor& y) {
    if (model == "linear") return (x.matmul(w("W")).squeeze(1) + w("b") - y).square();
    if (model == "mlp") {
      const Tensor hidden = torch::relu(x.matmul(w("W1")) + w("b1"));
      return cross_entropy(hidden.matmul(w("W2")) + w("b2"), y);
    }
    // LibTorch 1.13 takes an empty batch only with a contiguous kernel.
    const Tensor kernel = w("kernel").permute({3, 2, 0, 1}).contiguous();
    const Tensor h = torch::relu(normalized(torch::conv2d(x, kernel)));
    return cross_entropy(h.mean({2, 3}).matmul(w("W")) + w("b"), y);
  }

 private:
  void add(const std::string& name, const Tensor& value) { register_parameter(name, value); }
  Tensor w(const std::string& name) const { return named_parameters()[name]; }

  /// By the replica's own moments, as the recipe has it: those of an empty batch are NaN.
  Tensor normalized(const Tensor& h) {
    const auto wide = [](const Tensor& values) { return values.view({1, -1, 1, 1}); };
    const Tensor mean = h.mean({0, 2, 3}), variance = h.var({0, 2, 3}, /*unbiased=*/false);
    move("moving_mean", mean);
    move("moving_variance", variance);
    const Tensor unit = (h - wide(mean)) / wide(torch::sqrt(variance + 1e-3));
    return unit * wide(w("scale")) + wide(w("offset"));
  }
  void move(const std::string& name, const Tensor& value) {
    const at::NoGradGuard no_grad;
    named_buffers()[name].mul_(0.9).add_(value, 0.1);
  }

  const std::string model;
};
TORCH_MODULE(Recipe);

/// All rows of the data.
std::pair<Tensor, Tensor> rows(const std::string& model, std::int64_t count, at::ScalarType dtype) {
  const Tensor i = torch::arange(count, at::kDouble), side = torch::arange(6, at::kDouble);
  const Tensor x =
      model == "conv"
          ? torch::sin(0.3 * i.view({-1, 1, 1, 1}) + 0.5 * side.view({-1, 1}) + 0.9 * side)
          : torch::sin(0.7 * i.unsqueeze(1) + 1.3 * torch::arange(4, at::kDouble));
  if (model == "linear") return {x.to(dtype), torch::cos(0.5 * i).to(dtype)};
  return {x.to(dtype), torch::arange(count).remainder(3)};
}

/// A batch as the replicas get it: full ones are cut evenly, a partial one fills from the front.
std::vector<std::pair<Tensor, Tensor>> shares(const Tensor& x, const Tensor& y, int replicas,
                                              std::int64_t full) {
  const std::int64_t share = (full + replicas - 1) / replicas;
  std::vector<std::pair<Tensor, Tensor>> all;
  for (int r = 0; r < replicas; ++r) {
    all.emplace_back(x.slice(0, r * share, (r + 1) * share),
                     y.slice(0, r * share, (r + 1) * share));
  }
  return all;
}

Json checksum(const Tensor& value) {
  const Tensor flat = value.detach().to(at::kDouble).reshape(-1);
  return {{"sum", encode_tensor(flat.sum())["value"]},
          {"sumsq", encode_tensor(flat.square().sum())["value"]},
          {"first5", encode_tensor(flat.slice(0, 0, 5))["value"]},
          {"shape", value.sizes().vec()}};
}

/// Keras adds epsilon before it corrects the bias, LibTorch afterwards.
void correct_epsilon(Optimizer<torch::optim::Adam>& optimizer, int step) {
  for (int c = 0; c < optimizer.copies(); ++c) {
    auto& options = optimizer.copy(c).param_groups()[0].options();
    static_cast<torch::optim::AdamOptions&>(options).eps(1e-7 /
                                                         std::sqrt(1 - std::pow(0.999, step)));
  }
}
void correct_epsilon(Optimizer<torch::optim::SGD>&, int) {}

template <class O, class Options>
Json train(const Json& input, const Options& options) {
  const std::string model_name = input[0];
  const int n = input[2];
  const std::int64_t count = input[3], full = input[4];
  const auto dtype = decode_dtype(input[6].get<std::string>());
  const Strategy strategy = n == 0 ? one_device() : mirrored(n);
  const auto scope = strategy.scope();
  Model<Recipe> model(model_name, dtype);
  Optimizer<O> optimizer(model, options);
  const auto [x, y] = rows(model_name, count, dtype);

  Json losses = Json::array(), sizes = Json::array();
  int steps = 0;
  for (int epoch = 0; epoch < input[5]; ++epoch) {
    for (std::int64_t begin = 0; begin < count; begin += full) {
      const auto each = shares(x.slice(0, begin, begin + full), y.slice(0, begin, begin + full),
                               strategy.num_replicas_in_sync(), full);
      correct_epsilon(optimizer, ++steps);
      const auto loss = strategy.run([&, full = full] {
        const auto& [own_x, own_y] = each[id()];
        optimizer.zero_grad();
        const Tensor part = average_loss(model(own_x, own_y), full);
        part.backward();
        optimizer.step();
        return part;
      });
      losses.push_back(Tensor(strategy.reduce(ReduceOp::SUM, loss)).item().toDouble());
      if (epoch > 0) continue;
      sizes.emplace_back();
      for (const auto& share : each) sizes.back().push_back(share.second.size(0));
    }
  }
  Json weights = Json::object(), moving = Json::object();
  const StateDict state = model.state_dict();
  for (const auto& entry : model.named_parameters()) {
    weights[entry.key()] = checksum(state.at(entry.key()));
  }
  for (const auto& entry : model.named_buffers()) {
    moving[entry.key()] = checksum(state.at(entry.key()));
  }
  return {{"losses", losses},
          {"replica_batch_sizes", sizes},
          {"weights", weights},
          {"moving", moving},
          {"iterations", steps}};
}

/// Keras keeps the learning rate in float32.
TABLE("") {
  using torch::optim::Adam;
  using torch::optim::SGD;
  const std::string optimizer = input[1];
  if (optimizer == "adam") return train<Adam>(input, torch::optim::AdamOptions(0.01f));
  if (optimizer == "sgd") return train<SGD>(input, torch::optim::SGDOptions(0.1f));
  return train<SGD>(
      input, torch::optim::SGDOptions(0.05f).momentum(0.9).nesterov(optimizer == "nesterov"));
}

}  // namespace
}  // namespace cohort::oracle::training_cases
