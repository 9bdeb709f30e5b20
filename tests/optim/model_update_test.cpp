// Programs that change parameters inside of run, other than by an optimizer.

#include <atomic>

#include "cohort/optim/same_bits.h"
#include "tests/optim/training.h"

namespace cohort {
namespace {

Net seeded_net() { return Trainer<optim::SGD>::seeded()(); }

struct ModelUpdates : OnStrategies {
  ModelUpdates(const NamedStrategy& named, const std::optional<Worker>& worker)
      : OnStrategies(named, worker), scope(strategy.scope()) {}
  Scope scope;
  Model<Net> model{seeded_net};
};
ON_ALL_STRATEGIES(ModelUpdates);

TEST_ON_EACH_WORKER(ModelUpdates, CallTheFunctionOnceForEachParameterOfEachCopy) {
  std::atomic<int> calls{0};
  strategy.run([&] {
    model.update([&](const std::string& name, Tensor parameter) {
      EXPECT_FALSE(at::GradMode::is_enabled());
      EXPECT_EQ(name == "first.bias", parameter.sizes() == at::IntArrayRef({8}));
      parameter.add_(1);
      ++calls;
    });
  });
  EXPECT_EQ(calls, 4 * model.shared()->copies());
  Net plain = seeded_net();
  for (Tensor& p : plain->parameters()) p.data().add_(1);
  expect_on_every_replica(model, state_of(*plain), 0);
}

TEST_ON_EACH_WORKER(ModelUpdates, ClampWeightsAfterAStep) {
  Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.5), {.check_drift_every = 1});
  PlainTrainer<optim::SGD> plain(optim::SGDOptions(0.5));
  const auto clamp = [](const std::string&, Tensor p) { p.clamp_(-0.2, 0.2); };
  for (int i = 0; i < 3; ++i) {
    const Batch whole = batch();
    strategy.run([&] {
      optimizer.zero_grad();
      loss_of(model, own_share(whole), whole).backward();
      optimizer.step();
      model.update(clamp);
    });
    plain.step();
    for (Tensor& p : plain.net->parameters()) p.data().clamp_(-0.2, 0.2);
  }
  expect_on_every_replica(model, state_of(*plain.net));
}

TEST_ON_EACH_WORKER(ModelUpdates, MakeSgdByHand) {
  PlainTrainer<optim::SGD> plain(optim::SGDOptions(0.3));
  for (int i = 0; i < 3; ++i) {
    const Batch whole = batch();
    strategy.run([&] {
      model->zero_grad();
      loss_of(model, own_share(whole), whole).backward();
      model.update([](const std::string&, Tensor p) { p.sub_(p.grad(), 0.3); });
    });
    plain.step();
  }
  expect_on_every_replica(model, state_of(*plain.net));
}

TEST_ON_EACH_WORKER(ModelUpdates, LetATargetNetworkFollow) {
  Model<Net> target(seeded_net);
  Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.5));
  PlainTrainer<optim::SGD> plain(optim::SGDOptions(0.5));
  Net plain_target = seeded_net();
  for (int i = 0; i < 3; ++i) {
    const Batch whole = batch();
    strategy.run([&] {
      optimizer.zero_grad();
      loss_of(model, own_share(whole), whole).backward();
      optimizer.step();
      target.update(
          [](const std::string&, Tensor t, const Tensor& online) { t.lerp_(online, 0.25); }, model);
    });
    plain.step();
    const auto online = plain.net->parameters();
    for (std::size_t p = 0; p < online.size(); ++p) {
      plain_target->parameters()[p].data().lerp_(online[p].data(), 0.25);
    }
  }
  expect_on_every_replica(target, state_of(*plain_target));
}

TEST_ON_EACH_WORKER(ModelUpdates, DrawTheSameRandomNumbersForAllCopies) {
  const auto noise = [](const std::string&, Tensor p) { p.add_(torch::randn_like(p)); };
  strategy.run([&] {
    model.update(noise);
    model.update(noise);
  });
  model.update(noise);
  expect_on_every_replica(model, state_of(*model.shared()->replica(0)), 0);
  const Tensor bias = model.state_dict().at("first.bias");
  strategy.run([&] { model.update([](const std::string&, Tensor p) { p.zero_(); }); });
  strategy.run([&] { model.update(noise); });
  EXPECT_FALSE(model.state_dict().at("first.bias").equal(bias));
}

TEST_ON_EACH_WORKER(ModelUpdates, SumGradientsAgainWhenAnOptimizerIsGone) {
  { Optimizer<optim::SGD> gone(model, 0.1); }
  StateDict expected = model.state_dict();
  expected["second.bias"] = expected["second.bias"] - n;
  strategy.run([&] {
    model->second->bias.sum().backward();
    model.update([](const std::string& name, Tensor parameter) {
      if (name == "second.bias") parameter.sub_(parameter.grad());
    });
  });
  expect_on_every_replica(model, expected);
}

