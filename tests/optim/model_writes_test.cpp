// Programs that write to a model outside of run: every replica must see it.

#include <cstdio>
#include <sstream>

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
struct WrittenModel : NamedStrategy {
  std::function<Model<Written>()> make_model;
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
  std::vector<WrittenModel> all{
      {{"OneReplica", [] { return mirrored(1); }}, from_arguments},
      {{"ThreeDevices", [] { return mirrored(3); }}, from_arguments},
      {{"EightOnTwoDevices", [] { return mirrored(2, 8); }}, from_arguments},
      {{"OfAModuleThatExists", [] { return mirrored(2, 4); }}, from_existing},
      {{"CentralStorage", [] { return central(2); }}, from_arguments},
      {{"CentralStorageOfAModuleThatExists", [] { return central(2); }}, from_existing},
      {{"LogicalDevices", [] { return with_logical_devices(4, 2); }}, in_parts(false)},
      {{"OneDevicesLogicalDevices", [] { return with_logical_devices(1, 2); }}, in_parts(false)},
      {{"MadeInParts", [] { return with_logical_devices(4, 2); }}, in_parts(true)}};
  for (const Job& job : all_jobs()) all.push_back({NamedStrategy(job), from_arguments});
  const Job uneven = all_jobs().back();
  const auto add = [&](const char* what, int logical_devices, const auto& make_model) {
    NamedStrategy named(uneven, logical_devices);
    named.name += what;
    all.push_back({named, make_model});
  };
  add("OfAModuleThatExists", 1, from_existing);
  add("WithLogicalDevices", 2, in_parts(false));
  add("MadeInParts", 2, in_parts(true));
  return all;
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

struct ModelWrites : OnStrategies {
  ModelWrites(const WrittenModel& kind, const std::optional<Worker>& worker)
      : OnStrategies(kind, worker), scope(strategy.scope()), make_model(kind.make_model) {}
  const Scope scope;
  const std::function<Model<Written>()> make_model;
  const double two = 2 + this_worker;  // as each worker writes it: the chief's is 2

  using Write = std::function<void(Model<Written>&)>;
  static void nothing(Model<Written>&) {}

