#include "cohort/optim/model.h"

#include <cstdio>
#include <fstream>
#include <sstream>

#include "tests/optim/training.h"

namespace cohort {
namespace {

/// A module with everything that a Model must keep: parameters, moving averages, a counter, and a
/// constant whose mean over three replicas would be rounded.
struct NormedImpl : nn::Module {
  explicit NormedImpl(int channels = 3, double scale = 0.1) {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(channels, 4, 3)));
    norm = register_module("norm", nn::BatchNorm2d(4));
    this->scale = register_buffer("scale", torch::full({1}, scale));
  }
  Tensor forward(const Tensor& x) { return norm(conv(x)) * scale; }
  Tensor features(const Tensor& x) { return conv(x); }
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d norm{nullptr};
  Tensor scale;
};
TORCH_MODULE(Normed);

struct NeedsASizeImpl : nn::Module {
  explicit NeedsASizeImpl(int size) { weight = register_parameter("weight", torch::randn({size})); }
  Tensor forward(const Tensor& x) { return x * weight; }
  Tensor weight;
};
TORCH_MODULE(NeedsASize);

Tensor images(int rows = 2, int channels = 3) {
  return torch::sin(torch::arange(rows * channels * 36, at::kFloat)).view({rows, channels, 6, 6});
}

class Models : public OnStrategies {
 public:
  Models(const NamedStrategy& named, const std::optional<Worker>& worker)
      : OnStrategies(named, worker), scope_(strategy.scope()) {}

 protected:
  Scope scope_;

  /// Of a replica of this worker.
  template <class M>
  static Tensor parameter(const Model<M>& model, int replica, const std::string& name) {
    return model.shared()->replica(replica)->named_parameters()[name];
  }
  template <class M>
  static Tensor buffer(const Model<M>& model, int replica, const std::string& name) {
    return model.shared()->replica(replica)->named_buffers()[name];
  }
  template <class M>
  void expect_equal_replicas(const Model<M>& model) {
    ASSERT_EQ(model.shared()->replicas(), n_here);
    expect_on_every_replica(model, state_of(*model.shared()->replica(0)), 0);
    for (const auto& entry : model.named_parameters()) {
      for (int r = 1; r < n_here; ++r) {
        EXPECT_FALSE(parameter(model, r, entry.key()).is_same(entry.value())) << entry.key();
      }
    }
    expect_equal_copies(model);
  }

  /// Gives each replica statistics of its own.
  void use_in_replicas(const Model<Normed>& model) const {
    strategy.run([&] {
      const at::NoGradGuard no_grad;
      model(images() + id());
    });
  }

  /// The mean of a buffer over all replicas of the job.
  Tensor mean_of(const Model<Normed>& model, const std::string& name) const {
    const auto own = strategy.run([&] { return model.named_buffers()[name].clone(); });
    return strategy.reduce("MEAN", own);
  }
};
ON_ALL_STRATEGIES(Models);

// Making.

TEST_ON_EACH_WORKER(Models, AreMadeFromArgumentsOfTheModule) {
  Model<Normed> model(1, 0.5);
  expect_equal_replicas(model);
  EXPECT_EQ(model->scale.item<float>(), 0.5f);
  expect_equal_replicas(Model<NormedImpl>(2));
  expect_equal_replicas(Model<nn::Linear>(3, 2));
}

TEST_ON_EACH_WORKER(Models, AreMadeByAFactory) {
  expect_equal_replicas(Model<Net>([] { return Net(); }));
  expect_equal_replicas(Model<NetImpl>([] { return std::make_shared<NetImpl>(); }));
  expect_equal_replicas(Model<nn::Sequential>(
      [] { return nn::Sequential(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 3)); }));
}

TEST_ON_EACH_WORKER(Models, AreMadeFromAModuleThatExists) {
  nn::Linear cloneable(4, 2);
  Model<nn::Linear> cloned(cloneable);
  expect_equal_replicas(cloned);
  EXPECT_TRUE(parameter(cloned, 0, "weight").is_same(cloneable->weight));

  Net constructible;
  Model<Net> constructed(constructible);
  expect_equal_replicas(constructed);
  expect_equal_replicas(Model<NetImpl>(std::make_shared<NetImpl>()));

  NeedsASize sized(5);
  expect_equal_replicas(Model<NeedsASize>(sized, [] { return NeedsASize(5); }));
  if (n < 2 * workers) return;  // a worker with one replica has nothing to compare it with
  EXPECT_FAILS(Model<NeedsASize>(sized, [] { return NeedsASize(6); }), ValueError,
               "other parameters");
}

