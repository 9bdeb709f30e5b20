#include "cohort/optim/optimizer.h"

#include "tests/optim/training.h"

namespace cohort {
namespace {

struct Optimizers : OnStrategies {
  using OnStrategies::OnStrategies;

  /// Three steps give what plain LibTorch gives with the whole batch.
  template <class O, class Options>
  void expect_as_plain(const Options& options) {
    Trainer<O> trainer(strategy, options);
    expect_near(trainer.train(3), PlainTrainer<O>(options).train(3));
    expect_equal_copies(trainer.model);
  }
};
ON_ALL_STRATEGIES(Optimizers);

TEST_ON_EACH_WORKER(Optimizers, AllOptimizersDoWhatTheyDoWithTheWholeBatch) {
  expect_as_plain<optim::SGD>(optim::SGDOptions(0.1));
  expect_as_plain<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).nesterov(true));
  expect_as_plain<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
  expect_as_plain<optim::Adam>(optim::AdamOptions(0.01));
  expect_as_plain<optim::AdamW>(optim::AdamWOptions(0.01));
  expect_as_plain<optim::RMSprop>(optim::RMSpropOptions(0.01));
  expect_as_plain<optim::Adagrad>(optim::AdagradOptions(0.1));
}

Net in_double() {
  Net net = Trainer<optim::SGD>::seeded()();
  net->to(at::kDouble);
  return net;
}

/// Two steps of LBFGS, each with several evaluations, in plain LibTorch.
StateDict plain_lbfgs(const optim::LBFGSOptions& options) {
  const Batch whole = batch(13, at::kDouble);
  Net net = in_double();
  optim::LBFGS optimizer(net->parameters(), options);
  for (int i = 0; i < 2; ++i) {
    optimizer.step([&] {
      optimizer.zero_grad();
      const Tensor loss = losses(net(whole.x), whole.y).mean();
      loss.backward();
      return loss;
    });
  }
  return state_of(*net);
}

TEST_ON_EACH_WORKER(Optimizers, LbfgsEvaluatesItsClosureOnAllReplicas) {
  const auto options = optim::LBFGSOptions(0.5).max_iter(5);
  const Batch whole = batch(13, at::kDouble);
  const auto scope = strategy.scope();
  Model<Net> model(in_double);
  Optimizer<optim::LBFGS> optimizer(model, options);
  for (int i = 0; i < 2; ++i) {
    const auto loss = strategy.run([&] {
      const Tensor first = optimizer.step([&] {
        optimizer.zero_grad();
        const Tensor part = loss_of(model, own_share(whole), whole);
        part.backward();
        return part;
      });
      return first.reshape({1});
    });
    const Tensor all = strategy.gather(loss, 0);
    EXPECT_TRUE(all.eq(all[0]).all().item<bool>()) << "the same on all: " << all;
  }
  expect_near(model.state_dict(), plain_lbfgs(options), 1e-8);
}

template <class O, class Options>
void expect_words_as_plain(const Strategy& strategy, const Options& options,
                           bool set_to_none = true) {
  const Batch whole{torch::arange(12).remainder(7), torch::arange(12).remainder(3)};
  Words plain;
  O plain_optimizer(plain->parameters(), options);
  const auto scope = strategy.scope();
  Model<Words> model;
  Optimizer<O> optimizer(model, options);
  for (int i = 0; i < 3; ++i) {
    plain_optimizer.zero_grad();
    losses(plain(whole.x), whole.y).mean().backward();
    plain_optimizer.step();
    strategy.run([&] {
      optimizer.zero_grad(set_to_none);
      loss_of(model, own_share(whole), whole).backward();
      optimizer.step();
    });
  }
  expect_on_every_replica(model, state_of(*plain));
}

TEST_ON_EACH_WORKER(Optimizers, SparseGradientsOfEmbeddingsAreConcatenated) {
  expect_words_as_plain<optim::SGD>(strategy, optim::SGDOptions(0.1));
  expect_words_as_plain<optim::Adagrad>(strategy, optim::AdagradOptions(0.1));
  expect_words_as_plain<optim::SGD>(strategy, optim::SGDOptions(0.1), false);
}