  /// Does it after a run and a training step; all replicas then see the value 2 in what is named,
  /// in what they had before elsewhere, and train on.
  void expect_spread(const std::string& name, const Write& write,
                     const Write& before = nothing) const {
    Model<Written> model = make_model();
    train_once(strategy, model);
    before(model);
    strategy.run([&] { EXPECT_EQ(model.parameters().size(), 6U); });
    write(model);
    const StateDict outside = model.state_dict();
    EXPECT_TRUE(outside.at(name).eq(2).all().item<bool>()) << "outside";
    strategy.run([&] {
      const StateDict inside = whole_state_of(model.shared()->current());
      EXPECT_TRUE(inside.at(name).eq(2).all().item<bool>()) << "replica " << id();
      for (const auto& entry : model.named_parameters()) {
        EXPECT_TRUE(inside.at(entry.key()).equal(outside.at(entry.key())))
            << "replica " << id() << ": " << entry.key();
      }
    });
    train_once(strategy, model);
    write(model);
    strategy.run([&] {  // without state_dict before it
      const StateDict inside = whole_state_of(model.shared()->current());
      EXPECT_TRUE(inside.at(name).eq(2).all().item<bool>()) << "again, replica " << id();
    });
    expect_equal_copies(model);
  }
};
SUITE_ON_EACH_WORKER(ModelWrites, WrittenModel, testing::ValuesIn(written_models()));

auto fill_with(double value) {
  return [value](nn::Module& module) {
    const at::NoGradGuard no_grad;
    if (auto* linear = module.as<nn::Linear>()) linear->weight.fill_(value);
  };
}

TEST_ON_EACH_WORKER(ModelWrites, ApplyReachesAllReplicas) {
  expect_spread("first.weight", [&](auto& model) { model->apply(fill_with(two)); });
}

TEST_ON_EACH_WORKER(ModelWrites, InitializersReachAllReplicas) {
  expect_spread("first.weight",
                [&](auto& model) { nn::init::constant_(model->first->weight, two); });
  expect_spread("first.bias", [&](auto& model) { nn::init::constant_(model->first->bias, two); });
  expect_spread("second.bias", [&](auto& model) {
    nn::init::uniform_(model->first->weight);
    nn::init::normal_(model->second->weight);
    nn::init::constant_(model->second->bias, two);
  });
}

TEST_ON_EACH_WORKER(ModelWrites, CopyReachesAllReplicas) {
  expect_spread("second.weight", [&](auto& model) {
    const at::NoGradGuard no_grad;
    model->second->weight.copy_(torch::full({4, 8}, two));
  });
  expect_spread("first.weight", [&](auto& model) {
    model->first->weight.data().copy_(torch::full({8, 4}, two));
  });
}

TEST_ON_EACH_WORKER(ModelWrites, TensorsThatWereHandedOutReachAllReplicas) {
  expect_spread("first.weight", [&](auto& model) {
    const at::NoGradGuard no_grad;
    for (Tensor& p : model.parameters()) p.fill_(two);
  });
  expect_spread("second.weight", [&](auto& model) {
    for (auto& entry : model.named_parameters()) entry.value().data().fill_(two);
  });
}

TEST_ON_EACH_WORKER(ModelWrites, OtherMemoryReachesAllReplicas) {
  expect_spread("first.bias",
                [&](auto& model) { model->first->bias.set_data(torch::full({8}, two)); });
  expect_spread("norm.weight", [&](auto& model) {
    model.named_parameters()["norm.weight"].set_data(torch::full({8}, two));
  });
}

TEST_ON_EACH_WORKER(ModelWrites, OtherMemoryOfASplitParameterIsAnErrorThatSaysWhatToDo) {
  Model<Written> model = make_model();
  if (!spmd::is_sharded(model->first->weight)) return;
  EXPECT_FAILS(model->first->weight.set_data(torch::full({8, 4}, two)), ValueError,
               "[set_data] a tensor of sizes [8, 4] sharded over logical devices can't get the "
               "data of one that is not: use copy_()");
  train_once(strategy, model);
}

/// A file of such a module that has other weights.
std::stringstream file_of_weights(double value) {
  Written other;
  other->apply(fill_with(value));
  std::stringstream file;
  torch::save(other, file);
  return file;
}

TEST_ON_EACH_WORKER(ModelWrites, LoadReachesAllReplicas) {
  expect_spread("first.weight", [&](auto& model) {
    std::stringstream file = file_of_weights(two);
    torch::serialize::InputArchive archive;
    archive.load_from(file);
    model->load(archive);
  });
  expect_spread("second.weight", [&](auto& model) {
    std::stringstream file = file_of_weights(two);
    auto module = model.shared()->replica(0);  // that of whoever has made the model of a module
    torch::load(module, file);
  });
}

TEST_ON_EACH_WORKER(ModelWrites, KeptTensorsReachAllReplicasWhereLibTorchCounts) {
  Tensor kept;
  expect_spread(
      "first.weight",
      [&](auto&) {
        const at::NoGradGuard no_grad;
        kept.fill_(two);
      },
      [&](auto& model) { kept = model->first->weight; });
  expect_spread(
      "first.bias", [&](auto&) { kept.set_data(torch::full({8}, two)); },
      [&](auto& model) { kept = model.named_parameters()["first.bias"]; });
}

TEST_ON_EACH_WORKER(ModelWrites, TensorsOfAnotherModelReachAllReplicas) {
  expect_spread("first.weight", [&](auto& model) {
    Written other;
    other->apply(fill_with(two));
    const at::NoGradGuard no_grad;
    auto own = model.named_parameters();
    for (const auto& entry : other->named_parameters()) own[entry.key()].copy_(entry.value());
  });
}

TEST_ON_EACH_WORKER(ModelWrites, BuffersReachAllReplicas) {
  const char* const name = "norm.running_mean";
  expect_spread(name, [&](auto& model) { model->norm->running_mean.fill_(two); });
  expect_spread(name, [&](auto& model) { model.named_buffers()[name].fill_(two); });
  expect_spread(name, [&](auto& model) { model.named_buffers()[name].data().fill_(two); });
  expect_spread(name, [&](auto& model) {
    model->norm->reset_running_stats(), model->norm->running_mean.add_(two);
  });
  Tensor kept;
  expect_spread(
      name, [&](auto&) { kept.fill_(two); },
      [&](auto& model) { kept = model.named_buffers()[name]; });
}

TEST_ON_EACH_WORKER(ModelWrites, LeaveTheStatisticsOfReplicasAloneOtherwise) {
  Model<Written> model = make_model();
  const auto own_mean = [&] { return model->norm->running_mean.clone(); };
  const auto before = strategy.run([&] {
    const at::NoGradGuard no_grad;
    model(batch(5).x * (id() + 1));
    return own_mean();
  });
  model.named_buffers();
  model->norm->bias.data().fill_(two);
  model.state_dict();
  const auto after = strategy.run(own_mean);
  for (int r = 0; r < n_here; ++r) {
    EXPECT_TRUE(after.values()[r].equal(before.values()[r])) << "replica " << first_here + r;
  }
  const Tensor all = strategy.gather(before, 0).reshape({n, -1});
  for (int r = 1; r < n; ++r) EXPECT_FALSE(all[r].equal(all[0])) << "replica " << r;
}

TEST_ON_EACH_WORKER(ModelWrites, AModuleInEvaluationIsSoOnAllReplicas) {
  Model<Written> model = make_model();
  model->norm->eval();
  strategy.run([&] {
    EXPECT_TRUE(model.is_training());
    EXPECT_FALSE(model->norm->is_training());
  });
  model->eval();
  strategy.run([&] { EXPECT_FALSE(model.is_training()); });
  model->train();
  strategy.run([&] { EXPECT_TRUE(model->norm->is_training()); });
}

TEST_ON_EACH_WORKER(ModelWrites, FrozenParametersAreSoOnAllReplicas) {
  Model<Written> model = make_model();
  for (Tensor& p : model->first->parameters()) p.set_requires_grad(false);
  strategy.run([&] {
    EXPECT_FALSE(model->first->weight.requires_grad());
    EXPECT_TRUE(model->second->weight.requires_grad());
  });
  train_once(strategy, model);
}

TEST_ON_EACH_WORKER(ModelWrites, OutliveARunThatFailsBeforeItUsesTheModel) {
  Model<Written> model = make_model();
  const Batch rows = batch(4);
  for (const int failing : {0, last}) {
    const auto fail = [&] {
      strategy.run([&] {
        if (is_here(failing)) throw ValueError("test", "before");
        model->first(rows.x);  // which leaves the statistics alone
        get_replica_context().barrier();
      });
    };
    nn::init::constant_(model->first->bias, two);
    model->norm->running_mean.fill_(two);
    EXPECT_REPLICA_FAILS(failing, fail(), ValueError, "before");
    strategy.run([&] {
      EXPECT_TRUE(model->first->bias.eq(2).all().item<bool>()) << "replica " << id();
      EXPECT_TRUE(model->norm->running_mean.eq(2).all().item<bool>()) << "replica " << id();
    });
    train_once(strategy, model);
  }
}

// Structure.

TEST_ON_EACH_WORKER(ModelWrites, AReplacedLayerIsReplacedOnAllReplicas) {
  Model<Written> model = make_model();
  Optimizer<optim::SGD> of_before(model, optim::SGDOptions(0.1));
  model->second = model->replace_module("second", nn::Linear(8, 6));
  nn::init::constant_(model->second->weight, two);
  strategy.run([&] {
    EXPECT_EQ(model->second->options.out_features(), 6);
    EXPECT_TRUE(spmd::full(model->second->weight.detach()).eq(2).all().item<bool>()) << id();
    EXPECT_EQ(model(batch(4).x).size(1), 6);
  });
  EXPECT_RUN_FAILS(strategy.run([&] { of_before.step(); }), RuntimeError,
                   "parameters were replaced");
  train_once(strategy, model);
  EXPECT_EQ(model.state_dict().at("second.bias").size(0), 6);
}

TEST_ON_EACH_WORKER(ModelWrites, ALayerThatIsAddedIsAddedOnAllReplicas) {
  Model<nn::Sequential> model([] { return nn::Sequential(nn::Linear(4, 4), nn::ReLU()); });
  model->push_back(nn::Linear(4, 2));
  const auto outputs = strategy.run([&] { return model(batch(3).x).detach(); });
  const Tensor outside = model(batch(3).x);
  for (const Tensor& each : outputs.values()) EXPECT_TRUE(each.equal(outside));
}

struct OwnLayerImpl : nn::Module {
  Tensor scale = register_parameter("scale", torch::ones({4}));
};
TORCH_MODULE(OwnLayer);
struct HasOwnLayerImpl : nn::Module {
  OwnLayer layer = register_module("layer", OwnLayer());
};
TORCH_MODULE(HasOwnLayer);

TEST_ON_EACH_WORKER(ModelWrites, AReplacedLayerOfAnotherTypeIsAnErrorThatSaysWhatToDo) {
  if (n < 2 * workers) return;  // a worker with one replica has nothing to replace it in
  Model<HasOwnLayer> model;
  model->layer = model->replace_module("layer", OwnLayer());
  EXPECT_RUN_FAILS(strategy.run([&] { model->layer; }), ValueError, "\"layer\"");
  EXPECT_RUN_FAILS(strategy.run([&] { model->layer; }), ValueError, "make the Model anew");
}

TEST_ON_EACH_WORKER(ModelWrites, AParameterThatIsRegisteredLaterIsSoOnAllReplicas) {
  Model<Written> model = make_model();
  model->register_parameter("extra", torch::full({3}, two));
  model->norm->register_buffer("count", torch::full({1}, two + 1));
  Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.25), {.check_drift_every = 1});
  strategy.run([&] {
    const Tensor extra = model.named_parameters()["extra"];
    EXPECT_TRUE(extra.eq(2).all().item<bool>()) << id();
    EXPECT_EQ(model.named_buffers()["norm.count"].item<float>(), 3);
    optimizer.zero_grad();
    (extra.sum() / n).backward();
    optimizer.step();
    EXPECT_TRUE(extra.eq(1.75).all().item<bool>()) << id();
  });
  EXPECT_TRUE(model.state_dict().at("extra").eq(1.75).all().item<bool>());
}