/// Its constructor has defaults, which a copy must not take for what was given.
struct WithDefaultsImpl : nn::Module {
  explicit WithDefaultsImpl(int size = 4, double probability = 0.1) {
    register_module("linear", nn::Linear(size, 2));
    register_module("dropout", nn::Dropout(probability));
  }
};
TORCH_MODULE(WithDefaults);

TEST_ON_EACH_WORKER(Models, FromAModuleAreMadeWithoutArgumentsOnlyIfThatGivesTheSame) {
  expect_equal_replicas(Model<WithDefaults>(WithDefaults()));
  expect_equal_replicas(Model<WithDefaults>(8, 0.5));
  if (n == workers) return;  // each has one replica, and needs no other module
  EXPECT_RUN_FAILS(Model<WithDefaults>(WithDefaults(8)), ValueError, "in_features=8");
  EXPECT_RUN_FAILS(Model<WithDefaults>(WithDefaults(4, 0.5)), ValueError,
                   "got (dropout): torch::nn::Dropout(p=0.1");
}

TEST_ON_EACH_WORKER(Models, FindOutTheTypeOfAModuleThatIsGiven) {
  Model model(nn::Linear(4, 2));
  static_assert(std::same_as<decltype(model), Model<nn::Linear>>);
  expect_equal_replicas(model);
  Model options(Net(), ModelOptions{.channels_last = true});
  static_assert(std::same_as<decltype(options), Model<Net>>);
  Model with_factory(NeedsASize(5), [] { return NeedsASize(5); });
  static_assert(std::same_as<decltype(with_factory), Model<NeedsASize>>);
  expect_equal_replicas(with_factory);
  Model pointer(std::make_shared<NetImpl>());
  static_assert(std::same_as<decltype(pointer), Model<NetImpl>>);
  const Model copy = pointer;
  static_assert(std::same_as<decltype(copy), const Model<NetImpl>>);
  EXPECT_EQ(copy.shared(), pointer.shared());
}

TEST_ON_EACH_WORKER(Models, AreCopiedIntoFunctions) {
  Model<nn::Linear> model(4, 2);
  const std::function<Tensor(Tensor)> forward = [model](const Tensor& x) { return model(x); };
  EXPECT_EQ(forward(batch().x).size(1), 2);
  const Model<nn::Linear> copy(model);
  EXPECT_EQ(copy.shared(), model.shared());
}

TEST_ON_EACH_WORKER(Models, OfOneModuleForAllReplicasAreAnError) {
  const Net net;
  EXPECT_FAILS(Model<NetImpl>(std::shared_ptr<NetImpl>()), ValueError, "empty");
  if (n < 2 * workers) return;  // for a worker with one replica it is none
  EXPECT_FAILS(Model<Net>([&] { return net; }), ValueError, "first.weight");
  EXPECT_FAILS(Model<nn::Sequential>(nn::Linear(4, 2), nn::ReLU()), ValueError,
               "give a factory that makes a new module");
}

TEST_ON_EACH_WORKER(Models, MadeInsideRunAreAnError) {
  if (strategy == default_strategy()) return;  // which has no run of its own
  EXPECT_RUN_FAILS(strategy.run([] { Model<Net>(); }), RuntimeError, "made inside strategy.run()");
  expect_equal_replicas(Model<Net>());
}

TEST(Model, MadeOutsideOfAnyScopeIsAPlainModule) {
  Model<Net> model;
  EXPECT_EQ(model.shared()->replicas(), 1);
  EXPECT_EQ(model(batch().x).sizes(), (std::vector<std::int64_t>{13, 3}));
}

TEST_ON_EACH_WORKER(Models, BeginWithTheSameValuesOnAnyNumberOfReplicas) {
  const auto two_fingerprints = [](const Strategy& on) {
    const auto scope = on.scope();
    seed_thread(4);
    const std::string initial = fingerprint(Model<Normed>());
    return initial + fingerprint(Model<Normed>());  // also what is drawn afterwards
  };
  scope_.exit();
  const std::string expected = two_fingerprints(OneDeviceStrategy("cpu:0"));
  EXPECT_EQ(two_fingerprints(strategy), expected);
}

