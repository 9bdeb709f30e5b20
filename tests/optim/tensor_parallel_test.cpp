// Layers that are split over logical devices by tensor_parallel(): what it expands to, and that
// they train as whole ones.

#include "cohort/optim/tensor_parallel.h"

#include <gmock/gmock.h>

#include "tests/optim/training.h"

namespace cohort {
namespace {

using testing::ElementsAre;

/// "in.weight [2, 1]", with a question mark where no parameter has to fit.
std::vector<std::string> lines_of(const SplitTable& table) {
  std::vector<std::string> lines;
  for (const auto& [pattern, parts, may_fit_none] : table) {
    lines.push_back(cat(pattern, ' ', at::IntArrayRef(parts), may_fit_none ? "?" : ""));
  }
  return lines;
}

TEST(TensorParallel, SplitsResultsOfColumnsAndInputsOfRows) {
  EXPECT_THAT(lines_of(tensor_parallel({.columns = {"*.up", "gate"}, .rows = {"*.down"}}, 2)),
              ElementsAre("*.up.weight [2, 1]", "*.up.bias [2]?", "gate.weight [2, 1]",
                          "gate.bias [2]?", "*.down.weight [1, 2]"));
}

TEST(TensorParallel, SplitsEmbeddingsBySymbolsOrByFeatures) {
  EXPECT_THAT(lines_of(tensor_parallel(
                  {.embedding_rows = {"token"}, .embedding_columns = {"position"}}, 4)),
              ElementsAre("token.weight [4, 1]", "position.weight [1, 4]"));
}

TEST(TensorParallel, SplitsAttentionOfLibTorch) {
  EXPECT_THAT(
      lines_of(tensor_parallel({.attention = {"*.self_attn"}}, 2)),
      ElementsAre("*.self_attn.in_proj_weight [2, 1]?", "*.self_attn.in_proj_bias [2]?",
                  "*.self_attn.q_proj_weight [2, 1]?", "*.self_attn.k_proj_weight [2, 1]?",
                  "*.self_attn.v_proj_weight [2, 1]?", "*.self_attn.out_proj.weight [1, 2]"));
}

TEST(TensorParallel, TakesTheDevicesOfTheCurrentStrategy) {
  const OneDeviceStrategy strategy("cpu:0", {.logical_devices_per_replica = 3});
  const auto scope = strategy.scope();
  EXPECT_THAT(lines_of(tensor_parallel({.rows = {"out"}})), ElementsAre("out.weight [1, 3]"));
}

TEST(TensorParallel, ThatMakesNoSenseIsAnError) {
  EXPECT_FAILS(tensor_parallel({}, 2), ValueError, "no layer");
  EXPECT_FAILS(tensor_parallel({.rows = {"out"}}, 0), ValueError, "one device at least, got 0");
  EXPECT_FAILS(tensor_parallel({.columns = {"*.up.weight"}}, 2), ValueError,
               "expected the name of a layer, such as \"*.query\", got \"*.up.weight\"");
  EXPECT_FAILS(tensor_parallel({.columns = {""}}, 2), ValueError, "got \"\"");
  EXPECT_FAILS(tensor_parallel({.columns = {"up"}, .rows = {"up"}}, 2), ValueError,
               "\"up\" is there twice");
}

/// The table of symbols is also the layer that scores them.
struct TiedNetImpl : torch::nn::Module {
  torch::nn::Embedding token = register_module("token", torch::nn::Embedding(6, 4));
  torch::nn::Linear head =
      register_module("head", torch::nn::Linear(torch::nn::LinearOptions(4, 6).bias(false)));
  TiedNetImpl() { head->weight = token->weight; }
  torch::Tensor forward(const torch::Tensor& x) { return head(token(x)); }
};
TORCH_MODULE(TiedNet);

Strategy two_replicas_of(int logical_devices) {
  return MirroredStrategy(
      MirroredStrategy::Options{.replicas = 2, .logical_devices_per_replica = logical_devices});
}

TEST(TensorParallel, KeepsWeightsTied) {
  const Strategy strategy = two_replicas_of(2);
  const auto scope = strategy.scope();
  Model<TiedNet> model(
      ModelOptions{.split_parameters = tensor_parallel({.embedding_rows = {"token"}}, 2)});
  strategy.run([&] {
    EXPECT_TRUE(spmd::is_sharded(model->token->weight));
    EXPECT_TRUE(model->head->weight.is_same(model->token->weight));
    model(torch::tensor({1, 5, 2})).sum().backward();
    EXPECT_TRUE(model->token->weight.grad().defined());
  });
}

TEST(TensorParallel, ThatDoesNotFitTheModelIsAnError) {
  const Strategy strategy = two_replicas_of(2);
  const auto scope = strategy.scope();
  const auto make = [](const TensorParallel& layers, int devices = 2) {
    Model<Net> model(ModelOptions{.split_parameters = tensor_parallel(layers, devices)});
  };
  EXPECT_FAILS(make({.columns = {"frist"}}), ValueError,
               "no parameter fits the pattern \"frist.weight\" of .split_parameters: expected one "
               "for some of first.weight, first.bias, second.weight, second.bias");
  EXPECT_FAILS(make({.columns = {"*"}, .rows = {"second"}}), ValueError,
               "\"second.weight\" of .split_parameters fits only parameters that patterns before "
               "it have taken");
  EXPECT_FAILS(make({.columns = {"first"}}, 3), ValueError, "the 2 logical devices of a replica");
}

TEST(TensorParallel, OverOneDeviceLeavesTheModelAsItIs) {
  const Strategy strategy = two_replicas_of(1);
  const auto scope = strategy.scope();
  const Model<Net> model(ModelOptions{.split_parameters = tensor_parallel({.columns = {"first"}})});
  EXPECT_FALSE(spmd::is_sharded(model->first->weight));
}

TEST(TensorParallel, SplitsAModuleThatExistsAndItsClones) {
  const Strategy strategy = two_replicas_of(2);
  const auto scope = strategy.scope();
  const nn::Linear existing(4, 6);
  const Tensor weight = existing->weight.detach().clone();
  const Model<nn::Linear> model(existing, ModelOptions{.split_parameters = {{"weight", {2, 1}}}});
  for (int r = 0; r < 2; ++r) {
    const Tensor own = model.shared()->replica(r)->named_parameters()["weight"].detach();
    EXPECT_TRUE(spmd::is_sharded(own)) << r;
    EXPECT_TRUE(torch::equal(spmd::full(own), weight)) << r;
  }
}

// Training.

/// Embeddings, a layer with four heads, and scores of the symbols. Heads are the first dimension:
/// a product of matrices joins the ones before the last two, and the first of them may be split.
struct TransformerImpl : nn::Module {
  Tensor forward(const Tensor& symbols) {
    const Tensor x = spmd::full(token(symbols) + position(torch::arange(symbols.size(1))));
    const auto heads = [&](nn::Linear& layer) {
      return layer(x).view({x.size(0), x.size(1), 4, -1}).permute({2, 0, 1, 3});
    };
    const Tensor scores = heads(query).matmul(heads(key).transpose(2, 3)) / 2;
    const Tensor seen = scores.softmax(-1).matmul(heads(value)).permute({1, 2, 0, 3});
    const Tensor y = norm(x + out(seen.flatten(2)));
    return head(y + down(torch::gelu(up(y))));
  }
  nn::Embedding token = register_module("token", nn::Embedding(10, 16));
  nn::Embedding position = register_module("position", nn::Embedding(6, 16));
  nn::Linear query = register_module("query", nn::Linear(16, 16));
  nn::Linear key = register_module("key", nn::Linear(nn::LinearOptions(16, 16).bias(false)));
  nn::Linear value = register_module("value", nn::Linear(16, 16));
  nn::Linear out = register_module("out", nn::Linear(16, 16));
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({16})));
  nn::Linear up = register_module("up", nn::Linear(16, 32));
  nn::Linear down = register_module("down", nn::Linear(32, 16));
  nn::Linear head = register_module("head", nn::Linear(16, 10));
};
TORCH_MODULE(Transformer);

