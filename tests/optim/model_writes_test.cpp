// Programs that write to a model outside of run: every replica must see it.

#include <cstdio>

#include "tests/optim/training.h"

namespace cohort {
namespace {

struct WrittenImpl : nn::Module {
  Tensor forward(const Tensor& x) { return spmd::full(second(norm(spmd::full(first(x))))); }
  nn::Linear first = register_module("first", nn::Linear(4, 8));
  nn::BatchNorm1d norm = register_module("norm", nn::BatchNorm1d(8));
  nn::Linear second = register_module("second", nn::Linear(8, 4));
};
TORCH_MODULE(Written);

/// A strategy, and how a model is made in its scope.
struct WrittenModel {
  std::string name;
  std::function<Strategy()> strategy;
  std::function<Model<Written>()> make;
};

Strategy with_logical_devices(int devices, int replicas) {
  return MirroredStrategy(MirroredStrategy::Options{
      .devices = first_devices(devices), .replicas = replicas, .logical_devices_per_replica = 2});
}

std::vector<WrittenModel> written_models() {
  const auto from_arguments = [] { return Model<Written>(); };
  const auto from_existing = [] { return Model<Written>(Written()); };
  const auto in_parts = [](bool make_in_parts) {
    return [make_in_parts] {
      return Model<Written>(
          ModelOptions{.split_parameters = {{"first.weight", {2, 1}}, {"second.weight", {1, 2}}},
                       .make_in_parts = make_in_parts});
    };
  };
  return {
      {"one replica", [] { return mirrored(1); }, from_arguments},
      {"three devices", [] { return mirrored(3); }, from_arguments},
      {"eight on two devices", [] { return mirrored(2, 8); }, from_arguments},
      {"an existing module", [] { return mirrored(2, 4); }, from_existing},
      {"central storage", [] { return central(2); }, from_arguments},
      {"central storage, existing", [] { return central(2); }, from_existing},
      {"logical devices", [] { return with_logical_devices(4, 2); }, in_parts(false)},
      {"one device's logical devices", [] { return with_logical_devices(1, 2); }, in_parts(false)},
      {"made in parts", [] { return with_logical_devices(4, 2); }, in_parts(true)}};
}

/// A replica's tensors, as ordinary ones.
StateDict whole_state_of(nn::Module& module) {
  StateDict state = state_of(module);
  for (auto& [name, tensor] : state) tensor = spmd::full(tensor).clone();
  return state;
}

void train_once(const Strategy& strategy, Model<Written>& model) {
  Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.1), {.check_drift_every = 1});
  const Batch whole = batch(24);
  strategy.run([&] {
    optimizer.zero_grad();
    model(own_share(whole).x).pow(2).sum().backward();
    optimizer.step();
  });
}

class ModelWrites : public ManyDevices {
 protected:
  using Write = std::function<void(Model<Written>&)>;
  static void nothing(Model<Written>&) {}

  /// Does it in each kind of model, after a run and a training step; all replicas then see the
  /// value 2 in what is named, in what they had before elsewhere, and train on.
  static void expect_spread(const std::string& name, const Write& write,
                            const Write& before = nothing) {
    for (const WrittenModel& kind : written_models()) {
      const Strategy strategy = kind.strategy();
      const auto scope = strategy.scope();
      Model<Written> model = kind.make();
      train_once(strategy, model);
      before(model);
      strategy.run([&] { EXPECT_EQ(model.parameters().size(), 6U); });
      write(model);
      const StateDict outside = model.state_dict();
      EXPECT_TRUE(outside.at(name).eq(2).all().item<bool>()) << kind.name << ": outside";
      strategy.run([&] {
        const StateDict inside = whole_state_of(model.shared()->current());
        EXPECT_TRUE(inside.at(name).eq(2).all().item<bool>()) << kind.name << ", replica " << id();
        for (const auto& entry : model.named_parameters()) {
          EXPECT_TRUE(inside.at(entry.key()).equal(outside.at(entry.key())))
              << kind.name << ", replica " << id() << ": " << entry.key();
        }
      });
      train_once(strategy, model);
    }
  }
};

void fill_with_two(nn::Module& module) {
  const at::NoGradGuard no_grad;
  if (auto* linear = module.as<nn::Linear>()) linear->weight.fill_(2);
}