TEST_ON_EACH_WORKER(Optimizers, ClipsByTheGlobalNormAsLibTorchDoes) {
  const auto options = optim::SGDOptions(1);
  Trainer<optim::SGD> trainer(strategy, options, {.clip_global_norm = 0.05});
  PlainTrainer<optim::SGD> plain(options);
  for (int i = 0; i < 3; ++i) {
    trainer.step();
    plain.optimizer.zero_grad();
    losses(plain.net(batch().x), batch().y).mean().backward();
    nn::utils::clip_grad_norm_(plain.net->parameters(), 0.05);
    plain.optimizer.step();
  }
  expect_near(trainer.model.state_dict(), state_of(*plain.net), 1e-6);
}

TEST_ON_EACH_WORKER(Optimizers, SchedulersChangeTheLearningRateOfAllCopies) {
  const auto options = optim::SGDOptions(0.5);
  PlainTrainer<optim::SGD> plain(options);
  optim::StepLR plain_scheduler(plain.optimizer, 2, 0.1);
  Trainer<optim::SGD> inside(strategy, options);
  Scheduler<optim::StepLR> scheduler_inside(inside.optimizer, 2, 0.1);
  for (int i = 0; i < 5; ++i) {
    plain.step();
    plain_scheduler.step();
    inside.step();
    inside.strategy.run([&] { scheduler_inside.step(); });
  }
  expect_on_every_replica(inside.model, state_of(*plain.net));
}

TEST_ON_EACH_WORKER(Optimizers, SetLrChangesTheLearningRateOfAllCopies) {
  PlainTrainer<optim::SGD> plain(optim::SGDOptions(0.5));
  Trainer<optim::SGD> trainer(strategy, 0.5);
  plain.step();
  trainer.step();
  plain.optimizer.param_groups()[0].options().set_lr(0.25);
  trainer.strategy.run([&] { trainer.optimizer.set_lr(0.25); });
  plain.step();
  trainer.step();
  plain.optimizer.param_groups()[0].options().set_lr(0.125);
  trainer.optimizer.set_lr(0.125);  // outside of run
  plain.step();
  trainer.step();
  expect_on_every_replica(trainer.model, state_of(*plain.net));
}

TEST_ON_EACH_WORKER(Optimizers, LbfgsSearchesAlongTheMeanWhereGradientsAreMeans) {
  const auto options = optim::LBFGSOptions(1).max_iter(5).line_search_fn("strong_wolfe");
  const Batch whole = batch(3 * n, at::kDouble);
  Net net = in_double();
  optim::LBFGS plain(net->parameters(), options);
  const Tensor plain_loss = plain.step([&] {
    plain.zero_grad();
    const Tensor loss = losses(net(whole.x), whole.y).mean();
    loss.backward();
    return loss;
  });
  const auto scope = strategy.scope();
  Model<Net> model(in_double);
  Optimizer<optim::LBFGS> optimizer(model, options, {.reduce = ReduceOp::MEAN});
  const auto loss = strategy.run([&] {
    return optimizer.step([&] {
      optimizer.zero_grad();
      const Batch share = own_share(whole);
      const Tensor own = losses(model(share.x), share.y).mean();
      own.backward();
      return own;
    });
  });
  for (const Tensor& each : loss.values()) {
    EXPECT_NEAR(each.item<double>(), plain_loss.item<double>(), 1e-10);
  }
  expect_near(model.state_dict(), state_of(*net), 1e-7);
}