const TensorParallel kTransformer{.columns = {"query", "key", "value", "up", "head"},
                                  .rows = {"out", "down"},
                                  .embedding_rows = {"token"},
                                  .embedding_columns = {"position"}};

/// Symbols through LibTorch's own attention, or its own layer.
struct SelfAttentionImpl : nn::Module {
  Tensor forward(const Tensor& symbols) {
    const Tensor x = spmd::full(token(symbols)).transpose(0, 1);
    return std::get<0>(attention(x, x, x)).transpose(0, 1);
  }
  nn::Embedding token = register_module("token", nn::Embedding(10, 16));
  nn::MultiheadAttention attention =
      register_module("attention", nn::MultiheadAttention(nn::MultiheadAttentionOptions(16, 4)));
};
TORCH_MODULE(SelfAttention);

/// Keys and values have another width, so that the projections are matrices of their own.
struct CrossAttentionImpl : nn::Module {
  Tensor forward(const Tensor& symbols) {
    const Tensor x = spmd::full(token(symbols)).transpose(0, 1);
    return std::get<0>(attention(x, x.narrow(2, 0, 12), x.narrow(2, 4, 12))).transpose(0, 1);
  }
  nn::Embedding token = register_module("token", nn::Embedding(10, 16));
  nn::MultiheadAttention attention = register_module(
      "attention", nn::MultiheadAttention(nn::MultiheadAttentionOptions(16, 4).kdim(12).vdim(12)));
};
TORCH_MODULE(CrossAttention);

