// Models whose large parameters are made in parts: the same model as one that is split afterwards.

#include <gmock/gmock.h>

#include "cohort/optim/same_bits.h"
#include "tests/optim/training.h"

namespace cohort {
namespace {

/// A module of a user, with a large parameter of its own.
struct ScaleImpl : nn::Module, ReplaceableParameters {
  Tensor forward(const Tensor& x) { return x.matmul(scale); }
  void replace_parameter(const std::string&, const Tensor& value) override { scale = value; }
  Tensor scale = register_parameter("scale", torch::randn({64, 1100}));
};
TORCH_MODULE(Scale);

/// Layers of about 70 Ki elements, and small ones.
struct WideImpl : nn::Module {
  Tensor forward(const Tensor& symbols) {
    const Tensor x = norm(down(torch::tanh(up(spmd::full(token(symbols))))));
    const Tensor wide = spmd::full(scale(x)) / 8;
    const Tensor pixels = wide.narrow(1, 0, 128).reshape({-1, 128, 1, 1}).expand({-1, -1, 3, 3});
    return rest(wide.narrow(1, 128, 300)).mean(1) + spmd::full(conv(pixels)).mean({1, 2, 3});
  }
  nn::Embedding token = register_module("token", nn::Embedding(1100, 64));
  nn::Linear up = register_module("up", nn::Linear(64, 1100));
  nn::Linear down = register_module("down", nn::Linear(1100, 64));
  nn::BatchNorm1d norm = register_module("norm", nn::BatchNorm1d(64));
  Scale scale = register_module("scale", Scale());
  nn::Conv2d conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(128, 64, 3)));
  nn::Linear rest = register_module("rest", nn::Linear(300, 300));  // not in the table
};
TORCH_MODULE(Wide);

/// The layers over k devices, along the dimension in which they are made and along others.
SplitTable table_for(int k) {
  return {{"token.weight", {1, k}}, {"up.weight", {k, 1}},   {"up.bias", {k}},
          {"down.weight", {1, k}},  {"scale.scale", {k, 1}}, {"conv.weight", {k, 1, 1, 1}},
          {"no.weight", {k}, true}};
}

/// Layers of LibTorch that are clones of one that was made before.
struct ClonesImpl : nn::Module {
  nn::TransformerEncoder encoder = register_module(
      "encoder", nn::TransformerEncoder(nn::TransformerEncoderOptions(
                     nn::TransformerEncoderLayerOptions(160, 4).dim_feedforward(512), 2)));
};

Model<Wide> make_wide(int logical_devices, bool in_parts) {
  seed_thread(4);
  return Model<Wide>(
      ModelOptions{.split_parameters = table_for(logical_devices), .make_in_parts = in_parts});
}

/// Where the tensors lie, which of them are trained, and their values.
void expect_same_tensors(nn::Module& got, nn::Module& expected, const std::string& what) {
  const auto parameters = got.named_parameters();
  for (const auto& entry : expected.named_parameters()) {
    const Tensor& mine = parameters[entry.key()];
    EXPECT_EQ(mine.requires_grad(), entry.value().requires_grad()) << what << entry.key();
    EXPECT_TRUE(mine.is_leaf()) << what << entry.key();
    ASSERT_EQ(spmd::is_sharded(mine), spmd::is_sharded(entry.value())) << what << entry.key();
    if (spmd::is_sharded(mine)) {
      EXPECT_EQ(spmd::layout_of(mine), spmd::layout_of(entry.value())) << what << entry.key();
    }
    EXPECT_TRUE(same_bits(spmd::full(mine.detach()), spmd::full(entry.value().detach())))
        << what << entry.key();
  }
}

Strategy two_replicas(int devices, int logical_devices) {
  return MirroredStrategy(
      MirroredStrategy::Options{.devices = first_devices(devices),
                                .replicas = 2,
                                .logical_devices_per_replica = logical_devices});
}

std::vector<NamedStrategy> strategies_of_logical_devices() {
  return {
      {"TwoCopies", [] { return two_replicas(4, 2); }},
      {"OneCopy", [] { return two_replicas(1, 2); }},
      {"OneReplica", [] { return OneDeviceStrategy("cpu:0", {.logical_devices_per_replica = 3}); }},
      NamedStrategy({8, 3}, 2),
  };
}

struct ModelsInParts : OnStrategies {
  ModelsInParts(const NamedStrategy& named, const std::optional<Worker>& worker)
      : OnStrategies(named, worker),
        scope(strategy.scope()),
        devices(strategy.extended().logical_devices_per_replica()) {}
  const Scope scope;
  const int devices;
};
SUITE_ON_EACH_WORKER(ModelsInParts, NamedStrategy,
                     testing::ValuesIn(strategies_of_logical_devices()));

TEST_ON_EACH_WORKER(ModelsInParts, AreTheSame) {
  const auto whole = make_wide(devices, false);
  const Tensor next = torch::rand({4});
  const auto parts = make_wide(devices, true);
  EXPECT_TRUE(same_bits(torch::rand({4}), next));
  for (int r = 0; r < n_here; ++r) {
    expect_same_tensors(*parts.shared()->replica(r), *whole.shared()->replica(r),
                        cat("local replica ", r, ": "));
  }
}

TEST_ON_EACH_WORKER(ModelsInParts, TrainAsThoseThatAreSplitAfterwards) {
  const auto train = [&](bool in_parts) {
    auto model = make_wide(devices, in_parts);
    Optimizer<optim::Adam> optimizer(model, optim::AdamOptions(0.01));
    for (int step = 0; step < 3; ++step) {
      strategy.run([&] {
        optimizer.zero_grad();
        model(torch::arange(8).mul(7 + id()).add(step)).square().mean().backward();
        optimizer.step();
      });
    }
    expect_equal_copies(model);
    return model.state_dict();
  };
  expect_near(train(true), train(false), 0);
}