TEST_ON_EACH_WORKER(ModelUpdates, OutsideOfRunBecomeTheChiefs) {
  Model<Net> other(seeded_net);
  const double three = 3 + this_worker;
  for (int i = 0; i < 2; ++i) {
    model.update([&](const std::string&, Tensor p) { p.fill_(three); });
    other.update([](const std::string&, Tensor p, const Tensor& from) { p.copy_(from); }, model);
    for (const Model<Net>& each : {model, other}) {
      strategy.run([&] {
        for (const Tensor& p : each.parameters()) EXPECT_TRUE(p.eq(3).all().item<bool>()) << id();
      });
      expect_equal_copies(each);
    }
  }
  model.update([](const std::string&, Tensor p) { p.add_(torch::rand_like(p)); });
  model.update([&](const std::string&, Tensor p) { p.mul_(three); });
  EXPECT_TRUE(model.state_dict().at("first.bias").ge(9).all().item<bool>());
  EXPECT_TRUE(model.state_dict().at("first.bias").le(12).all().item<bool>());
  expect_equal_copies(model);
}

TEST_ON_EACH_WORKER(ModelUpdates, WorkOutsideOfRun) {
  Model<Net> other(seeded_net);
  model.update([](const std::string&, Tensor p) { p.fill_(3); });
  other.update([](const std::string&, Tensor p, const Tensor& from) { p.copy_(from); }, model);
  for (const Model<Net>& each : {model, other}) {
    strategy.run([&] {
      for (const Tensor& p : each.parameters()) EXPECT_TRUE(p.eq(3).all().item<bool>());
    });
  }
}

// Errors.

/// The strategies that watch what is written to a model.
std::vector<NamedStrategy> watching_strategies() {
  auto all = all_strategies();
  std::erase_if(all, [](const NamedStrategy& named) { return named.name == "Default"; });
  return all;
}

struct WritesInRun : OnStrategies {
  WritesInRun(const NamedStrategy& named, const std::optional<Worker>& worker)
      : OnStrategies(named, worker), scope(strategy.scope()) {}
  Scope scope;
  Model<Net> model{seeded_net};
};
SUITE_ON_EACH_WORKER(WritesInRun, NamedStrategy, testing::ValuesIn(watching_strategies()));

TEST_ON_EACH_WORKER(WritesInRun, AreErrorsThatNameTheParameterAndTheCall) {
  for (const int writer : {0, last_of_chief, last}) {
    const auto write = [&] {
      strategy.run([&] {
        const at::NoGradGuard no_grad;
        Tensor bias = model->second->bias;
        if (id() == writer) bias.add_(1);
        if (!is_here(writer)) get_replica_context().barrier();
      });
    };
    EXPECT_REPLICA_FAILS(writer, write(), RuntimeError, "parameter second.bias");
    EXPECT_REPLICA_FAILS(writer, write(), RuntimeError, "model.update(fn)");
    EXPECT_REPLICA_FAILS(writer, write(), RuntimeError, cat("of replica ", writer, " "));
    strategy.run([&] { model(batch().x); });
    expect_equal_copies(model);
  }
  EXPECT_RUN_FAILS(strategy.run([&] { model->second->bias.set_data(torch::zeros({3})); }),
                   RuntimeError, "parameter second.bias");
  expect_equal_copies(model);
}

TEST_ON_EACH_WORKER(WritesInRun, AreFoundByTheNextStep) {
  Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.1));
  const Batch whole = batch();
  std::atomic<bool> stepped = false;
  EXPECT_RUN_FAILS(strategy.run([&] {
    loss_of(model, own_share(whole), whole).backward();
    {
      const at::NoGradGuard no_grad;
      for (Tensor& p : model.parameters()) p.clamp_(-0.1, 0.1);
    }
    optimizer.step();
    stepped = true;
  }),
                   RuntimeError, "parameter first.weight");
  EXPECT_FALSE(stepped);
  step_on(strategy, model, optimizer, whole);
  expect_equal_copies(model);
}

TEST_ON_EACH_WORKER(WritesInRun, OfOptimizersAreNone) {
  Optimizer<optim::Adam> adam(model, optim::AdamOptions(0.01), {.check_drift_every = 1});
  const Batch whole = batch();
  for (int i = 0; i < 3; ++i) step_on(strategy, model, adam, whole);
  Optimizer<optim::LBFGS> lbfgs(model, optim::LBFGSOptions(0.1).max_iter(3));
  strategy.run([&] {
    lbfgs.step([&] {
      lbfgs.zero_grad();
      const Tensor loss = loss_of(model, own_share(whole), whole);
      loss.backward();
      return loss;
    });
  });
  strategy.run([&] { model(whole.x); });
}

