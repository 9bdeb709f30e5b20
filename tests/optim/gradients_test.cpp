// How gradients of replicas become one: cohort/optim/gradient_reducer.h, through Optimizer.

#include "cohort/optim/leaf_gradient.h"
#include "tests/base/captured_log.h"
#include "tests/optim/training.h"

namespace cohort {
namespace {

using Sgd = Trainer<optim::SGD>;

struct Gradients : OnStrategies {
  using OnStrategies::OnStrategies;
  const optim::SGDOptions options_ = optim::SGDOptions(0.1).momentum(0.9);
  const Batch whole_ = batch();
  StateDict plain(int steps) const { return PlainTrainer<optim::SGD>(options_).train(steps); }

  /// The same training, but every replica's share goes through in two halves.
  void step_in_halves(Sgd& trainer, bool with_no_sync) const {
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
ON_ALL_STRATEGIES(Gradients);

TEST_ON_EACH_WORKER(Gradients, AccumulateOverBackwardPassesWithNoSync) {
  Sgd trainer(strategy, options_);
  for (int i = 0; i < 3; ++i) step_in_halves(trainer, true);
  expect_near(trainer.model.state_dict(), plain(3));
}

TEST_ON_EACH_WORKER(Gradients, AccumulateOverBackwardPassesThatAreEachSummed) {
  Sgd trainer(strategy, options_);
  for (int i = 0; i < 3; ++i) step_in_halves(trainer, false);
  expect_near(trainer.model.state_dict(), plain(3));
}

TEST_ON_EACH_WORKER(Gradients, OutliveARunThatFailsElsewhere) {
  Sgd trainer(strategy, options_);
  strategy.run([&] { loss_of(trainer.model, own_share(whole_), whole_).backward(); });
  EXPECT_RUN_FAILS(strategy.run([] { throw ValueError("elsewhere", "boom"); }), ValueError, "boom");
  strategy.run([&] { trainer.optimizer.step(); });
  expect_near(trainer.model.state_dict(), plain(1));
}

TEST_ON_EACH_WORKER(Gradients, AreSummedWhenBackwardEndsWithoutOverlap) {
  Sgd trainer(strategy, options_, {.overlap = false});
  for (int i = 0; i < 3; ++i) step_in_halves(trainer, false);
  expect_near(trainer.model.state_dict(), plain(3));
}

TEST_ON_EACH_WORKER(Gradients, MayBeThrownAway) {
  Sgd trainer(strategy, options_);
  strategy.run([&] {
    loss_of(trainer.model, own_share(whole_), whole_).backward();
    trainer.optimizer.zero_grad();
    trainer.model->hidden(own_share(whole_).x).sum().backward();  // the second layer gets none
    trainer.optimizer.zero_grad();
  });
  expect_near(trainer.train(3), plain(3));
}

TEST_ON_EACH_WORKER(Gradients, InManyBucketsHaveTheSameBitsAsInOneOnOneDevice) {
  const auto bits = [&](const Strategy& on, std::int64_t bytes) {
    Sgd trainer(on, options_, {.first_bucket_bytes = bytes, .bucket_bytes = bytes});
    trainer.train(5);
    return fingerprint(trainer.model);
  };
  const std::string one = bits(mirrored(1, n), 1 << 20);
  EXPECT_EQ(bits(strategy, 1 << 20), one);
  EXPECT_EQ(bits(strategy, 1), one) << "in buckets of one tensor";
}

TEST_ON_EACH_WORKER(Gradients, ThatAreNotClearedAddUpAlikeOnAnyDevices) {
  const auto bits = [&](const Strategy& on) {
    Sgd trainer(on, optim::SGDOptions(0.01));
    on.run([&] {
      for (int i = 0; i < 3; ++i) {
        loss_of(trainer.model, own_share(whole_), whole_).backward();
        trainer.optimizer.step();
      }
    });
    return fingerprint(trainer.model);
  };
  EXPECT_EQ(bits(strategy), bits(mirrored(1, n)));
}

TEST_ON_EACH_WORKER(Gradients, AreTheSumsOnAllReplicasAfterEachStepOfARun) {
  Sgd trainer(strategy, options_);
  strategy.run([&] {
    for (int i = 0; i < 3; ++i) {
      trainer.optimizer.zero_grad();
      loss_of(trainer.model, own_share(whole_), whole_).backward();
      trainer.optimizer.step();
      const Tensor sum = trainer.model.parameters()[0].grad();
      EXPECT_TRUE(sum.defined());
      const Tensor mean = get_replica_context().all_reduce(ReduceOp::MEAN, sum);
      EXPECT_TRUE(mean.allclose(sum)) << "step " << i << ", replica " << id();
    }
  });
}

TEST_ON_EACH_WORKER(Gradients, ThatTheProgramSetsItselfAreSummedToo) {
  Sgd trainer(strategy, options_);
  for (int i = 0; i < 3; ++i) {
    strategy.run([&] {
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

TEST_ON_EACH_WORKER(Gradients, AreForgottenOrZero) {
  Sgd trainer(strategy, options_);
  const auto expect_all = [&](bool defined) {
    for (int r = 0; r < n_here; ++r) {
      for (const Tensor& p : trainer.model.shared()->replica(r)->parameters()) {
        ASSERT_EQ(p.grad().defined(), defined) << "local replica " << r;
        if (defined) {
          EXPECT_TRUE(p.grad().eq(0).all().item<bool>());
        }
      }
    }
  };
  trainer.optimizer.zero_grad(false);
  expect_all(false);
  trainer.step();
  strategy.run([&] { trainer.optimizer.zero_grad(false); });
  expect_all(true);
  strategy.run([&] { trainer.optimizer.zero_grad(true); });
  expect_all(false);
  trainer.step();
  trainer.optimizer.zero_grad(false);
  expect_all(true);
  trainer.optimizer.zero_grad();
  expect_all(false);
}

TEST_ON_EACH_WORKER(Gradients, ClearedToZeroGiveTheSameTraining) {
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

// Parameters without one.

struct WithExtraImpl : NetImpl {
  WithExtraImpl() {
    seed_thread(5);
    extra = register_module("extra", nn::Linear(4, 3));
    table = register_module("table", nn::Embedding(nn::EmbeddingOptions(3, 3).sparse(true)));
    for (Tensor& p : parameters()) p.data().uniform_(-0.5, 0.5);
  }
  Tensor extended(const Batch& share) { return forward(share.x) + extra(share.x) + table(share.y); }
  nn::Linear extra{nullptr};
  nn::Embedding table{nullptr};
};
TORCH_MODULE(WithExtra);

struct Unused : Gradients {
  using Gradients::Gradients;

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
  const Scope scope = strategy.scope();
  std::optional<Model<WithExtra>> model;
  std::optional<Optimizer<optim::SGD>> optimizer;
};
ON_ALL_STRATEGIES(Unused);

TEST_P(UnusedOnEachWorker, OnEveryReplicaTheyAreSkippedAndNamedOnceByEachWorker) {
  const CapturedLog log;
  on_each_worker<Unused>(GetParam(), [](Unused& test) {
    const auto none = [](int) { return false; };
    test.step({}, none);
    const StateDict before = state_of(*WithExtra());
    for (int i = 0; i < 2; ++i) test.again(none);
    const StateDict after = test.model->state_dict();
    EXPECT_TRUE(after.at("extra.weight").equal(before.at("extra.weight")));
    EXPECT_FALSE(after.at("first.weight").equal(before.at("first.weight")));
  });
  const int workers = std::max(GetParam().workers, 1);
  EXPECT_EQ(log.count(log::Level::WARNING, "extra.weight"), workers);
  EXPECT_EQ(log.count(log::Level::WARNING, "table.weight"), workers);
  EXPECT_EQ(log.count(log::Level::WARNING, "first.weight"), 0);
}

TEST_ON_EACH_WORKER(Unused, OnOneReplicaTheyAreAnErrorThatNamesIt) {
  if (n == 1) return;
  for (const int one : {last_of_chief, last}) {
    EXPECT_RUN_FAILS(step({}, [&](int replica) { return replica != one; }), ValueError,
                     cat("replica ", one));
    EXPECT_RUN_FAILS(again([](int replica) { return replica == 0; }), ValueError, ".weight has a");
    again([](int) { return true; });
  }
}

TEST_ON_EACH_WORKER(Unused, TheyCountAsZerosWhereThatIsAllowed) {
  for (const int user : {0, last_of_chief, last}) {
    step({.allow_unused = true}, [&](int replica) { return replica == user; });
    WithExtra plain;
    optim::SGD plain_optimizer(plain->parameters(), optim::SGDOptions(0.1));
    Tensor loss = torch::zeros({});
    for (int r = 0; r < n; ++r) {
      const Batch share{whole_.x.tensor_split(n)[r], whole_.y.tensor_split(n)[r]};
      const Tensor logits = r == user ? plain->extended(share) : plain(share.x);
      loss = loss + losses(logits, share.y).sum() / 13;
    }
    loss.backward();
    plain_optimizer.step();
    expect_on_every_replica(*model, state_of(*plain));
  }
}

TEST_P(GradientsOnEachWorker, FreezingStopsThemAndThawingBringsThemBack) {
  const CapturedLog log;
  on_each_worker<Gradients>(GetParam(), [](const Gradients& test) {
    Sgd trainer(test.strategy, optim::SGDOptions(0.1));
    const StateDict before = trainer.model.state_dict();
    trainer.model.freeze("first");
    trainer.step();
    EXPECT_TRUE(trainer.model.state_dict().at("first.weight").equal(before.at("first.weight")));

    // Also those that were frozen when the optimizer was made.
    Optimizer<optim::SGD> late(trainer.model, optim::SGDOptions(0.1));
    trainer.model.load_state_dict(before);
    trainer.model.unfreeze();
    step_on(test.strategy, trainer.model, late, test.whole_);
    expect_on_every_replica(trainer.model,
                            PlainTrainer<optim::SGD>(optim::SGDOptions(0.1)).train(1));
  });
  EXPECT_EQ(log.count(log::Level::WARNING, "first"), 0) << "frozen ones are not missed";
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

TEST_ON_EACH_WORKER(Gradients,
                    AfterAnExceptionInTheMiddleOfBackwardTrainingGoesOnAsIfNothingHadHappened) {
  for (const int failing : {0, last}) {
    Sgd trainer(strategy, options_, {.first_bucket_bytes = 1, .bucket_bytes = 1});
    trainer.train(2);
    EXPECT_REPLICA_THROWS(failing, strategy.run([&] {
      trainer.optimizer.zero_grad();
      const Batch share = own_share(whole_);
      Tensor hidden = trainer.model->hidden(share.x);
      if (id() == failing) hidden = ThrowsInBackward::apply(hidden);
      losses(trainer.model->second(hidden), share.y).sum().backward();
      trainer.optimizer.step();
    }),
                          std::domain_error);
    if (is_here(failing)) {
      EXPECT_EQ(failed_replica(), failing);
    }
    trainer.train(2);
    Sgd undisturbed(strategy, options_);
    undisturbed.train(4);
    EXPECT_EQ(fingerprint(trainer.model), fingerprint(undisturbed.model));
  }
}

TEST_ON_EACH_WORKER(Gradients, ThatOnlyOneReplicaStepsWithAreAnErrorAndNobodyWaitsForEver) {
  if (n == 1) return;
  for (const int stepping : {0, 1}) {
    Sgd trainer(strategy, options_);
    EXPECT_REPLICA_FAILS(stepping, strategy.run([&] {
      loss_of(trainer.model, own_share(whole_), whole_).backward();
      if (id() == stepping || !is_here(stepping)) trainer.optimizer.step();
    }),
                         RuntimeError, "has returned already");
    expect_near(trainer.train(2), plain(2));
  }
}

TEST_ON_EACH_WORKER(Gradients, ThatOnlySomeReplicasComputeAreAnErrorThatNamesTwoOfThem) {
  if (n == 1) return;
  Sgd trainer(strategy, options_);
  EXPECT_FAILS(strategy.run([&] {
    if (id() == 0) loss_of(trainer.model, own_share(whole_), whole_).backward();
    trainer.optimizer.step();
  }),
               InvalidArgument, "replica 1 calls optimizer.step where replica 0 calls backward");
  expect_near(trainer.train(2), plain(2));
}

TEST_ON_EACH_WORKER(Gradients, ThatOnlySomeWorkersComputeAreAnErrorThatNamesBothCalls) {
  if (workers == 1) return;
  Sgd trainer(strategy, options_);
  const std::string failure = failure_of([&] {
    strategy.run([&] {
      if (is_chief()) loss_of(trainer.model, own_share(whole_), whole_).backward();
      trainer.optimizer.step();
    });
  });
  EXPECT_THAT(failure, testing::StartsWith("InvalidArgument"));
  EXPECT_THAT(failure, testing::HasSubstr("calls optimizer.step"));
  EXPECT_THAT(failure, testing::HasSubstr("calls backward"));
  expect_near(trainer.train(2), plain(2));
}

TEST_ON_EACH_WORKER(Gradients, OfABackwardPassWhoseErrorIsCaughtEndTheRun) {
  if (n == 1) return;
  Sgd trainer(strategy, options_);
  EXPECT_RUN_FAILS(strategy.run([&] {
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

TEST_ON_EACH_WORKER(Gradients, OfABackwardPassWhoseErrorIsCaughtAreNotSteppedWith) {
  if (n == 1) return;
  Sgd trainer(strategy, options_);
  EXPECT_RUN_FAILS(strategy.run([&] {
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

TEST_ON_EACH_WORKER(Gradients, OfTheModulesOwnZeroGradAreForgottenAfterAFailedRun) {
  Sgd trainer(strategy, options_);
  EXPECT_RUN_FAILS(strategy.run([&] {
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

TEST_ON_EACH_WORKER(Gradients, AreWholeAfterARunThatLackedSomeOfThem) {
  if (n == 1) return;
  const auto scope = strategy.scope();
  Model<Net> model;
  Optimizer<optim::SGD> optimizer(model, 0.1);
  EXPECT_RUN_FAILS(strategy.run([&] {
    Tensor loss = model->first->bias.sum();
    if (id() == 0) loss = loss + model->first->weight.sum();
    loss.backward();
  }),
                   ValueError, "first.weight has a gradient on replica 0 but none on replica ");
  const auto gradients = strategy.run([&] {
    optimizer.zero_grad();
    model->second->bias.sum().backward();
    return model->second->bias.grad().clone();
  });
  for (const Tensor& gradient : gradients.values()) EXPECT_TRUE(gradient.eq(n).all().item<bool>());
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

TEST_ON_EACH_WORKER(Gradients, ThatAFunctionLeavesUndefinedStayWhatTheyWere) {
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
  for (const Tensor& gradient : kept.values()) EXPECT_TRUE(gradient.eq(n).all().item<bool>());
}

TEST_ON_EACH_WORKER(Gradients, OfDifferentOptimizersDoNotMeet) {
  if (n == 1) return;
  for (const int one : {last_of_chief, last}) {
    Sgd first(strategy, options_);
    Model<Net> model;
    Optimizer<optim::SGD> other(model, options_);
    EXPECT_FAILS(strategy.run([&] { id() == one ? first.optimizer.step() : other.step(); }),
                 InvalidArgument, "the replicas must step the same optimizer");
  }
}

TEST_ON_EACH_WORKER(Gradients, OfDifferentOptimizersOnDifferentWorkersDoNotMeet) {
  if (workers == 1) return;
  Sgd first(strategy, options_);
  Model<Net> model;
  Optimizer<optim::SGD> other(model, options_);
  EXPECT_FAILS(strategy.run([&] { is_chief() ? first.optimizer.step() : other.step(); }),
               InvalidArgument, "the replicas must step the same optimizer");
  step_on(strategy, model, other, whole_);
  expect_equal_copies(model);
  expect_near(first.train(2), plain(2));
}

// Memory.

std::size_t distinct(const std::vector<const void*>& pointers) {
  return std::set<const void*>(pointers.begin(), pointers.end()).size();
}

class GradientMemory : public ManyDevices {
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
  const Batch whole_ = batch();
  Sgd trainer_{mirrored(2, 8), optim::SGDOptions(0.1).momentum(
                                   0.9)};  // replicas 0 to 3 share a device, and take turns
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