TEST_ON_EACH_WORKER(Models, BeginWithTheChiefsValues) {
  seed_thread(4 + this_worker);
  const Model<Normed> model;
  Normed existing;
  existing->scale.fill_(this_worker);
  const Model<Normed> of_existing(existing);
  seed_thread(4);
  Normed plain, plain_existing;
  plain_existing->scale.fill_(0);
  expect_on_every_replica(model, state_of(*plain), 0);
  expect_on_every_replica(of_existing, state_of(*plain_existing), 0);
}

// Using.

TEST_ON_EACH_WORKER(Models, GiveEachReplicaItsOwnModule) {
  Model<Normed> model;
  const auto same = strategy.run(
      [&](const Tensor& x) {
        const int local = id() - first_here;
        EXPECT_EQ(&*model->conv, &*dynamic_cast<NormedImpl&>(*model.shared()->replica(local)).conv);
        EXPECT_TRUE(model.parameters()[0].is_same(parameter(model, local, "conv.weight")));
        EXPECT_TRUE(model.named_parameters()["conv.weight"].is_same(model.parameters()[0]));
        return model->features(x).equal(model->conv(x));
      },
      images());
  for (const bool each : same.values()) EXPECT_TRUE(each);
}

TEST_ON_EACH_WORKER(Models, HaveAForwardMethod) {
  Model<Net> model;
  EXPECT_TRUE(model.forward(batch().x).equal(model(batch().x)));
  strategy.run([&] { EXPECT_TRUE(model.forward(batch().x).equal(model(batch().x))); });
}

TEST_ON_EACH_WORKER(Models, ArePrintedAsTheirModule) {
  Model<Net> model;
  std::ostringstream text, expected;
  text << model;
  expected << *model.shared()->replica(0);
  EXPECT_EQ(text.str(), expected.str());
  EXPECT_NE(text.str().find("(first): torch::nn::Linear(in_features=4"), std::string::npos);
}

TEST_ON_EACH_WORKER(Models, AreConvertedOnAllReplicas) {
  Model<Normed> model;
  use_in_replicas(model);
  const auto before = strategy.run([&] { return model->norm->running_mean.to(at::kDouble); });
  model.to(at::kDouble);
  strategy.run([&] { EXPECT_EQ(model(images().to(at::kDouble)).dtype(), at::kDouble); });
  model.eval();
  const auto differ = strategy.run(
      [&](const Tensor& mean) { return !model->norm->running_mean.equal(mean); }, before);
  for (const bool each : differ.values()) EXPECT_TRUE(each) << "replicas keep their own";
  Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.1));
  model.to(at::kFloat);
  EXPECT_RUN_FAILS(strategy.run([&] { optimizer.step(); }), RuntimeError,
                   "parameters were replaced");
  if (strategy == default_strategy()) return;  // which has no run of its own
  EXPECT_RUN_FAILS(strategy.run([&] { model.to(at::kFloat); }), RuntimeError,
                   "inside strategy.run()");
}

TEST_ON_EACH_WORKER(Models, SwitchTheModeOfOneReplicaOrOfAll) {
  Model<Normed> model;
  strategy.run([&] {
    if (id() == last_of_chief) model.eval();
    EXPECT_EQ(model.is_training(), id() != last_of_chief);
  });
  EXPECT_EQ(model.is_training(), last_of_chief > 0 || !is_chief()) << "as the first replica";
  model.eval();
  strategy.run([&] { EXPECT_FALSE(model.is_training()); });
  model.train();
  strategy.run([&] { EXPECT_TRUE(model.is_training()); });
}

TEST_ON_EACH_WORKER(Models, FreezeByPrefixOnAllReplicas) {
  Model<Net> model;
  model.freeze("first");
  strategy.run([&] {
    for (const auto& entry : model.named_parameters()) {
      EXPECT_EQ(entry.value().requires_grad(), entry.key().rfind("first", 0) != 0) << entry.key();
    }
  });
  model.unfreeze();
  strategy.run([&] {
    for (const Tensor& p : model.parameters()) EXPECT_TRUE(p.requires_grad());
  });
  EXPECT_FAILS(model.freeze("third"), ValueError, "third");
  if (strategy == default_strategy()) return;  // which has no run of its own
  EXPECT_RUN_FAILS(strategy.run([&] { model.freeze(); }), RuntimeError, "inside strategy.run()");
}

