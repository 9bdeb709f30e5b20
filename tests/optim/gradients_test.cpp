// How gradients of replicas become one: cohort/optim/gradient_reducer.h, through Optimizer.

#include "cohort/optim/leaf_gradient.h"
#include "tests/base/captured_log.h"
#include "tests/optim/training.h"

namespace cohort {
namespace {

class Gradients : public ManyDevices {
 protected:
  using Sgd = Trainer<optim::SGD>;
  const optim::SGDOptions options_ = optim::SGDOptions(0.1).momentum(0.9);
  const Batch whole_ = batch();
  StateDict plain(int steps) { return PlainTrainer<optim::SGD>(options_).train(steps); }

  /// The same training, but every replica's share goes through in two halves.
  void step_in_halves(Sgd& trainer, bool with_no_sync) {
    trainer.strategy.run([&] {
      const Batch share = own_share(whole_);
      const auto x = share.x.tensor_split(2), y = share.y.tensor_split(2);
      trainer.optimizer.zero_grad();
      {
        std::optional<Optimizer<optim::SGD>::NoSync> waiting;
        if (with_no_sync) waiting.emplace(trainer.optimizer.core());
        loss_of(trainer.model, {x[0], y[0]}, whole_).backward();
      }
      loss_of(trainer.model, {x[1], y[1]}, whole_).backward();
      trainer.optimizer.step();
    });
  }
};

TEST_F(Gradients, AccumulateOverBackwardPassesWithNoSync) {
  for (const NamedStrategy& named : all_strategies()) {
    Sgd trainer(named.make(), options_);
    for (int i = 0; i < 3; ++i) step_in_halves(trainer, true);
    expect_near(trainer.model.state_dict(), plain(3), 1e-5, named.name);
  }
}

TEST_F(Gradients, AccumulateOverBackwardPassesThatAreEachSummed) {
  for (const NamedStrategy& named : all_strategies()) {
    Sgd trainer(named.make(), options_);
    for (int i = 0; i < 3; ++i) step_in_halves(trainer, false);
    expect_near(trainer.model.state_dict(), plain(3), 1e-5, named.name);
  }
}

TEST_F(Gradients, OutliveARunThatFailsElsewhere) {
  for (const int devices : {2, 4}) {
    Sgd trainer(mirrored(devices, 4), options_);
    trainer.strategy.run([&] { loss_of(trainer.model, own_share(whole_), whole_).backward(); });
    EXPECT_FAILS(trainer.strategy.run([] { throw ValueError("elsewhere", "boom"); }), ValueError,
                 "boom");
    trainer.strategy.run([&] { trainer.optimizer.step(); });
    expect_near(trainer.model.state_dict(), plain(1), 1e-5, cat(devices, " devices"));
  }
}

TEST_F(Gradients, AreSummedWhenBackwardEndsWithoutOverlap) {
  Sgd trainer(mirrored(2, 8), options_, {.overlap = false});
  for (int i = 0; i < 3; ++i) step_in_halves(trainer, false);
  expect_near(trainer.model.state_dict(), plain(3));
}

TEST_F(Gradients, MayBeThrownAway) {
  Sgd trainer(mirrored(2, 4), options_);
  trainer.strategy.run([&] {
    loss_of(trainer.model, own_share(whole_), whole_).backward();
    trainer.optimizer.zero_grad();
    trainer.model->hidden(own_share(whole_).x).sum().backward();  // the second layer gets none
    trainer.optimizer.zero_grad();
  });
  expect_near(trainer.train(3), plain(3));
}

TEST_F(Gradients, InManyBucketsHaveTheSameBitsAsInOne) {
  const auto bits = [&](int devices, std::int64_t bytes) {
    Sgd trainer(mirrored(devices, 6), options_,
                {.first_bucket_bytes = bytes, .bucket_bytes = bytes});
    trainer.train(5);
    return fingerprint(trainer.model);
  };
  const std::string one = bits(1, 1 << 20);
  for (const int devices : {1, 2, 3, 6}) {
    EXPECT_EQ(bits(devices, 1 << 20), one) << devices;
    EXPECT_EQ(bits(devices, 1), one) << devices << ", in buckets of one tensor";
  }
}

TEST_F(Gradients, ThatAreNotClearedAddUpAlikeOnAnyDevices) {
  const auto bits = [&](int devices) {
    Sgd trainer(mirrored(devices, 4), optim::SGDOptions(0.01));
    trainer.strategy.run([&] {
      for (int i = 0; i < 3; ++i) {
        loss_of(trainer.model, own_share(whole_), whole_).backward();
        trainer.optimizer.step();
      }
    });
    return fingerprint(trainer.model);
  };
  const std::string alone = bits(1);
  for (const int devices : {2, 3, 4}) EXPECT_EQ(bits(devices), alone) << devices;
}

TEST_F(Gradients, AreTheSumsOnAllReplicasAfterEachStepOfARun) {
  for (const Strategy& strategy : {mirrored(1, 4), mirrored(2, 4), central(3)}) {
    Sgd trainer(strategy, options_);
    strategy.run([&] {
      for (int i = 0; i < 3; ++i) {
        trainer.optimizer.zero_grad();
        loss_of(trainer.model, own_share(whole_), whole_).backward();
        trainer.optimizer.step();
        const Tensor sum = trainer.model.parameters()[0].grad();
        ASSERT_TRUE(sum.defined());
        const Tensor mean = get_replica_context().all_reduce(ReduceOp::MEAN, sum);
        EXPECT_TRUE(mean.allclose(sum)) << "step " << i << ", replica " << id();
      }
    });
  }
}

TEST_F(Gradients, ThatTheProgramSetsItselfAreSummedToo) {
  Sgd trainer(mirrored(2, 4), options_);
  for (int i = 0; i < 3; ++i) {
    trainer.strategy.run([&] {
      const auto parameters = trainer.model.parameters();
      trainer.optimizer.zero_grad();
      const auto grads =
          torch::autograd::grad({loss_of(trainer.model, own_share(whole_), whole_)}, parameters);
      for (std::size_t p = 0; p < parameters.size(); ++p) parameters[p].mutable_grad() = grads[p];
      trainer.optimizer.step();
    });
  }
  expect_on_every_replica(trainer.model, plain(3));
}

TEST_F(Gradients, AreForgottenOrZero) {
  for (const Strategy& strategy : {mirrored(1), mirrored(2), mirrored(2, 4), central(2)}) {
    Sgd trainer(strategy, options_);
    const auto expect_all = [&](bool defined) {
      for (int r = 0; r < trainer.model.shared()->replicas(); ++r) {
        for (const Tensor& p : trainer.model.shared()->replica(r)->parameters()) {
          ASSERT_EQ(p.grad().defined(), defined) << "replica " << r;
          if (defined) {
            EXPECT_TRUE(p.grad().eq(0).all().item<bool>());
          }
        }
      }
    };
    trainer.optimizer.zero_grad(false);
    expect_all(false);
    trainer.step();
    trainer.strategy.run([&] { trainer.optimizer.zero_grad(false); });
    expect_all(true);
    trainer.strategy.run([&] { trainer.optimizer.zero_grad(true); });
    expect_all(false);
    trainer.step();
    trainer.optimizer.zero_grad(false);
    expect_all(true);
    trainer.optimizer.zero_grad();
    expect_all(false);
  }
}

TEST_F(Gradients, ClearedToZeroGiveTheSameTraining) {
  for (const Strategy& strategy : {mirrored(2), mirrored(2, 4)}) {
    Sgd trainer(strategy, options_);
    for (int i = 0; i < 3; ++i) {
      strategy.run([&] {
        trainer.optimizer.zero_grad(/*set_to_none=*/false);
        loss_of(trainer.model, own_share(whole_), whole_).backward();
        trainer.optimizer.step();
      });
    }
    expect_near(trainer.model.state_dict(), plain(3));
  }
}

// Parameters without one.

struct WithExtraImpl : NetImpl {
  WithExtraImpl() {
    torch::manual_seed(5);
    extra = register_module("extra", nn::Linear(4, 3));
    table = register_module("table", nn::Embedding(nn::EmbeddingOptions(3, 3).sparse(true)));
    for (Tensor& p : parameters()) p.data().uniform_(-0.5, 0.5);
  }
  Tensor extended(const Batch& share) { return forward(share.x) + extra(share.x) + table(share.y); }
  nn::Linear extra{nullptr};
  nn::Embedding table{nullptr};
};
TORCH_MODULE(WithExtra);

class Unused : public Gradients {
 protected:
  /// A step in which only the replicas that `uses` says use all parameters.
  void step(const OptimizerOptions& more, const std::function<bool(int)>& uses) {
    model.emplace();
    optimizer.emplace(*model, optim::SGDOptions(0.1), more);
    again(uses);
  }
  void again(const std::function<bool(int)>& uses) {
    strategy.run([&] {
      const Batch share = own_share(whole_);
      optimizer->zero_grad();
      const Tensor logits = uses(id()) ? (*model)->extended(share) : (*model)(share.x);
      average_loss(losses(logits, share.y), 13).backward();
      optimizer->step();
    });
  }
  const Strategy strategy = mirrored(2, 4);
  const Scope scope = strategy.scope();
  std::optional<Model<WithExtra>> model;
  std::optional<Optimizer<optim::SGD>> optimizer;
};

TEST_F(Unused, OnEveryReplicaTheyAreSkippedAndNamedOnce) {
  const CapturedLog log;
  step({}, [](int) { return false; });
  const StateDict before = state_of(*WithExtra());
  for (int i = 0; i < 2; ++i) again([](int) { return false; });
  EXPECT_TRUE(model->state_dict().at("extra.weight").equal(before.at("extra.weight")));
  EXPECT_FALSE(model->state_dict().at("first.weight").equal(before.at("first.weight")));
  EXPECT_EQ(log.count(log::Level::WARNING, "extra.weight"), 1);
  EXPECT_EQ(log.count(log::Level::WARNING, "table.weight"), 1);
  EXPECT_EQ(log.count(log::Level::WARNING, "first.weight"), 0);
}

TEST_F(Unused, OnOneReplicaTheyAreAnErrorThatNamesIt) {
  EXPECT_FAILS(step({}, [](int replica) { return replica != 2; }), ValueError, "replica 2");
  EXPECT_FAILS(again([](int replica) { return replica == 0; }), ValueError, ".weight has a");
  again([](int) { return true; });
}

TEST_F(Unused, TheyCountAsZerosWhereThatIsAllowed) {
  for (const int user : {0, 1, 3}) {
    step({.allow_unused = true}, [&](int replica) { return replica == user; });
    WithExtra plain;
    optim::SGD plain_optimizer(plain->parameters(), optim::SGDOptions(0.1));
    Tensor loss = torch::zeros({});
    for (int r = 0; r < 4; ++r) {
      const Batch share{whole_.x.tensor_split(4)[r], whole_.y.tensor_split(4)[r]};
      const Tensor logits = r == user ? plain->extended(share) : plain(share.x);
      loss = loss + losses(logits, share.y).sum() / 13;
    }
    loss.backward();
    plain_optimizer.step();
    expect_on_every_replica(*model, state_of(*plain));
  }
}

TEST_F(Gradients, FreezingStopsThemAndThawingBringsThemBack) {
  Sgd trainer(mirrored(2, 4), optim::SGDOptions(0.1));
  const StateDict before = trainer.model.state_dict();
  const CapturedLog log;
  trainer.model.freeze("first");
  trainer.step();
  EXPECT_TRUE(trainer.model.state_dict().at("first.weight").equal(before.at("first.weight")));
  EXPECT_EQ(log.count(log::Level::WARNING, "first"), 0) << "frozen ones are not missed";

  // Also those that were frozen when the optimizer was made.
  Optimizer<optim::SGD> late(trainer.model, optim::SGDOptions(0.1));
  trainer.model.load_state_dict(before);
  trainer.model.unfreeze();
  step_on(trainer.strategy, trainer.model, late, whole_);
  expect_on_every_replica(trainer.model, PlainTrainer<optim::SGD>(optim::SGDOptions(0.1)).train(1));
}

// When something goes wrong.

/// The identity, but for its derivative.
struct ThrowsInBackward : torch::autograd::Function<ThrowsInBackward> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list) {
    throw std::domain_error("the derivative is missing");
  }
};