TEST_F(ModelWrites, ApplyReachesAllReplicas) {
  expect_spread("first.weight", [](auto& model) { model->apply(fill_with_two); });
}

TEST_F(ModelWrites, InitializersReachAllReplicas) {
  expect_spread("first.weight", [](auto& model) { nn::init::constant_(model->first->weight, 2); });
  expect_spread("first.bias", [](auto& model) { nn::init::constant_(model->first->bias, 2); });
  expect_spread("second.bias", [](auto& model) {
    nn::init::uniform_(model->first->weight);
    nn::init::normal_(model->second->weight);
    nn::init::constant_(model->second->bias, 2);
  });
}

TEST_F(ModelWrites, CopyReachesAllReplicas) {
  expect_spread("second.weight", [](auto& model) {
    const at::NoGradGuard no_grad;
    model->second->weight.copy_(torch::full({4, 8}, 2.));
  });
  expect_spread("first.weight", [](auto& model) {
    model->first->weight.data().copy_(torch::full({8, 4}, 2.));
  });
}

TEST_F(ModelWrites, TensorsThatWereHandedOutReachAllReplicas) {
  expect_spread("first.weight", [](auto& model) {
    const at::NoGradGuard no_grad;
    for (Tensor& p : model.parameters()) p.fill_(2);
  });
  expect_spread("second.weight", [](auto& model) {
    for (auto& entry : model.named_parameters()) entry.value().data().fill_(2);
  });
}

TEST_F(ModelWrites, OtherMemoryReachesAllReplicas) {
  expect_spread("first.bias",
                [](auto& model) { model->first->bias.set_data(torch::full({8}, 2.)); });
  expect_spread("norm.weight", [](auto& model) {
    model.named_parameters()["norm.weight"].set_data(torch::full({8}, 2.));
  });
}

TEST_F(ModelWrites, KeptTensorsReachAllReplicasWhereLibTorchCounts) {
  Tensor kept;
  expect_spread(
      "first.weight",
      [&](auto&) {
        const at::NoGradGuard no_grad;
        kept.fill_(2);
      },
      [&](auto& model) { kept = model->first->weight; });
  expect_spread(
      "first.bias", [&](auto&) { kept.set_data(torch::full({8}, 2.)); },
      [&](auto& model) { kept = model.named_parameters()["first.bias"]; });
}

TEST_F(ModelWrites, TensorsOfAnotherModelReachAllReplicas) {
  expect_spread("first.weight", [](auto& model) {
    Written other;
    other->apply(fill_with_two);
    const at::NoGradGuard no_grad;
    auto own = model.named_parameters();
    for (const auto& entry : other->named_parameters()) own[entry.key()].copy_(entry.value());
  });
}

TEST_F(ModelWrites, BuffersReachAllReplicas) {
  const char* const name = "norm.running_mean";
  expect_spread(name, [](auto& model) { model->norm->running_mean.fill_(2); });
  expect_spread(name, [&](auto& model) { model.named_buffers()[name].fill_(2); });
  expect_spread(name, [&](auto& model) { model.named_buffers()[name].data().fill_(2); });
  expect_spread(name, [&](auto& model) {
    model->norm->reset_running_stats(), model->norm->running_mean.add_(2);
  });
  Tensor kept;
  expect_spread(
      name, [&](auto&) { kept.fill_(2); },
      [&](auto& model) { kept = model.named_buffers()[name]; });
}

TEST_F(ModelWrites, LeaveTheStatisticsOfReplicasAloneOtherwise) {
  const Strategy strategy = mirrored(3);
  const auto scope = strategy.scope();
  Model<Written> model;
  const auto own_mean = [&] { return model->norm->running_mean.clone(); };
  const auto before = strategy.run([&] {
    const at::NoGradGuard no_grad;
    model(batch(5).x * (id() + 1));
    return own_mean();
  });
  model.named_buffers();
  model->norm->bias.data().fill_(2);
  model.state_dict();
  const auto after = strategy.run(own_mean);
  for (int r = 0; r < 3; ++r) EXPECT_TRUE(after.values()[r].equal(before.values()[r])) << r;
  EXPECT_FALSE(before.values()[0].equal(before.values()[1]));
}