// Buffers.

TEST_ON_EACH_WORKER(Models, AverageMovingAveragesAndTakeCountersOfReplicaZero) {
  Model<Normed> model;
  strategy.run([&] {
    const at::NoGradGuard no_grad;
    for (int i = 0; i <= id(); ++i) model(images() + id());
  });
  const Tensor mean = mean_of(model, "norm.running_mean");
  const StateDict state = model.state_dict();
  EXPECT_EQ(buffer(model, 0, "norm.running_mean").allclose(mean), n == 1);
  EXPECT_TRUE(state.at("norm.running_mean").allclose(mean));
  EXPECT_EQ(state.at("norm.num_batches_tracked").item<int>(), 1);
  const Tensor count = buffer(model, n_here - 1, "norm.num_batches_tracked");
  EXPECT_EQ(count.item<int>(), first_here + n_here);
  EXPECT_TRUE(state.at("scale").equal(torch::full({1}, 0.1))) << "a constant keeps its bits";
}

TEST_ON_EACH_WORKER(Models, UseAggregatedBuffersOutsideOfReplicasAndLeaveThemAsTheyAre) {
  Model<Normed> model;
  use_in_replicas(model);
  const auto own = strategy.run([&] { return model->norm->running_mean.clone(); });
  Normed plain;
  {
    const at::NoGradGuard no_grad;
    const StateDict state = model.state_dict();
    for (auto& [name, value] : state_of(*plain)) value.copy_(state.at(name));
  }
  model.eval();
  plain->eval();
  const Tensor expected = plain(images());
  EXPECT_TRUE(model(images()).equal(expected));
  scope_.exit();
  EXPECT_TRUE(model(images()).equal(expected)) << "in default context too";
  EXPECT_TRUE(model.forward(images()).equal(expected));
  if (workers == 1) {  // elsewhere another method is no collective
    EXPECT_TRUE(model->forward(images()).equal(expected));
  }
  for (int r = 0; r < n_here; ++r) {
    EXPECT_TRUE(buffer(model, r, "norm.running_mean").equal(own.values()[r])) << r;
  }
}

TEST_ON_EACH_WORKER(Models, WriteToTheBuffersOfAllReplicasWhenTheyTrainOutsideOfThem) {
  Model<Normed> model;
  use_in_replicas(model);
  Normed plain;
  const StateDict before = model.state_dict();
  {
    const at::NoGradGuard no_grad;
    for (auto& entry : plain->named_parameters()) entry.value().copy_(before.at(entry.key()));
    for (auto& entry : plain->named_buffers()) entry.value().copy_(before.at(entry.key()));
    model(images(4));
    plain(images(4));
  }
  expect_on_every_replica(model, state_of(*plain), 1e-6);
  EXPECT_EQ(model.state_dict().at("norm.num_batches_tracked").item<int>(), 2);
}

TEST_ON_EACH_WORKER(Models, WriteToBuffersWhatTheyDoOnTheChiefWhenTheyTrainOutsideOfReplicas) {
  Model<Normed> model;
  Normed plain;
  model.load_state_dict(state_of(*plain));
  {
    const at::NoGradGuard no_grad;
    model(images() + this_worker);
    plain(images());
  }
  strategy.run([&] {
    const auto own = model.named_buffers();
    for (const auto& [name, value] : state_of(*plain)) {
      if (own.contains(name)) {
        EXPECT_TRUE(own[name].allclose(value, 1e-5, 1e-6)) << name << " of replica " << id();
      }
    }
  });
  expect_near(model.state_dict(), state_of(*plain), 1e-6);
}

// Channels last.