TEST_F(Gradients, AfterAnExceptionInTheMiddleOfBackwardTrainingGoesOnAsIfNothingHadHappened) {
  for (const Strategy& strategy : {mirrored(1), mirrored(2), mirrored(2, 8), central(2)}) {
    for (const int failing : {0, strategy.num_replicas_in_sync() - 1}) {
      Sgd trainer(strategy, options_, {.first_bucket_bytes = 1, .bucket_bytes = 1});
      trainer.train(2);
      EXPECT_THROW(strategy.run([&] {
        trainer.optimizer.zero_grad();
        const Batch share = own_share(whole_);
        Tensor hidden = trainer.model->hidden(share.x);
        if (id() == failing) hidden = ThrowsInBackward::apply(hidden);
        losses(trainer.model->second(hidden), share.y).sum().backward();
        trainer.optimizer.step();
      }),
                   std::domain_error);
      EXPECT_EQ(failed_replica(), failing);
      trainer.train(2);
      Sgd undisturbed(strategy, options_);
      undisturbed.train(4);
      EXPECT_EQ(fingerprint(trainer.model), fingerprint(undisturbed.model));
    }
  }
}

TEST_F(Gradients, ThatOnlyOneReplicaStepsWithAreAnErrorAndNobodyWaitsForEver) {
  for (const Strategy& strategy : {mirrored(2), mirrored(2, 8), central(2)}) {
    for (const int stepping : {0, 1}) {
      Sgd trainer(strategy, options_);
      EXPECT_FAILS(strategy.run([&] {
        loss_of(trainer.model, own_share(whole_), whole_).backward();
        if (id() == stepping) trainer.optimizer.step();
      }),
                   RuntimeError, "has returned already");
      expect_near(trainer.train(2), plain(2));
    }
  }
}