TEST_ON_EACH_WORKER(WritesInRun, ByTheFirstOfTwoModelsAreNotThoseOfTheOther) {
  Model<Net> other(seeded_net);
  EXPECT_RUN_FAILS(strategy.run([&] {
    model(batch().x);
    other(batch().x);
    const at::NoGradGuard no_grad;
    other->first->bias.zero_();
  }),
                   RuntimeError, "parameter first.bias");
  strategy.run([&] { model(batch().x), other(batch().x); });
}

TEST_ON_EACH_WORKER(WritesInRun, OfBuffersAreTheReplicasOwn) {
  Model<nn::BatchNorm1d> norm(4);
  strategy.run([&] { norm->running_mean.fill_(id()); });
  strategy.run([&] { EXPECT_EQ(norm->running_mean[0].item<int>(), id()); });
}

TEST_ON_EACH_WORKER(WritesInRun, InAMergeCallReachAllReplicas) {
  strategy.run([&] {
    get_replica_context().merge_call(
        [&](Strategy&) { nn::init::constant_(model->first->bias, 5); });
    EXPECT_TRUE(model->first->bias.eq(5).all().item<bool>()) << id();
  });
}

TEST_ON_EACH_WORKER(WritesInRun, InAMergeCallAreTheChiefsInTheNextRun) {
  strategy.run([&] {
    get_replica_context().merge_call(
        [&](Strategy&) { nn::init::constant_(model->first->bias, 5 + this_worker); });
  });
  strategy.run([&] { EXPECT_TRUE(model->first->bias.eq(5).all().item<bool>()) << id(); });
  expect_equal_copies(model);
}

TEST_ON_EACH_WORKER(WritesInRun, ByUpdateOfOtherMemoryAreErrors) {
  const auto replace = [](const std::string&, Tensor p) { p.set_data(torch::zeros_like(p)); };
  EXPECT_RUN_FAILS(strategy.run([&] { model.update(replace); }), RuntimeError, "set_data");
  strategy.run([&] { model(batch().x); });
  expect_equal_copies(model);
}

TEST_ON_EACH_WORKER(WritesInRun, ByUpdatesThatDoNotFitAreErrors) {
  Model<Net> other(seeded_net);
  Model<nn::Linear> smaller(4, 2);
  const auto nothing = [](const std::string&, const Tensor&) {};
  const auto copy = [](const std::string&, Tensor p, const Tensor& from) { p.copy_(from); };
  if (n > 1) {
    EXPECT_FAILS(strategy.run([&] { (id() == 0 ? model : other).update(nothing); }),
                 InvalidArgument, "the replicas must update the same model");
    EXPECT_REPLICA_FAILS(0, strategy.run([&] {
      if (id() > 0) model.update(nothing);
    }),
                         RuntimeError, "model.update");
  }
  EXPECT_FAILS(model.update(copy, smaller), ValueError, "no parameter \"first.weight\"");
  const Strategy another = mirrored(2);
  scope.exit();
  EXPECT_FAILS(another.run([&] { model.update(nothing); }), RuntimeError, "another strategy");
}

// Models of other strategies.

TEST_ON_EACH_WORKER(WritesInRun, OfAModelFromOutsideTheScopeAreErrors) {
  scope.exit();
  Model<nn::Linear> outside(4, 3);
  Model<nn::BatchNorm1d> norm(4);
  const Strategy another = mirrored(3);
  Model<Net> inside = [&] {
    const auto scope = another.scope();
    return Model<Net>();
  }();
  const Tensor x = batch().x;
  const char* const what_to_do = "auto scope = strategy.scope();";
  EXPECT_RUN_FAILS(strategy.run([&] { outside(x).sum().backward(); }), RuntimeError, what_to_do);
  EXPECT_RUN_FAILS(strategy.run([&] { outside->forward(x); }), RuntimeError, "no strategy");
  EXPECT_RUN_FAILS(strategy.run([&] { inside(x); }), RuntimeError, "another MirroredStrategy");
  const at::NoGradGuard no_grad;
  EXPECT_RUN_FAILS(strategy.run([&] { norm(x); }), RuntimeError, "model.eval()");
  norm.eval();
  strategy.run([&] {
    EXPECT_TRUE(outside(x).defined());
    EXPECT_TRUE(inside(x).defined());
    EXPECT_TRUE(norm(x).defined());
  });
}

TEST_ON_EACH_WORKER(WritesInRun, AFrozenTeacherFromOutsideTheScopeMayBeDerivedThrough) {
  scope.exit();
  Model<Net> teacher;
  teacher.freeze();
  strategy.run([&] {
    const Tensor x = batch().x.requires_grad_();
    teacher(x).sum().backward();
    EXPECT_TRUE(x.grad().defined());
  });
}

}  // namespace
}  // namespace cohort
