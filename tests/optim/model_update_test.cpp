// Programs that change parameters inside of run, other than by an optimizer.

#include <atomic>

#include "cohort/optim/same_bits.h"
#include "tests/optim/training.h"

namespace cohort {
namespace {

Net seeded_net() { return Trainer<optim::SGD>::seeded()(); }

class ModelUpdates : public ManyDevices, public testing::WithParamInterface<NamedStrategy> {
 protected:
  const Strategy strategy_ = GetParam().make();
  const Scope scope_ = strategy_.scope();
  Model<Net> model_{seeded_net};
};

TEST_P(ModelUpdates, CallTheFunctionOnceForEachParameterOfEachCopy) {
  std::atomic<int> calls{0};
  strategy_.run([&] {
    model_.update([&](const std::string& name, Tensor parameter) {
      EXPECT_FALSE(at::GradMode::is_enabled());
      EXPECT_EQ(name == "first.bias", parameter.sizes() == at::IntArrayRef({8}));
      parameter.add_(1);
      ++calls;
    });
  });
  EXPECT_EQ(calls, 4 * model_.shared()->copies());
  Net plain = seeded_net();
  for (Tensor& p : plain->parameters()) p.data().add_(1);
  expect_on_every_replica(model_, state_of(*plain), 0);
}

TEST_P(ModelUpdates, ClampWeightsAfterAStep) {
  Optimizer<optim::SGD> optimizer(model_, optim::SGDOptions(0.5), {.check_drift_every = 1});
  PlainTrainer<optim::SGD> plain(optim::SGDOptions(0.5));
  const auto clamp = [](const std::string&, Tensor p) { p.clamp_(-0.2, 0.2); };
  for (int i = 0; i < 3; ++i) {
    const Batch whole = batch();
    strategy_.run([&] {
      optimizer.zero_grad();
      loss_of(model_, own_share(whole), whole).backward();
      optimizer.step();
      model_.update(clamp);
    });
    plain.step();
    for (Tensor& p : plain.net->parameters()) p.data().clamp_(-0.2, 0.2);
  }
  expect_on_every_replica(model_, state_of(*plain.net));
}

TEST_P(ModelUpdates, MakeSgdByHand) {
  PlainTrainer<optim::SGD> plain(optim::SGDOptions(0.3));
  for (int i = 0; i < 3; ++i) {
    const Batch whole = batch();
    strategy_.run([&] {
      model_->zero_grad();
      loss_of(model_, own_share(whole), whole).backward();
      model_.update([](const std::string&, Tensor p) { p.sub_(p.grad(), 0.3); });
    });
    plain.step();
  }
  expect_on_every_replica(model_, state_of(*plain.net));
}

TEST_P(ModelUpdates, LetATargetNetworkFollow) {
  Model<Net> target(seeded_net);
  Optimizer<optim::SGD> optimizer(model_, optim::SGDOptions(0.5));
  PlainTrainer<optim::SGD> plain(optim::SGDOptions(0.5));
  Net plain_target = seeded_net();
  for (int i = 0; i < 3; ++i) {
    const Batch whole = batch();
    strategy_.run([&] {
      optimizer.zero_grad();
      loss_of(model_, own_share(whole), whole).backward();
      optimizer.step();
      target.update(
          [](const std::string&, Tensor t, const Tensor& online) { t.lerp_(online, 0.25); },
          model_);
    });
    plain.step();
    const auto online = plain.net->parameters();
    for (std::size_t p = 0; p < online.size(); ++p) {
      plain_target->parameters()[p].data().lerp_(online[p].data(), 0.25);
    }
  }
  expect_on_every_replica(target, state_of(*plain_target));
}

TEST_P(ModelUpdates, DrawTheSameRandomNumbersForAllCopies) {
  const auto noise = [](const std::string&, Tensor p) { p.add_(torch::randn_like(p)); };
  strategy_.run([&] {
    model_.update(noise);
    model_.update(noise);
  });
  model_.update(noise);
  expect_on_every_replica(model_, state_of(*model_.shared()->replica(0)), 0);
  const Tensor bias = model_.state_dict().at("first.bias");
  strategy_.run([&] { model_.update([](const std::string&, Tensor p) { p.zero_(); }); });
  strategy_.run([&] { model_.update(noise); });
  EXPECT_FALSE(model_.state_dict().at("first.bias").equal(bias));
}

TEST_P(ModelUpdates, SumGradientsAgainWhenAnOptimizerIsGone) {
  { Optimizer<optim::SGD> gone(model_, 0.1); }
  StateDict expected = model_.state_dict();
  expected["second.bias"] = expected["second.bias"] - strategy_.num_replicas_in_sync();
  strategy_.run([&] {
    model_->second->bias.sum().backward();
    model_.update([](const std::string& name, Tensor parameter) {
      if (name == "second.bias") parameter.sub_(parameter.grad());
    });
  });
  expect_on_every_replica(model_, expected);
}

TEST_P(ModelUpdates, WorkOutsideOfRun) {
  Model<Net> other(seeded_net);
  model_.update([](const std::string&, Tensor p) { p.fill_(3); });
  other.update([](const std::string&, Tensor p, const Tensor& from) { p.copy_(from); }, model_);
  for (const Model<Net>& each : {model_, other}) {
    strategy_.run([&] {
      for (const Tensor& p : each.parameters()) EXPECT_TRUE(p.eq(3).all().item<bool>());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(AllStrategies, ModelUpdates, testing::ValuesIn(all_strategies()),
                         [](const auto& info) { return info.param.name; });

// Errors.

class WritesInRun : public ManyDevices {
 protected:
  const Strategy strategy_ = mirrored(2, 4);
  Scope scope_ = strategy_.scope();
  Model<Net> model_{seeded_net};
};

TEST_F(WritesInRun, AreErrorsThatNameTheParameterAndTheCall) {
  for (const int writer : {0, 1, 3}) {
    const auto write = [&] {
      strategy_.run([&] {
        const at::NoGradGuard no_grad;
        if (id() == writer) model_->second->bias.add_(1);
      });
    };
    EXPECT_FAILS(write(), RuntimeError, "parameter second.bias");
    EXPECT_FAILS(write(), RuntimeError, "model.update(fn)");
    EXPECT_FAILS(write(), RuntimeError, cat("of replica ", writer, " "));
    strategy_.run([&] { model_(batch().x); });
    expect_on_every_replica(model_, state_of(*model_.shared()->replica(0)), 0);
  }
  EXPECT_FAILS(strategy_.run([&] { model_->second->bias.set_data(torch::zeros({3})); }),
               RuntimeError, "parameter second.bias");
}

TEST_F(WritesInRun, AreFoundByTheNextStep) {
  Optimizer<optim::SGD> optimizer(model_, optim::SGDOptions(0.1));
  const Batch whole = batch();
  bool stepped = false;
  EXPECT_FAILS(strategy_.run([&] {
    loss_of(model_, own_share(whole), whole).backward();
    {
      const at::NoGradGuard no_grad;
      for (Tensor& p : model_.parameters()) p.clamp_(-0.1, 0.1);
    }
    optimizer.step();
    if (id() == 0) stepped = true;
  }),
               RuntimeError, "parameter first.weight");
  EXPECT_FALSE(stepped);
  step_on(strategy_, model_, optimizer, whole);
}

TEST_F(WritesInRun, OfOptimizersAreNone) {
  Optimizer<optim::Adam> adam(model_, optim::AdamOptions(0.01), {.check_drift_every = 1});
  const Batch whole = batch();
  for (int i = 0; i < 3; ++i) step_on(strategy_, model_, adam, whole);
  Optimizer<optim::LBFGS> lbfgs(model_, optim::LBFGSOptions(0.1).max_iter(3));
  strategy_.run([&] {
    lbfgs.step([&] {
      lbfgs.zero_grad();
      const Tensor loss = loss_of(model_, own_share(whole), whole);
      loss.backward();
      return loss;
    });
  });
  strategy_.run([&] { model_(whole.x); });
}

TEST_F(WritesInRun, ByTheFirstOfTwoModelsAreNotThoseOfTheOther) {
  Model<Net> other(seeded_net);
  EXPECT_FAILS(strategy_.run([&] {
    model_(batch().x);
    other(batch().x);
    const at::NoGradGuard no_grad;
    other->first->bias.zero_();
  }),
               RuntimeError, "parameter first.bias");
  strategy_.run([&] { model_(batch().x), other(batch().x); });
}

TEST_F(WritesInRun, OfBuffersAreTheReplicasOwn) {
  Model<nn::BatchNorm1d> norm(4);
  strategy_.run([&] { norm->running_mean.fill_(id()); });
  strategy_.run([&] { EXPECT_EQ(norm->running_mean[0].item<int>(), id()); });
}

TEST_F(WritesInRun, InAMergeCallReachAllReplicas) {
  strategy_.run([&] {
    get_replica_context().merge_call(
        [&](Strategy&) { nn::init::constant_(model_->first->bias, 5); });
    EXPECT_TRUE(model_->first->bias.eq(5).all().item<bool>()) << id();
  });
}

TEST_F(WritesInRun, ByUpdateOfOtherMemoryAreErrors) {
  const auto replace = [](const std::string&, Tensor p) { p.set_data(torch::zeros_like(p)); };
  EXPECT_FAILS(strategy_.run([&] { model_.update(replace); }), RuntimeError, "set_data");
  strategy_.run([&] { model_(batch().x); });
  expect_on_every_replica(model_, state_of(*model_.shared()->replica(0)), 0);
}

TEST_F(WritesInRun, ByUpdatesThatDoNotFitAreErrors) {
  Model<Net> other(seeded_net);
  Model<nn::Linear> smaller(4, 2);
  const auto nothing = [](const std::string&, const Tensor&) {};
  const auto copy = [](const std::string&, Tensor p, const Tensor& from) { p.copy_(from); };
  EXPECT_FAILS(strategy_.run([&] { (id() == 0 ? model_ : other).update(nothing); }),
               InvalidArgument, "the replicas must update the same model");
  EXPECT_FAILS(strategy_.run([&] {
    if (id() > 0) model_.update(nothing);
  }),
               RuntimeError, "model.update");
  EXPECT_FAILS(model_.update(copy, smaller), ValueError, "no parameter \"first.weight\"");
  const Strategy another = mirrored(2);
  scope_.exit();
  EXPECT_FAILS(another.run([&] { model_.update(nothing); }), RuntimeError, "another strategy");
}

// Models of other strategies.

TEST_F(WritesInRun, OfAModelFromOutsideTheScopeAreErrors) {
  scope_.exit();
  Model<nn::Linear> outside(4, 3);
  Model<nn::BatchNorm1d> norm(4);
  const Strategy another = mirrored(3);
  Model<Net> inside = [&] {
    const auto scope = another.scope();
    return Model<Net>();
  }();
  const Tensor x = batch().x;
  const char* const what_to_do = "auto scope = strategy.scope();";
  EXPECT_FAILS(strategy_.run([&] { outside(x).sum().backward(); }), RuntimeError, what_to_do);
  EXPECT_FAILS(strategy_.run([&] { outside->forward(x); }), RuntimeError, "no strategy");
  EXPECT_FAILS(strategy_.run([&] { inside(x); }), RuntimeError, "another MirroredStrategy");
  const at::NoGradGuard no_grad;
  EXPECT_FAILS(strategy_.run([&] { norm(x); }), RuntimeError, "model.eval()");
  norm.eval();
  strategy_.run([&] {
    EXPECT_TRUE(outside(x).defined());
    EXPECT_TRUE(inside(x).defined());
    EXPECT_TRUE(norm(x).defined());
  });
}

TEST_F(WritesInRun, AFrozenTeacherFromOutsideTheScopeMayBeDerivedThrough) {
  scope_.exit();
  Model<Net> teacher;
  teacher.freeze();
  strategy_.run([&] {
    const Tensor x = batch().x.requires_grad_();
    teacher(x).sum().backward();
    EXPECT_TRUE(x.grad().defined());
  });
}

}  // namespace
}  // namespace cohort