TEST_F(Gradients, ThatOnlySomeReplicasComputeAreAnErrorThatNamesTwoOfThem) {
  for (const Strategy& strategy : {mirrored(2), mirrored(2, 8), central(2)}) {
    Sgd trainer(strategy, options_);
    EXPECT_FAILS(strategy.run([&] {
      if (id() == 0) loss_of(trainer.model, own_share(whole_), whole_).backward();
      trainer.optimizer.step();
    }),
                 InvalidArgument, "replica 1 calls optimizer.step where replica 0 calls backward");
    expect_near(trainer.train(2), plain(2));
  }
}

TEST_F(Gradients, OfABackwardPassWhoseErrorIsCaughtEndTheRun) {
  const Strategy strategy = mirrored(2, 4);
  Sgd trainer(strategy, options_);
  EXPECT_FAILS(strategy.run([&] {
    const Batch share = own_share(whole_);
    try {
      const Tensor hidden = ThrowsInBackward::apply(trainer.model->hidden(share.x));
      losses(trainer.model->second(hidden), share.y).sum().backward();
    } catch (const std::domain_error&) {
    }
    loss_of(trainer.model, share, whole_).backward();
  }),
               RuntimeError, "threw in this run and was caught");
  expect_near(trainer.train(2), plain(2));
}