TEST_F(ModelWrites, AModuleInEvaluationIsSoOnAllReplicas) {
  for (const WrittenModel& kind : written_models()) {
    const Strategy strategy = kind.strategy();
    const auto scope = strategy.scope();
    Model<Written> model = kind.make();
    model->norm->eval();
    strategy.run([&] {
      EXPECT_TRUE(model.is_training());
      EXPECT_FALSE(model->norm->is_training()) << kind.name;
    });
    model->eval();
    strategy.run([&] { EXPECT_FALSE(model.is_training()) << kind.name; });
    model->train();
    strategy.run([&] { EXPECT_TRUE(model->norm->is_training()) << kind.name; });
  }
}

TEST_F(ModelWrites, FrozenParametersAreSoOnAllReplicas) {
  for (const WrittenModel& kind : written_models()) {
    const Strategy strategy = kind.strategy();
    const auto scope = strategy.scope();
    Model<Written> model = kind.make();
    for (Tensor& p : model->first->parameters()) p.set_requires_grad(false);
    strategy.run([&] {
      EXPECT_FALSE(model->first->weight.requires_grad()) << kind.name;
      EXPECT_TRUE(model->second->weight.requires_grad()) << kind.name;
    });
    train_once(strategy, model);
  }
}

// Structure.

TEST_F(ModelWrites, AReplacedLayerIsReplacedOnAllReplicas) {
  for (const WrittenModel& kind : written_models()) {
    const Strategy strategy = kind.strategy();
    const auto scope = strategy.scope();
    Model<Written> model = kind.make();
    Optimizer<optim::SGD> of_before(model, optim::SGDOptions(0.1));
    model->second = model->replace_module("second", nn::Linear(8, 6));
    nn::init::constant_(model->second->weight, 2);
    strategy.run([&] {
      EXPECT_EQ(model->second->options.out_features(), 6) << kind.name;
      EXPECT_TRUE(spmd::full(model->second->weight.detach()).eq(2).all().item<bool>()) << kind.name;
      EXPECT_EQ(model(batch(4).x).size(1), 6) << kind.name;
    });
    EXPECT_FAILS(strategy.run([&] { of_before.step(); }), RuntimeError, "parameters were replaced");
    train_once(strategy, model);
    EXPECT_EQ(model.state_dict().at("second.bias").size(0), 6);
  }
}

TEST_F(ModelWrites, ALayerThatIsAddedIsAddedOnAllReplicas) {
  const Strategy strategy = mirrored(2, 4);
  const auto scope = strategy.scope();
  Model<nn::Sequential> model([] { return nn::Sequential(nn::Linear(4, 4), nn::ReLU()); });
  model->push_back(nn::Linear(4, 2));
  const auto outputs = strategy.run([&] { return model(batch(3).x).detach(); });
  for (const Tensor& each : outputs.values()) EXPECT_TRUE(each.equal(model(batch(3).x)));
}

struct OwnLayerImpl : nn::Module {
  Tensor scale = register_parameter("scale", torch::ones({4}));
};
TORCH_MODULE(OwnLayer);
struct HasOwnLayerImpl : nn::Module {
  OwnLayer layer = register_module("layer", OwnLayer());
};
TORCH_MODULE(HasOwnLayer);

TEST_F(ModelWrites, AReplacedLayerOfAnotherTypeIsAnErrorThatSaysWhatToDo) {
  const Strategy strategy = mirrored(2);
  const auto scope = strategy.scope();
  Model<HasOwnLayer> model;
  model->layer = model->replace_module("layer", OwnLayer());
  EXPECT_FAILS(strategy.run([&] { model->layer; }), ValueError, "\"layer\"");
  EXPECT_FAILS(strategy.run([&] { model->layer; }), ValueError, "make the Model anew");
}

TEST_F(ModelWrites, AParameterThatIsRegisteredLaterIsSoOnAllReplicas) {
  for (const WrittenModel& kind : written_models()) {
    const Strategy strategy = kind.strategy();
    const auto scope = strategy.scope();
    Model<Written> model = kind.make();
    model->register_parameter("extra", torch::full({3}, 2.));
    model->norm->register_buffer("count", torch::full({1}, 3.));
    Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.25), {.check_drift_every = 1});
    const int n = strategy.num_replicas_in_sync();
    strategy.run([&] {
      const Tensor extra = model.named_parameters()["extra"];
      ASSERT_TRUE(extra.eq(2).all().item<bool>()) << kind.name;
      EXPECT_EQ(model.named_buffers()["norm.count"].item<float>(), 3);
      optimizer.zero_grad();
      (extra.sum() / n).backward();
      optimizer.step();
      EXPECT_TRUE(extra.eq(1.75).all().item<bool>()) << kind.name;
    });
    EXPECT_TRUE(model.state_dict().at("extra").eq(1.75).all().item<bool>()) << kind.name;
  }
}