TEST_ON_EACH_WORKER(Optimizers, ANumberIsTheLearningRate) {
  const auto scope = strategy.scope();
  Model<Net> model;
  const auto rate = [](auto& optimizer, int group) {
    const double first = optimizer.copy(0).param_groups()[group].options().get_lr();
    for (int c = 1; c < optimizer.copies(); ++c) {
      EXPECT_EQ(optimizer.copy(c).param_groups()[group].options().get_lr(), first);
    }
    return first;
  };
  Optimizer<optim::SGD> sgd(model, 0.1);
  EXPECT_EQ(rate(sgd, 0), 0.1);
  Optimizer<optim::Adam> adam(model, 1, {.check_drift_every = 1});
  EXPECT_EQ(rate(adam, 0), 1);
  Optimizer<optim::AdamW> grouped(model, 0.1, {{"second", 0.01}});
  EXPECT_EQ(rate(grouped, 0), 0.01);
  EXPECT_EQ(rate(grouped, 1), 0.1);
  Optimizer<optim::RMSprop> of_two({model, Model<nn::Linear>(2, 2)}, 0.2);
  EXPECT_EQ(rate(of_two, 0), 0.2);
}

TEST_ON_EACH_WORKER(Optimizers, SetLrOfAGroupIsFoundByItsPrefix) {
  const auto scope = strategy.scope();
  Model<Net> model;
  Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.1).momentum(0.9),
                                  {{"second", optim::SGDOptions(0.2).momentum(0.5)}});
  const auto expect_rates = [&](const std::vector<double>& expected) {
    for (int c = 0; c < optimizer.copies(); ++c) {
      std::vector<double> all;
      for (auto& group : optimizer.copy(c).param_groups()) all.push_back(group.options().get_lr());
      EXPECT_EQ(all, expected) << "copy " << c;
    }
  };
  strategy.run([&] { optimizer.set_lr(0.05, "second"); });
  expect_rates({0.05, 0.1});
  optimizer.set_lr(0.01);
  expect_rates({0.01, 0.01});
  EXPECT_FAILS(optimizer.set_lr(0.1, "third"), ValueError, "no parameter group has the prefix");
}

class OptimizerTest : public ManyDevices {};

TEST_ON_EACH_WORKER(Optimizers, MadeInsideOfRunAreAnError) {
  if (strategy == default_strategy()) return;  // which has no run of its own
  const auto scope = strategy.scope();
  Model<Net> model;
  EXPECT_RUN_FAILS(strategy.run([&] { Optimizer<optim::SGD> optimizer(model, 0.1); }), RuntimeError,
                   "made inside strategy.run()");
}

TEST_ON_EACH_WORKER(Optimizers, ASchedulerMayStepTwiceInARowAndOutsideOfRun) {
  Trainer<optim::SGD> trainer(strategy, optim::SGDOptions(1));
  Scheduler<optim::StepLR> scheduler(trainer.optimizer, 1, 0.5);
  const auto expect_rate = [&](double rate, const char* why) {
    for (int c = 0; c < trainer.optimizer.copies(); ++c) {
      EXPECT_EQ(trainer.optimizer.copy(c).param_groups()[0].options().get_lr(), rate) << why;
    }
  };
  strategy.run([&] {
    scheduler.step();
    scheduler.step();
  });
  expect_rate(0.5, "LibTorch's first step changes nothing");
  scheduler.step();
  expect_rate(0.25, "the third one, outside of run");
}

TEST_ON_EACH_WORKER(Optimizers, GroupsHaveOptionsOfTheirOwnByPrefix) {
  const auto scope = strategy.scope();
  Model<Net> model;
  const StateDict before = model.state_dict();
  Optimizer<optim::SGD> optimizer(
      model, optim::SGDOptions(0.1),
      {{"second.weight", optim::SGDOptions(0)}, {"first", optim::SGDOptions(0.2)}});
  for (int c = 0; c < optimizer.copies(); ++c) {
    EXPECT_EQ(optimizer.copy(c).param_groups().size(), 3U);
  }
  step_on(strategy, model, optimizer, batch());
  const StateDict after = model.state_dict();
  EXPECT_TRUE(after.at("second.weight").equal(before.at("second.weight")));
  EXPECT_FALSE(after.at("second.bias").equal(before.at("second.bias")));
  EXPECT_FALSE(after.at("first.weight").equal(before.at("first.weight")));
  const std::vector<ParameterGroup<optim::SGDOptions>> none{{"third", optim::SGDOptions(0.1)}};
  EXPECT_FAILS(Optimizer<optim::SGD>(model, optim::SGDOptions(0.1), none), ValueError, "third");
}