struct EncoderImpl : nn::Module {
  Tensor forward(const Tensor& symbols) {
    return encoder(spmd::full(token(symbols)).transpose(0, 1)).transpose(0, 1);
  }
  nn::Embedding token = register_module("token", nn::Embedding(10, 16));
  nn::TransformerEncoder encoder = register_module(
      "encoder",
      nn::TransformerEncoder(nn::TransformerEncoderOptions(
          nn::TransformerEncoderLayerOptions(16, 4).dim_feedforward(32).dropout(0.2), 2)));
};
TORCH_MODULE(Encoder);

/// What three steps of Adam give, in strict mode.
struct Trained {
  StateDict first_gradients, parameters;
  Tensor first_result;  // of replica 0
};

template <class M>
Trained train_with(const Strategy& strategy, const TensorParallel& layers) {
  const auto scope = strategy.scope();
  seed_thread(1);
  const auto make = [] {
    M module;
    module->to(torch::kDouble);
    return module;
  };
  Model<M> model(make, ModelOptions{.split_parameters = tensor_parallel(layers)});
  Optimizer<optim::Adam> optimizer(model, optim::AdamOptions(0.01));
  const spmd::Strict strict;
  Trained trained;
  for (int step = 0; step < 3; ++step) {
    const auto results = strategy.run([&] {
      const Tensor symbols = torch::arange(24).mul(7).add(id() + 2 * step).remainder(10);
      optimizer.zero_grad();
      const Tensor result = model(symbols.reshape({4, 6}));
      result.square().mean().backward();
      optimizer.step();
      return spmd::full(result.detach()).unsqueeze(0);
    });
    if (step > 0) continue;
    trained.first_result = strategy.gather(results, 0)[0];
    for (const auto& entry : model.named_parameters()) {
      trained.first_gradients[entry.key()] = spmd::full(entry.value().grad()).clone();
    }
  }
  trained.parameters = model.state_dict();
  return trained;
}

void expect_same_training(const Trained& split, const Trained& whole, const std::string& what) {
  EXPECT_TRUE(torch::allclose(split.first_result, whole.first_result, 1e-10, 1e-12)) << what;
  expect_near(split.first_gradients, whole.first_gradients, 1e-12, what);
  expect_near(split.parameters, whole.parameters, 1e-8, what);
}