TEST_ON_EACH_WORKER(Models, KeepConvolutionsInChannelsLastWithTheSameResult) {
  const auto options = optim::SGDOptions(0.1);
  const auto train = [&](const ModelOptions& layout) {
    seed_thread(2);
    Model<Normed> model(layout);
    Optimizer<optim::SGD> optimizer(model, options);
    for (int i = 0; i < 3; ++i) {
      strategy.run([&] {
        optimizer.zero_grad();
        model(images(2) * (id() + 1)).pow(2).sum().backward();
        optimizer.step();
      });
    }
    for (int r = 0; r < n_here && layout.channels_last; ++r) {
      const auto format = at::MemoryFormat::ChannelsLast;
      EXPECT_TRUE(parameter(model, r, "conv.weight").is_contiguous(format)) << r;
      EXPECT_TRUE(parameter(model, r, "conv.weight").grad().is_contiguous(format)) << r;
    }
    return model.state_dict();
  };
  expect_near(train({.channels_last = true}), train({}));
}

// State.

TEST_ON_EACH_WORKER(Models, LoadAStateDictOnAllReplicas) {
  Model<Normed> model, other;
  StateDict state = other.state_dict();
  state["norm.running_var"].fill_(3);
  state["norm.num_batches_tracked"].fill_(7);
  model.load_state_dict(state);
  expect_on_every_replica(model, state, 0);
  StateDict mine = state;
  for (auto& [name, value] : mine) value = value + this_worker;
  other.load_state_dict(mine);
  expect_on_every_replica(other, state, 0);
}

TEST_ON_EACH_WORKER(Models, RefuseAStateDictThatDoesNotFitAndChangeNothing) {
  Model<Normed> model, other;
  const std::string before = fingerprint(model);
  StateDict missing = other.state_dict(), unknown = missing, reshaped = missing, nested = missing;
  missing.erase("norm.running_mean");
  unknown["head.weight"] = torch::ones({1});
  reshaped["conv.bias"] = torch::ones({5});
  nested["conv.bias"] = at::_nested_tensor_from_tensor_list({torch::ones({2})});
  EXPECT_FAILS(model.load_state_dict(missing), ValueError, "\"norm.running_mean\" is missing");
  EXPECT_FAILS(model.load_state_dict(unknown), ValueError, "\"head.weight\" is not in the model");
  EXPECT_FAILS(model.load_state_dict(reshaped), ValueError, "\"conv.bias\" has another shape");
  EXPECT_FAILS(model.load_state_dict(nested), ValueError, "got nested Float [[2]]");
  EXPECT_EQ(fingerprint(model), before);
  if (strategy == default_strategy()) return;  // which has no run of its own
  EXPECT_RUN_FAILS(strategy.run([&] { model.load_state_dict(missing); }), RuntimeError,
                   "inside strategy.run()");
  EXPECT_RUN_FAILS(strategy.run([&] { model.state_dict(); }), RuntimeError,
                   "inside strategy.run()");
}

TEST(StateDicts, HaveAFingerprintOfNamesShapesTypesAndValues) {
  const StateDict state{{"a", torch::arange(6, at::kFloat)}};
  const std::string print = fingerprint(state);
  EXPECT_EQ(print.size(), 16U);
  EXPECT_EQ(fingerprint({{"a", torch::arange(6, at::kFloat)}}), print);
  EXPECT_NE(fingerprint({{"b", torch::arange(6, at::kFloat)}}), print);
  EXPECT_NE(fingerprint({{"a", torch::arange(6, at::kFloat).view({2, 3})}}), print);
  EXPECT_NE(fingerprint({{"a", torch::arange(6, at::kInt)}}), print);
  EXPECT_NE(fingerprint({{"a", torch::tensor({0.f, 1.f, 2.f, 3.f, 4.f, 5.0000005f})}}), print);
  EXPECT_NE(fingerprint({{"a", torch::zeros({1})}}), fingerprint({{"a", -torch::zeros({1})}}));
}

// Files.

struct ModelFiles : Models {
  using Models::Models;
  const std::string path_ = testing::TempDir() + "cohort_model_test.pt";

  /// Waits until all workers are through with the file.
  void after() const {
    strategy.run([] { get_replica_context().barrier(); });
    if (is_chief()) std::remove(path_.c_str());
  }
};
ON_ALL_STRATEGIES(ModelFiles);

TEST_ON_EACH_WORKER(ModelFiles, AreReadByAnyStrategyAndByPlainLibTorch) {
  Model<Normed> model;
  use_in_replicas(model);
  model.save(path_);
  const StateDict saved = model.state_dict();

  Model<Normed> other;
  other.load(path_);
  expect_on_every_replica(other, saved, 0);

  Normed plain;
  torch::load(plain, path_);
  expect_near(state_of(*plain), saved, 0);

  scope_.exit();
  Model<Normed> alone;
  alone.load(path_);
  EXPECT_EQ(fingerprint(alone), fingerprint(saved));
}