TEST_F(Gradients, OfABackwardPassWhoseErrorIsCaughtAreNotSteppedWith) {
  const Strategy strategy = mirrored(2, 4);
  Sgd trainer(strategy, options_);
  EXPECT_FAILS(strategy.run([&] {
    const Batch share = own_share(whole_);
    try {
      const Tensor hidden = ThrowsInBackward::apply(trainer.model->hidden(share.x));
      losses(trainer.model->second(hidden), share.y).sum().backward();
    } catch (const std::domain_error&) {
      trainer.optimizer.zero_grad();
    }
    trainer.optimizer.step();
  }),
               RuntimeError, "[optimizer.step] an earlier backward pass");
  expect_near(trainer.train(2), plain(2));
}

TEST_F(Gradients, OfTheModulesOwnZeroGradAreForgottenAfterAFailedRun) {
  for (const Strategy& strategy : {mirrored(1, 4), mirrored(4)}) {
    Sgd trainer(strategy, options_);
    EXPECT_FAILS(strategy.run([&] {
      const Batch share = own_share(whole_);
      loss_of(trainer.model, share, whole_).backward();
      const Tensor hidden = ThrowsInBackward::apply(trainer.model->hidden(share.x));
      try {
        losses(trainer.model->second(hidden), share.y).sum().backward();
      } catch (const std::domain_error&) {
        throw ValueError("test", "failed");
      }
    }),
                 ValueError, "failed");
    strategy.run([&] {
      trainer.model->zero_grad();
      loss_of(trainer.model, own_share(whole_), whole_).backward();
      trainer.optimizer.step();
    });
    expect_near(trainer.model.state_dict(), plain(1));
  }
}