TEST_ON_EACH_WORKER(Optimizers, TrainSeveralModelsAsOne) {
  const auto make_first = [] { return seed_thread(1), nn::Linear(4, 8); };
  const auto make_second = [] { return seed_thread(2), nn::Linear(8, 3); };
  nn::Linear plain_first = make_first(), plain_second = make_second();
  auto parameters = plain_first->parameters();
  for (const Tensor& p : plain_second->parameters()) parameters.push_back(p);
  optim::Adam plain(parameters, optim::AdamOptions(0.01));

  const auto scope = strategy.scope();
  Model<nn::Linear> first(make_first), second(make_second);
  Optimizer<optim::Adam> optimizer({first, second}, optim::AdamOptions(0.01));
  const Batch whole = batch();
  for (int i = 0; i < 3; ++i) {
    plain.zero_grad();
    losses(plain_second(torch::relu(plain_first(whole.x))), whole.y).mean().backward();
    plain.step();
    strategy.run([&] {
      const auto [x, y] = own_share(whole);
      optimizer.zero_grad();
      average_loss(losses(second(torch::relu(first(x))), y), 13).backward();
      optimizer.step();
    });
  }
  expect_on_every_replica(first, state_of(*plain_first));
  expect_on_every_replica(second, state_of(*plain_second));
  const std::vector<ParameterGroup<optim::AdamOptions>> groups{{"1.", optim::AdamOptions(0.5)}};
  Optimizer<optim::Adam> grouped({first, second}, optim::AdamOptions(0.01), groups);
  EXPECT_EQ(grouped.copy().param_groups()[0].params().size(), 2U);
}

TEST_ON_EACH_WORKER(Optimizers, OfTwoModelsTakeTurnsAsInAnAdversarialTraining) {
  const auto make_maker = [] { return seed_thread(1), nn::Linear(4, 4); };
  const auto make_judge = [] { return seed_thread(2), nn::Linear(4, 3); };
  const Batch whole = batch();
  const auto options = optim::SGDOptions(0.1).momentum(0.9);

  nn::Linear plain_maker = make_maker(), plain_judge = make_judge();
  optim::SGD plain_making(plain_maker->parameters(), options);
  optim::SGD plain_judging(plain_judge->parameters(), options);

  const auto scope = strategy.scope();
  Model<nn::Linear> maker(make_maker), judge(make_judge);
  Optimizer<optim::SGD> making(maker, options), judging(judge, options);
  for (int i = 0; i < 3; ++i) {
    plain_judging.zero_grad();
    losses(plain_judge(plain_maker(whole.x).detach()), whole.y).mean().backward();
    plain_judging.step();
    plain_making.zero_grad();
    losses(plain_judge(plain_maker(whole.x)), whole.y).mean().neg().backward();
    plain_making.step();
    strategy.run([&] {
      const auto [x, y] = own_share(whole);
      judging.zero_grad();
      average_loss(losses(judge(maker(x).detach()), y), 13).backward();
      judging.step();
      making.zero_grad();
      const auto not_judging = judging.no_sync();
      average_loss(losses(judge(maker(x)), y), 13).neg().backward();
      making.step();
    });
  }
  expect_on_every_replica(maker, state_of(*plain_maker));
  expect_on_every_replica(judge, state_of(*plain_judge));
}

TEST_ON_EACH_WORKER(Optimizers, TheNewestOneOfAModelCounts) {
  Trainer<optim::SGD> trainer(strategy, optim::SGDOptions(0.1));
  const Optimizer<optim::SGD> old = trainer.optimizer;
  PlainTrainer<optim::SGD> plain(optim::SGDOptions(0.1));
  trainer.optimizer = Optimizer<optim::SGD>(trainer.model, optim::SGDOptions(0.1));
  expect_near(trainer.train(3), plain.train(3));
  trainer.optimizer = old;
  EXPECT_RUN_FAILS(trainer.step(), RuntimeError, "another optimizer was made for the same model");
}

