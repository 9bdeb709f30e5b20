// Whole trainings on several workers: losses of every step, final weights, what each worker reads.

#include "cohort/input/strategy_input.h"
#include "cohort/optim/losses.h"
#include "cohort/optim/optimizer.h"
#include "tests/oracle/multiworker.h"

namespace cohort::oracle::multiworker_training_cases {
namespace {

ORACLE_THEME("multiworker");

constexpr int kRows = 21, kGlobalBatch = 8, kEpochs = 3;

/// The linear model of the theme `training`; `forward` gives one loss for each row.
struct LinearImpl : torch::nn::Module {
  LinearImpl() {
    const Tensor start = 0.5 * torch::sin(1 + torch::arange(4, at::kDouble));
    w = register_parameter("W", start.view({4, 1}));
    b = register_parameter("b", torch::zeros({1}, at::kDouble));
  }

  Tensor forward(const Tensor& x, const Tensor& y) {
    return (x.matmul(w).squeeze(1) + b - y).square();
  }

  Tensor w, b;
};
TORCH_MODULE(Linear);

std::pair<Tensor, Tensor> rows() {
  const Tensor i = torch::arange(kRows, at::kDouble);
  return {torch::sin(0.7 * i.unsqueeze(1) + 1.3 * torch::arange(4, at::kDouble)),
          torch::cos(0.5 * i)};
}

Json numbers(const Tensor& value) { return encode_tensor(value.reshape(-1))["value"]; }

/// How many rows each replica of this worker has.
Json sizes_of(const Strategy& strategy, const PerReplica<std::pair<Tensor, Tensor>>& batch) {
  Json sizes = Json::array();
  for (const auto& [x, y] : strategy.local_results(batch)) sizes.push_back(y.size(0));
  return sizes;
}

/// The training of one worker.
Json train(const Strategy& strategy, const torch::optim::SGDOptions& options) {
  const auto scope = strategy.scope();
  Model<Linear> model;
  Optimizer<torch::optim::SGD> optimizer(model, options);
  const auto batches =
      strategy.distribute_dataset(data::from_tensor_slices(rows()).batch(kGlobalBatch));

  Json losses = Json::array(), sizes = Json::array();
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (const auto& batch : batches) {
      const auto loss = strategy.run(
          [&](const Tensor& x, const Tensor& y) {
            optimizer.zero_grad();
            const Tensor part = average_loss(model(x, y), kGlobalBatch);
            part.backward();
            optimizer.step();
            return part;
          },
          batch);
      losses.push_back(strategy.reduce("SUM", loss).item<double>());
      if (epoch == 0) sizes.push_back(sizes_of(strategy, batch));
    }
  }
  const StateDict state = model.state_dict();
  return {{"losses", losses},
          {"local_batch_sizes", sizes},
          {"W", numbers(state.at("W"))},
          {"b", numbers(state.at("b"))}};
}

/// TensorFlow's numbers, but for which worker's replicas read the last five rows.
Json with_last_sizes(const std::string& name, const Json& first, const Json& second) {
  Json result = oracle_theme().result_of(name);
  result["worker0"]["result"]["local_batch_sizes"].back() = first;
  result["worker1"]["result"]["local_batch_sizes"].back() = second;
  return result;
}

// Keras keeps the learning rate in float32.

DIFFERS("training/linear_sgd_W2_R1", "11.13: four rows and one",
        with_last_sizes("training/linear_sgd_W2_R1", {4}, {1})) {
  return of_workers(input, [](const Strategy& s) { return train(s, {0.1f}); });
}

DIFFERS("training/linear_momentum_W2_R2", "11.13, 11.23: pieces go to replicas in order",
        with_last_sizes("training/linear_momentum_W2_R2", {2, 2}, {1, 0})) {
  return of_workers(input, [](const Strategy& s) {
    return train(s, torch::optim::SGDOptions(0.05f).momentum(0.9));
  });
}

}  // namespace
}  // namespace cohort::oracle::multiworker_training_cases