TEST_F(Gradients, AreWholeAfterARunThatLackedSomeOfThem) {
  const Strategy strategy = mirrored(1, 2);
  const auto scope = strategy.scope();
  Model<Net> model;
  Optimizer<optim::SGD> optimizer(model, 0.1);
  EXPECT_FAILS(strategy.run([&] {
    Tensor loss = model->first->bias.sum();
    if (id() == 0) loss = loss + model->first->weight.sum();
    loss.backward();
  }),
               ValueError, "first.weight has a gradient on replica 0 but none on replica 1");
  const auto gradients = strategy.run([&] {
    optimizer.zero_grad();
    model->second->bias.sum().backward();
    return model->second->bias.grad().clone();
  });
  for (const Tensor& gradient : gradients.values()) EXPECT_TRUE(gradient.eq(2).all().item<bool>());
}

/// Has no gradient of its second argument, and says so.
struct IgnoresSecond : torch::autograd::Function<IgnoresSecond> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x, const Tensor&) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], Tensor()};
  }
};

TEST_F(Gradients, ThatAFunctionLeavesUndefinedStayWhatTheyWere) {
  const Strategy strategy = mirrored(2, 4);
  const auto scope = strategy.scope();
  Model<Net> model;
  Optimizer<optim::SGD> optimizer(model, 0.1);
  const auto use = [&] {
    IgnoresSecond::apply(model->first->bias.exp(), model->first->weight).sum().backward();
  };
  const auto has_one = strategy.run([&] {
    optimizer.zero_grad();
    use();
    return model->first->weight.grad().defined();
  });
  for (const bool has : has_one.values()) EXPECT_FALSE(has);
  const auto kept = strategy.run([&] {
    optimizer.zero_grad();
    model->first->weight.sum().backward();
    use();
    return model->first->weight.grad().clone();
  });
  for (const Tensor& gradient : kept.values()) EXPECT_TRUE(gradient.eq(4).all().item<bool>());
}

TEST_F(Gradients, OfDifferentOptimizersDoNotMeet) {
  Sgd one(mirrored(2), options_);
  Model<Net> model;
  Optimizer<optim::SGD> other(model, options_);
  EXPECT_FAILS(one.strategy.run([&] { id() == 0 ? one.optimizer.step() : other.step(); }),
               InvalidArgument, "the replicas must step the same optimizer");
}

// Memory.

std::size_t distinct(const std::vector<const void*>& pointers) {
  return std::set<const void*>(pointers.begin(), pointers.end()).size();
}

class GradientMemory : public Gradients {
 protected:
  /// Where a replica's gradient lies, without asking for it as the replica would.
  const void* gradient(int replica) {
    const Tensor weight = trainer_.model.shared()->replica(replica)->parameters()[0];
    const Tensor& gradient = LeafGradient::of(weight).peek();
    return gradient.defined() ? gradient.data_ptr() : nullptr;
  }
  std::vector<const void*> gradients() {
    std::vector<const void*> all;
    for (int r = 0; r < 8; ++r) all.push_back(gradient(r));
    return all;
  }
  Sgd trainer_{mirrored(2, 8), options_};  // replicas 0 to 3 share a device, and take turns
};

TEST_F(GradientMemory, AndThatOfParametersGrowsWithDevicesNotWithReplicas) {
  trainer_.step();
  std::vector<const void*> leaves, parameters;
  for (int r = 0; r < 8; ++r) {
    const Tensor weight = trainer_.model.shared()->replica(r)->parameters()[0];
    leaves.push_back(weight.unsafeGetTensorImpl());
    parameters.push_back(weight.data_ptr());
  }
  EXPECT_EQ(distinct(leaves), 8U);
  EXPECT_EQ(distinct(parameters), 2U);
  EXPECT_EQ(distinct(gradients()), 2U);
  EXPECT_EQ(trainer_.optimizer.copies(), 2);
}

TEST_F(GradientMemory, OfReplicasThatChangeTheirGradientsIsFreedBeforeTheNextOneHasItsTurn) {
  std::atomic<std::size_t> most = 0;
  trainer_.strategy.run([&] {
    trainer_.optimizer.zero_grad();
    loss_of(trainer_.model, own_share(whole_), whole_).backward();
    for (const Tensor& p : trainer_.model.parameters()) p.grad().mul_(0.5);
    if (id() < 4) {
      std::vector<const void*> own{gradient(0), gradient(1), gradient(2), gradient(3)};
      std::erase(own, nullptr);
      most = std::max<std::size_t>(most, distinct(own));
    }
    trainer_.optimizer.step();
  });
  EXPECT_LE(most, 3U) << "the sum, the first replica's and that of the one whose turn it is";
  EXPECT_EQ(distinct(gradients()), 2U);
}

}  // namespace
}  // namespace cohort