/// A network that uses one matrix twice, and registers it twice.
struct TiedImpl : nn::Module {
  TiedImpl() {
    seed_thread(1);
    table = register_parameter("table", torch::randn({4, 4}));
    output = register_parameter("output", table);
    head = register_module("head", nn::Linear(4, 3));
  }
  Tensor forward(const Tensor& x) { return head(torch::tanh(x.matmul(table)).matmul(output)); }
  Tensor table, output;
  nn::Linear head{nullptr};
};
TORCH_MODULE(Tied);

TEST_ON_EACH_WORKER(Optimizers, ATensorThatModulesShareIsUpdatedOnce) {
  const Batch whole = batch();
  Tied plain;
  optim::SGD plain_optimizer({plain->table, plain->head->weight, plain->head->bias},
                             optim::SGDOptions(0.1));
  const auto scope = strategy.scope();
  Model<Tied> model;
  Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.1));
  for (int i = 0; i < 3; ++i) {
    plain_optimizer.zero_grad();
    losses(plain(whole.x), whole.y).mean().backward();
    plain_optimizer.step();
    step_on(strategy, model, optimizer, whole);
  }
  expect_on_every_replica(model, state_of(*plain));
}

TEST_ON_EACH_WORKER(Optimizers, InCrossReplicaContextAreAnError) {
  if (strategy == default_strategy()) return;  // which has none
  Trainer<optim::SGD> trainer(strategy, optim::SGDOptions(0.1));
  EXPECT_FAILS(trainer.optimizer.step(), RuntimeError, "cannot be called in cross-replica context");
  EXPECT_FAILS(trainer.optimizer.step([] { return Tensor(); }), RuntimeError,
               "cannot be called in cross-replica context");
  EXPECT_RUN_FAILS(strategy.run([&] {
    get_replica_context().merge_call([&](Strategy&) { trainer.optimizer.step(); });
  }),
                   RuntimeError, "cannot be called in cross-replica context");
}

TEST_F(OptimizerTest, InAReplicaOfAnotherStrategyAnError) {
  auto trainer = std::make_unique<Trainer<optim::SGD>>(mirrored(2), optim::SGDOptions(0.1));
  auto& optimizer = trainer->optimizer;
  std::thread([&] {
    const auto step = [&] { mirrored(2).run([&] { optimizer.step(); }); };
    EXPECT_FAILS(step(), RuntimeError, "[optimizer.step] Mixing different");
    EXPECT_FAILS(step(), RuntimeError,
                 "make the model and its optimizer after `auto scope = strategy.scope()`");
  }).join();
}

TEST_ON_EACH_WORKER(Optimizers, InDefaultContextUpdateAllCopies) {
  std::optional<Trainer<optim::SGD>> trainer;
  trainer.emplace(strategy, optim::SGDOptions(0.1).momentum(0.9));
  auto model = trainer->model;
  auto optimizer = trainer->optimizer;
  trainer.reset();
  PlainTrainer<optim::SGD> plain(optim::SGDOptions(0.1).momentum(0.9));
  const Batch whole = batch();
  for (int i = 0; i < 2; ++i) {
    optimizer.zero_grad();
    losses(model(whole.x), whole.y).mean().backward();
    optimizer.step();
  }
  expect_on_every_replica(model, plain.train(2));
  for (int i = 0; i < 2; ++i) step_on(strategy, model, optimizer, whole);
  expect_on_every_replica(model, plain.train(2));
  expect_equal_copies(model);
}