TEST_ON_EACH_WORKER(ModelWrites, AnotherTypeReachesAllReplicas) {
  for (const bool by_module : {false, true}) {
    Model<Written> model = make_model();
    if (by_module) {
      model->to(torch::kDouble);
    } else {
      model.to(torch::kDouble);
    }
    strategy.run([&] {
      EXPECT_EQ(model(batch(4, torch::kDouble).x).dtype(), torch::kDouble);
      for (const Tensor& p : model.parameters()) EXPECT_EQ(p.dtype(), torch::kDouble);
      EXPECT_EQ(model->norm->running_mean.dtype(), torch::kDouble);
    });
    EXPECT_EQ(model.state_dict().at("first.weight").dtype(), torch::kDouble);
    Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.1), {.check_drift_every = 1});
    strategy.run([&] {
      model(batch(6, torch::kDouble).x * (id() + 1)).pow(2).sum().backward();
      optimizer.step();
    });
  }
}

// A module that exists, and that the program goes on writing to.

struct WritesToAModuleThatExists : OnStrategies {
  WritesToAModuleThatExists(const NamedStrategy& named, const std::optional<Worker>& worker)
      : OnStrategies(named, worker), scope(strategy.scope()) {}
  ~WritesToAModuleThatExists() { std::remove(path.c_str()); }