using ModelInParts = ManyDevices;

TEST_F(ModelInParts, GivesTheSameLayersOfLibTorch) {
  const Strategy strategy = two_replicas(4, 2);
  const auto scope = strategy.scope();
  const auto make = [](bool in_parts) {
    seed_thread(4);
    return Model<ClonesImpl>(ModelOptions{
        .split_parameters = tensor_parallel(
            {.columns = {"*.linear1"}, .rows = {"*.linear2"}, .attention = {"*.self_attn"}}),
        .make_in_parts = in_parts});
  };
  const auto parts = make(true), whole = make(false);
  for (int r = 0; r < 2; ++r) {
    expect_same_tensors(*parts.shared()->replica(r), *whole.shared()->replica(r), "");
  }
}

TEST_F(ModelInParts, ReplicasOfADeviceShareTheirParts) {
  for (const int devices : {1, 4}) {
    const Strategy strategy = two_replicas(devices, 2);
    const auto scope = strategy.scope();
    const auto model = make_wide(2, true);
    for (const char* name : {"up.weight", "rest.weight"}) {
      const auto part = [&](int r) {
        const Tensor own = model.shared()->replica(r)->named_parameters()[name];
        return spmd::is_sharded(own) ? spmd::to_local(own, 1) : own.detach();
      };
      EXPECT_EQ(part(0).is_alias_of(part(1)), devices == 1) << name;
    }
  }
}

TEST_F(ModelInParts, KeepsWhatTheFactoryHasSet) {
  const Strategy strategy = two_replicas(4, 2);
  const auto scope = strategy.scope();
  const auto make = [](bool in_parts) {
    seed_thread(4);
    return Model<Wide>(
        [] {
          Wide module;
          module->to(torch::kDouble);
          module->up->weight.set_requires_grad(false);
          module->rest->weight.set_requires_grad(false);
          module->eval();
          return module;
        },
        ModelOptions{.split_parameters = table_for(2), .make_in_parts = in_parts});
  };
  const auto parts = make(true), whole = make(false);
  for (int r = 0; r < 2; ++r) {
    const auto& module = parts.shared()->replica(r);
    expect_same_tensors(*module, *whole.shared()->replica(r), cat("replica ", r, ": "));
    EXPECT_FALSE(module->is_training());
    EXPECT_FALSE(module->named_parameters()["up.weight"].requires_grad());
    EXPECT_EQ(module->named_parameters()["up.weight"].dtype(), torch::kDouble);
  }
}

TEST_F(ModelInParts, KeepsWholeConvolutionsInChannelsLast) {
  const Strategy strategy = two_replicas(4, 2);
  const auto scope = strategy.scope();
  const Model<Wide> model(ModelOptions{
      .split_parameters = {{"up.weight", {2, 1}}}, .make_in_parts = true, .channels_last = true});
  for (int r = 0; r < 2; ++r) {
    const Tensor weight = model.shared()->replica(r)->named_parameters()["conv.weight"];
    EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast)) << r;
  }
}

// What can't be made in parts.

struct MaskedImpl : nn::Module {
  explicit MaskedImpl(bool whole) {
    std::optional<spmd::MakeInParts> guard;
    if (whole) guard.emplace(nullptr);
    mask = register_buffer("mask", torch::ones({300, 300}).tril());
  }
  Tensor mask;
  nn::Linear layer = register_module("layer", nn::Linear(300, 300));
};
TORCH_MODULE(Masked);

TEST_F(ModelInParts, KeepsLargeBuffersWholeThatAreMadeSo) {
  const Strategy strategy = two_replicas(4, 2);
  const auto scope = strategy.scope();
  const ModelOptions options{.split_parameters = {{"layer.weight", {2, 1}}}, .make_in_parts = true};
  const Model<Masked> model(options, true);
  EXPECT_EQ(model.state_dict().at("mask").sum().item<double>(), 300 * 301 / 2);
  EXPECT_FAILS(
      Model<Masked>(options, false), ValueError,
      "the buffer mask, [300, 300] split {2, 1} over devices {0, 1}, was made in parts, but "
      "a buffer must be whole");
}

TEST_F(ModelInParts, NeedsPartsAndAModuleThatIsYetToBeMade) {
  const ModelOptions options{.split_parameters = table_for(2), .make_in_parts = true};
  {
    const Strategy strategy = two_replicas(2, 1);
    const auto scope = strategy.scope();
    EXPECT_FAILS(Model<Wide>{options}, ValueError, "needs several logical devices, got 1");
  }
  const Strategy strategy = two_replicas(4, 2);
  const auto scope = strategy.scope();
  EXPECT_FAILS(Model<Wide>(ModelOptions{.make_in_parts = true}), ValueError,
               "and .split_parameters, got 0");
  EXPECT_FAILS(Model<Wide>(Wide(), options), ValueError, "too late for a module that exists");
}

TEST_F(ModelInParts, NeedsParametersThatCanBeReplaced) {
  struct RecurrentImpl : nn::Module {
    nn::Linear layer = register_module("layer", nn::Linear(4, 4));
    nn::LSTM recurrent = register_module("recurrent", nn::LSTM(256, 128));
  };
  const Strategy strategy = two_replicas(4, 2);
  const auto scope = strategy.scope();
  const ModelOptions options{.split_parameters = {{"layer.weight", {2, 1}}}, .make_in_parts = true};
  EXPECT_FAILS(Model<RecurrentImpl>{options}, ValueError,
               "keeps its parameter weight_ih_l0 in a member that can't be replaced");
}

}  // namespace
}  // namespace cohort