TEST_ON_EACH_WORKER(ModelFiles, AreThereWhenSaveReturnsOnAnyWorker) {
  Model<Normed> model;
  for (int i = 0; i < 5; ++i) {
    use_in_replicas(model);
    model.save(path_);
    Normed plain;
    torch::load(plain, path_);
    EXPECT_EQ(fingerprint(state_of(*plain)), fingerprint(model));  // when all have read it
  }
}

TEST_ON_EACH_WORKER(ModelFiles, OfPlainLibTorchAreRead) {
  const auto make = [] {
    return nn::Sequential(nn::Linear(4, 8), nn::ReLU(), nn::BatchNorm1d(8), nn::Linear(8, 3));
  };
  nn::Sequential plain = make();
  if (is_chief()) torch::save(plain, path_);
  Model<nn::Sequential> model(make);
  model.load(path_);
  expect_on_every_replica(model, state_of(*plain), 0);
}

TEST_ON_EACH_WORKER(ModelFiles, ThatDoNotFitAreNamedWithTheirTensor) {
  Model<Normed>(1).save(path_);
  Model<Normed> model;
  const std::string before = fingerprint(model);
  const std::string failure = failure_of([&] { model.load(path_); });
  EXPECT_EQ(failure.substr(0, failure.find(':')), is_chief() ? "ValueError" : "Cancelled");
  EXPECT_THAT(failure, testing::HasSubstr("\"conv.weight\" has another shape"));
  if (is_chief()) {
    EXPECT_THAT(failure, testing::HasSubstr(path_));
  }
  EXPECT_REPLICA_FAILS(0, Model<Net>().load(path_), ValueError, "\"first.bias\" is missing");
  EXPECT_EQ(fingerprint(model), before);
}

/// A module with a name that its user chose.
template <int kind>
struct ChosenNameImpl : nn::Module {
  explicit ChosenNameImpl(const std::string& name) {
    if (kind == 0) register_module(name, nn::Linear(2, 2));
    if (kind == 1) register_parameter(name, torch::ones({2}));
    if (kind == 2) register_buffer(name, torch::ones({2}));
  }
};

TEST_ON_EACH_WORKER(ModelFiles, AreNotWrittenWithNamesThatCannotBeReadAgain) {
  for (const char* name : {"in", "for", "is", "None", "del", "with", "a\"b", "a\\b", "NoneType"}) {
    EXPECT_FAILS(Model<ChosenNameImpl<0>>(name).save(path_), ValueError, cat("\"", name, "\""));
    EXPECT_FAILS(Model<ChosenNameImpl<1>>(name).save(path_), ValueError, "register it by another");
    EXPECT_FAILS(Model<ChosenNameImpl<2>>(name).save(path_), ValueError, "the buffer");
    EXPECT_FALSE(std::ifstream(path_)) << name;
  }
  EXPECT_FAILS(Model<ChosenNameImpl<0>>("in").save(path_), ValueError, "such as \"input\"");
  for (const char* name : {"input", "lambda", "1", "a-b", "from", "try", "self", "é"}) {
    Model<ChosenNameImpl<1>> model(name);
    model.save(path_);
    model.load(path_);
    Model<ChosenNameImpl<0>> other(name);
    other.save(path_);
    other.load(path_);
  }
}

TEST_ON_EACH_WORKER(ModelFiles, ThatCannotBeReadOrWrittenAreNamed) {
  Model<Net> model;
  EXPECT_REPLICA_FAILS(0, model.load(path_), NotFound, path_);
  EXPECT_REPLICA_FAILS(0, model.save("/nowhere/model.pt"), NotFound,
                       "/nowhere/model.pt: can't be written");
  if (is_chief()) std::ofstream(path_) << "not a module";
  EXPECT_REPLICA_FAILS(0, model.load(path_), InvalidArgument, path_);
  model.save(path_);
  model.load(path_);
  if (strategy == default_strategy()) return;  // which has no run of its own
  EXPECT_RUN_FAILS(strategy.run([&] { model.save(path_); }), RuntimeError, "inside strategy.run()");
}

}  // namespace
}  // namespace cohort