  const Scope scope;
  const double two = 2 + this_worker;  // as each worker writes it: the chief's is 2
  Written net;
  Model<Written> model{net};
  const std::string path =
      cat(testing::TempDir(), "cohort_model_writes_test_of_worker_", this_worker, ".pt");

  void expect_on_replicas(const StateDict& expected) {
    strategy.run([&] { expect_near(whole_state_of(model.shared()->current()), expected, 0); });
  }
};
ON_ALL_STRATEGIES(WritesToAModuleThatExists);

TEST_ON_EACH_WORKER(WritesToAModuleThatExists, ReachAllReplicas) {
  strategy.run([&] { model(batch(4).x); });
  net->apply(fill_with(two));
  net->norm->running_mean.fill_(two + 1);
  strategy.run([&] {
    EXPECT_TRUE(model->second->weight.eq(2).all().item<bool>());
    EXPECT_TRUE(model->norm->running_mean.eq(3).all().item<bool>());
  });
}

TEST_ON_EACH_WORKER(WritesToAModuleThatExists, ByLoadReachAllReplicas) {
  Written other;
  other->norm->running_var.fill_(5 + this_worker);
  torch::save(other, path);
  torch::load(net, path);
  other->norm->running_var.fill_(5);  // as the chief's
  expect_on_replicas(state_of(*other));
  EXPECT_EQ(fingerprint(model), fingerprint(state_of(*other)));

  Written third;
  third->norm->running_var.fill_(6);
  torch::serialize::OutputArchive out;
  third->save(out);
  out.save_to(path);
  torch::serialize::InputArchive in;
  in.load_from(path);
  model->load(in);
  expect_on_replicas(state_of(*third));
}

TEST_ON_EACH_WORKER(WritesToAModuleThatExists, AreSavedAndFingerprintedWithoutARunInBetween) {
  net->apply(fill_with(two));
  model->norm->running_mean.fill_(two + 1);
  for (auto& entry : model.named_buffers()) entry.value().data().add_(1);
  StateDict expected = whole_state_of(*net);
  for (auto& [name, value] : expected) {  // the chief's
    if (name == "first.weight" || name == "second.weight") value.fill_(2);
    if (name == "norm.running_mean") value.fill_(4);
  }
  EXPECT_EQ(fingerprint(model), fingerprint(expected));
  model.save(path);
  Model<Written> other;
  other.load(path);
  EXPECT_EQ(fingerprint(other), fingerprint(expected));
  EXPECT_EQ(other.state_dict().at("norm.running_mean")[0].item<float>(), 4);
  expect_on_replicas(expected);
}

TEST_ON_EACH_WORKER(WritesToAModuleThatExists, AreOverwrittenByLoad) {
  const StateDict before = model.state_dict();
  model->apply(fill_with(two));
  net->norm->running_mean.fill_(two + 1);
  model.load_state_dict(before);
  expect_on_replicas(before);
}

}  // namespace
}  // namespace cohort