TEST_F(ModelWrites, AnotherTypeReachesAllReplicas) {
  for (const WrittenModel& kind : written_models()) {
    for (const bool by_module : {false, true}) {
      const Strategy strategy = kind.strategy();
      const auto scope = strategy.scope();
      Model<Written> model = kind.make();
      if (by_module) {
        model->to(torch::kDouble);
      } else {
        model.to(torch::kDouble);
      }
      strategy.run([&] {
        EXPECT_EQ(model(batch(4, torch::kDouble).x).dtype(), torch::kDouble) << kind.name;
        for (const Tensor& p : model.parameters()) EXPECT_EQ(p.dtype(), torch::kDouble);
        EXPECT_EQ(model->norm->running_mean.dtype(), torch::kDouble) << kind.name;
      });
      EXPECT_EQ(model.state_dict().at("first.weight").dtype(), torch::kDouble) << kind.name;
      Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.1), {.check_drift_every = 1});
      strategy.run([&] {
        model(batch(6, torch::kDouble).x * (id() + 1)).pow(2).sum().backward();
        optimizer.step();
      });
    }
  }
}

// A module that exists, and that the program goes on writing to.

class WritesToAModuleThatExists : public ModelWrites {
 protected:
  const Strategy strategy_ = mirrored(2, 4);
  const Scope scope_ = strategy_.scope();
  Written net_;
  Model<Written> model_{net_};
  const std::string path_ = testing::TempDir() + "cohort_model_writes_test.pt";
  ~WritesToAModuleThatExists() override { std::remove(path_.c_str()); }

  void expect_on_replicas(const StateDict& expected) {
    strategy_.run([&] { expect_near(whole_state_of(model_.shared()->current()), expected, 0); });
  }
};

TEST_F(WritesToAModuleThatExists, ReachAllReplicas) {
  strategy_.run([&] { model_(batch(4).x); });
  net_->apply(fill_with_two);
  net_->norm->running_mean.fill_(3);
  strategy_.run([&] {
    EXPECT_TRUE(model_->second->weight.eq(2).all().item<bool>());
    EXPECT_TRUE(model_->norm->running_mean.eq(3).all().item<bool>());
  });
}

TEST_F(WritesToAModuleThatExists, ByLoadReachAllReplicas) {
  Written other;
  other->norm->running_var.fill_(5);
  torch::save(other, path_);
  torch::load(net_, path_);
  expect_on_replicas(state_of(*other));
  EXPECT_EQ(fingerprint(model_), fingerprint(state_of(*other)));

  Written third;
  third->norm->running_var.fill_(6);
  torch::serialize::OutputArchive out;
  third->save(out);
  out.save_to(path_);
  torch::serialize::InputArchive in;
  in.load_from(path_);
  model_->load(in);
  expect_on_replicas(state_of(*third));
}

TEST_F(WritesToAModuleThatExists, AreSavedAndFingerprintedWithoutARunInBetween) {
  net_->apply(fill_with_two);
  model_->norm->running_mean.fill_(3);
  for (auto& entry : model_.named_buffers()) entry.value().data().add_(1);
  const StateDict expected = state_of(*net_);
  EXPECT_EQ(fingerprint(model_), fingerprint(expected));
  model_.save(path_);
  Model<Written> other;
  other.load(path_);
  EXPECT_EQ(fingerprint(other), fingerprint(expected));
  EXPECT_EQ(other.state_dict().at("norm.running_mean")[0].item<float>(), 4);
  expect_on_replicas(expected);
}

TEST_F(WritesToAModuleThatExists, AreOverwrittenByLoad) {
  const StateDict before = model_.state_dict();
  model_->apply(fill_with_two);
  net_->norm->running_mean.fill_(3);
  model_.load_state_dict(before);
  expect_on_replicas(before);
}

}  // namespace
}  // namespace cohort