template <class M>
void expect_trains_as_whole(const TensorParallel& layers, const std::string& what) {
  const Trained whole = train_with<M>(two_replicas_of(1), layers);
  for (const int devices : {2, 3, 4}) {
    const Trained split = train_with<M>(two_replicas_of(devices), layers);
    expect_same_training(split, whole, what);
    const Trained again = train_with<M>(two_replicas_of(devices), layers);
    expect_near(again.parameters, split.parameters, 0, what);
  }
}

struct TensorParallelJobs : OnStrategies {
  using OnStrategies::OnStrategies;
};
SUITE_ON_EACH_WORKER(TensorParallelJobs, NamedStrategy,
                     testing::Values(NamedStrategy({8, 3}, 2), NamedStrategy({5, 3}, 2)));

TEST_ON_EACH_WORKER(TensorParallelJobs, TrainATransformerAsOneProcessTrainsAWholeOne) {
  const Trained whole = train_with<Transformer>(mirrored(1, n), kTransformer);
  const Trained split = train_with<Transformer>(strategy, kTransformer);
  expect_same_training(split, whole, "transformer");
}

using TensorParallelTraining = ManyDevices;

TEST_F(TensorParallelTraining, OfATransformerIsThatOfAWholeOne) {
  expect_trains_as_whole<Transformer>(kTransformer, "transformer");
}

TEST_F(TensorParallelTraining, OfLibTorchsOwnAttention) {
  expect_trains_as_whole<SelfAttention>({.attention = {"attention"}}, "of itself");
  expect_trains_as_whole<CrossAttention>({.attention = {"attention"}}, "of others");
}

TEST_F(TensorParallelTraining, OfLibTorchsOwnEncoder) {
  expect_trains_as_whole<Encoder>({.columns = {"*.linear1"},
                                   .rows = {"*.linear2"},
                                   .embedding_columns = {"token"},
                                   .attention = {"*.self_attn"}},
                                  "encoder");
}

TEST_F(TensorParallelTraining, KeepsPartsOnDevices) {
  const Strategy strategy = two_replicas_of(2);
  const auto scope = strategy.scope();
  const Model<Transformer> model(ModelOptions{.split_parameters = tensor_parallel(kTransformer)});
  const auto layout_of = [&](const char* name) {
    const Tensor parameter = model.named_parameters()[name];
    return spmd::is_sharded(parameter) ? cat(spmd::layout_of(parameter)) : "whole";
  };
  EXPECT_EQ(layout_of("query.weight"), "[16, 16] split {2, 1} over devices {0, 1}");
  EXPECT_EQ(layout_of("query.bias"), "[16] split {2} over devices {0, 1}");
  EXPECT_EQ(layout_of("out.weight"), "[16, 16] split {1, 2} over devices {0, 1}");
  EXPECT_EQ(layout_of("out.bias"), "whole");
  EXPECT_EQ(layout_of("token.weight"), "[10, 16] split {2, 1} over devices {0, 1}");
  EXPECT_EQ(layout_of("position.weight"), "[6, 16] split {1, 2} over devices {0, 1}");
}

TEST_F(TensorParallelTraining, MovesNothingBetweenColumnsAndRows) {
  const Strategy strategy = two_replicas_of(2);
  const auto scope = strategy.scope();
  const Model<Transformer> model(ModelOptions{
      .split_parameters =
          tensor_parallel({.columns = {"query", "key", "value", "up"}, .rows = {"out", "down"}})});
  const auto trace = spmd::trace();
  strategy.run([&] {
    const Tensor result = model(torch::arange(24).remainder(10).reshape({4, 6}));
    EXPECT_FALSE(spmd::is_sharded(result));
    result.sum().backward();
  });
  const auto products = trace.rows().at("aten::bmm").tasks;
  EXPECT_THAT(products, ElementsAre(testing::Gt(0), products[0]));
  for (const auto& [name, row] : trace.rows()) {
    EXPECT_EQ(row.gathered, 0) << name;
    EXPECT_EQ(row.bytes_moved, 0) << name;
  }
}

}  // namespace
}  // namespace cohort