TEST_ON_EACH_WORKER(Optimizers, InDefaultContextUpdateAsOnTheChief) {
  std::optional<Trainer<optim::SGD>> trainer;
  trainer.emplace(strategy, optim::SGDOptions(0.1));
  auto model = trainer->model;
  auto optimizer = trainer->optimizer;
  trainer.reset();
  PlainTrainer<optim::SGD> plain(optim::SGDOptions(0.1));
  const Batch whole = batch();
  for (int i = 0; i < 2; ++i) {
    optimizer.zero_grad();
    (losses(model(whole.x), whole.y).mean() * (this_worker + 1)).backward();
    optimizer.step();
  }
  expect_equal_copies(model);
  expect_near(model.state_dict(), plain.train(2));
}

TEST_ON_EACH_WORKER(Optimizers, InDefaultContextAClosureUpdatesAllCopies) {
  const auto options = optim::LBFGSOptions(0.5).max_iter(5);
  const Batch whole = batch(13, at::kDouble);
  std::optional<Scope> scope(strategy.scope());
  Model<Net> model(in_double);
  Optimizer<optim::LBFGS> optimizer(model, options);
  scope.reset();
  for (int i = 0; i < 2; ++i) {
    optimizer.step([&] {
      optimizer.zero_grad();
      const Tensor loss = losses(model(whole.x), whole.y).mean();
      loss.backward();
      return loss;
    });
  }
  expect_on_every_replica(model, plain_lbfgs(options), 1e-8);
  expect_equal_copies(model);
}

TEST_F(OptimizerTest, NeedsAModelWithParametersOfOneStrategy) {
  const std::vector<std::shared_ptr<ReplicatedModule>> none;
  EXPECT_FAILS(Optimizer<optim::SGD>(none, optim::SGDOptions(0.1)), ValueError, "no model");
  EXPECT_FAILS(Optimizer<optim::SGD>(Model<nn::Dropout>(), optim::SGDOptions(0.1)), ValueError,
               "no parameters");
  std::vector<std::shared_ptr<ReplicatedModule>> models{Model<Net>()};
  const Strategy strategy = mirrored(2);
  const auto scope = strategy.scope();
  models.push_back(Model<Net>());
  EXPECT_FAILS(Optimizer<optim::SGD>(models, optim::SGDOptions(0.1)), ValueError,
               "different strategies");
}

TEST_ON_EACH_WORKER(Optimizers, FindTheFirstTensorThatHasDriftedApart) {
  Trainer<optim::SGD> trainer(strategy, optim::SGDOptions(0.1), {.check_drift_every = 2});
  const auto& shared = *trainer.model.shared();
  if (shared.copies() == 1 && workers == 1) return;  // nothing to drift apart
  trainer.train(2);
  const int drifting =
      workers > 1 ? strategy.extended().world().first_of(workers - 1) : shared.owner_of(1);
  if (is_here(drifting)) {
    shared.replica(drifting - first_here)->named_parameters()["second.bias"].data().add_(1e-3);
  }
  trainer.step();
  EXPECT_RUN_FAILS(trainer.step(), RuntimeError,
                   cat("second.bias on replica ", drifting, " differs"));
  const StateDict repaired = trainer.model.state_dict();
  trainer.model.load_state_dict(repaired);
  trainer.train(4);
  expect_equal_copies(trainer.model);
}

TEST_ON_EACH_WORKER(Optimizers, NameAParameterWhoseGradientsWereChangedByHandButNotAlike) {
  Trainer<optim::SGD> trainer(strategy, optim::SGDOptions(0.1), {.check_drift_every = 1});
  if (trainer.model.shared()->copies() == 1 && workers == 1) return;  // nothing to drift apart
  const Batch whole = batch();
  const auto step = [&](bool alike) {
    strategy.run([&] {
      trainer.optimizer.zero_grad();
      loss_of(trainer.model, own_share(whole), whole).backward();
      for (const Tensor& p : trainer.model.parameters()) p.grad().mul_(alike ? 2 : id() + 1);
      trainer.optimizer.step();
    });
  };
  step(/*alike=*/true);
  EXPECT_RUN_FAILS(step(/*alike=*/false), RuntimeError, "first.weight on replica ");
}

}  // namespace
}  // namespace cohort
