// Runs that throw, and programs that catch it and train on.

#include <atomic>

#include "tests/optim/training.h"

namespace cohort {
namespace {

/// Subtracts a moving average, which it changes in place.
struct CenteredImpl : nn::Module {
  Tensor forward(const Tensor& x) {
    if (is_training()) {
      const at::NoGradGuard no_grad;
      mean.lerp_(x.mean(0), 0.1);
      rows.add_(x.size(0));
    }
    return x - mean;
  }
  Tensor mean = register_buffer("mean", torch::zeros({8}));
  Tensor rows = register_buffer("rows", torch::zeros({}, torch::kLong));
};
TORCH_MODULE(Centered);

struct NormedNetImpl : nn::Module {
  Tensor forward(const Tensor& x) { return second(norm(center(first(x)))); }
  nn::Linear first = register_module("first", nn::Linear(4, 8));
  Centered center = register_module("center", Centered());
  nn::BatchNorm1d norm = register_module("norm", nn::BatchNorm1d(8));
  nn::Linear second = register_module("second", nn::Linear(8, 3));
};
TORCH_MODULE(NormedNet);

std::vector<NamedStrategy> strategies_of_four_and_all_jobs() {
  return and_all_jobs({{"FourOnOne", [] { return mirrored(1, 4); }},
                       {"FourOnTwo", [] { return mirrored(2, 4); }},
                       {"FourOnFour", [] { return mirrored(4); }},
                       {"Central", [] { return central(4); }}});
}

struct AfterAFailedRun : OnStrategies {
  AfterAFailedRun(const NamedStrategy& named, const std::optional<Worker>& worker)
      : OnStrategies(named, worker), scope(strategy.scope()) {}
  const Scope scope;
  Model<NormedNet> model;
  const double two = 2 + this_worker;  // as each worker writes it: the chief's is 2

  static Tensor own_rows() { return batch(6).x * (id() + 1); }

  /// A run in which every replica's statistics change, and one replica then throws. Returns the
  /// statistics that each replica of this worker had when its function ended.
  std::vector<StateDict> fail(int failing) const {
    std::vector<StateDict> own(n);
    EXPECT_REPLICA_FAILS(failing, strategy.run([&] {
      model(own_rows());
      for (const auto& entry : model.named_buffers()) {
        own[id()][entry.key()] = entry.value().clone();
      }
      if (id() == failing) throw ValueError("test", "failed");
      if (!is_here(failing)) get_replica_context().barrier();
    }),
                         ValueError, "failed");
    return own;
  }

  void expect_statistics(const std::vector<StateDict>& expected) const {
    strategy.run([&] {
      const auto own = model.named_buffers();
      for (const auto& [name, value] : expected[id()]) {
        EXPECT_TRUE(own[name].equal(value)) << name << " of replica " << id();
      }
    });
  }
};
SUITE_ON_EACH_WORKER(AfterAFailedRun, NamedStrategy,
                     testing::ValuesIn(strategies_of_four_and_all_jobs()));

TEST_ON_EACH_WORKER(AfterAFailedRun, EachReplicaKeepsItsOwnStatistics) {
  for (const int failing : {0, last_of_chief, last}) {
    const auto own = fail(failing);
    if (workers == 1) {  // else others may be told before they have begun
      EXPECT_FALSE(own[0].at("center.mean").equal(own[1].at("center.mean")));
      EXPECT_FALSE(own[0].at("norm.running_mean").equal(own[1].at("norm.running_mean")));
    }
    expect_statistics(own);
  }
}

TEST_ON_EACH_WORKER(AfterAFailedRun, LookingAtTheModelLeavesTheStatisticsAlone) {
  const auto own = fail(0);
  model.state_dict();
  model.parameters();
  model.named_buffers();
  EXPECT_TRUE(model->norm->is_training());
  nn::init::zeros_(model->first->bias);
  expect_statistics(own);
}

TEST_ON_EACH_WORKER(AfterAFailedRun, WhatIsWrittenOutsideReachesAllReplicas) {
  Tensor kept = model.named_buffers()["center.mean"];
  auto own = fail(0);
  kept.fill_(two);
  for (StateDict& each : own) each["center.mean"] = torch::full({8}, 2.);
  expect_statistics(own);
  own = fail(last);
  model->norm->running_var.fill_(two + 1);
  for (StateDict& each : own) each["norm.running_var"] = torch::full({8}, 3.);
  expect_statistics(own);
}

TEST_ON_EACH_WORKER(AfterAFailedRun, WhatWasWrittenBeforeItReachesAllReplicas) {
  Tensor kept = model.named_buffers()["center.mean"];
  strategy.run([&] { model(own_rows()); });
  kept.fill_(two);
  EXPECT_RUN_FAILS(strategy.run([] { throw ValueError("test", "failed"); }), ValueError, "failed");
  strategy.run([&] { EXPECT_TRUE(model->center->mean.eq(2).all().item<bool>()) << id(); });
}

TEST_ON_EACH_WORKER(AfterAFailedRun, ParametersThatAreHalfWrittenAreMadeAlike) {
  EXPECT_RUN_FAILS(strategy.run([&] {
    model(own_rows());
    model.update([&](const std::string& name, Tensor parameter) {
      parameter.add_(1);
      if (name == "norm.bias") throw ValueError("test", "failed");
    });
  }),
                   ValueError, "failed");
  const auto own = fail(last);
  expect_equal_copies(model);
  expect_statistics(own);
}

TEST_ON_EACH_WORKER(AfterAFailedRun, ParametersThatOneWorkerHasHalfWrittenAreMadeAlike) {
  for (const int failing : {0, last}) {
    EXPECT_REPLICA_FAILS(failing, strategy.run([&] {
      model(own_rows());
      model.update([&](const std::string& name, Tensor parameter) {
        parameter.add_(1);
        if (is_here(failing) && name == "norm.bias") throw ValueError("test", "failed");
      });
      get_replica_context().barrier();
    }),
                         ValueError, "failed");
    expect_equal_copies(model);
  }
}

TEST_ON_EACH_WORKER(AfterAFailedRun, TheStateIsTheSameOnAllWorkers) {
  for (const int failing : {0, last}) {
    EXPECT_REPLICA_FAILS(failing, strategy.run([&] {
      model(own_rows());
      model.update([&](const std::string& name, Tensor parameter) {
        parameter.add_(1);
        if (is_here(failing) && name == "norm.bias") throw ValueError("test", "failed");
      });
      get_replica_context().barrier();
    }),
                         ValueError, "failed");
    const std::string print = fingerprint(model);
    expect_equal_copies(model);
    EXPECT_EQ(fingerprint(model), print);
  }
}

TEST_ON_EACH_WORKER(AfterAFailedRun, ModesAreAlike) {
  for (const int in_evaluation : {0, last_of_chief, last}) {
    model.train();
    EXPECT_REPLICA_FAILS(in_evaluation, strategy.run([&] {
      if (id() == in_evaluation) model.eval();
      if (id() == in_evaluation) throw ValueError("test", "failed");
      if (!is_here(in_evaluation)) get_replica_context().barrier();
    }),
                         ValueError, "failed");
    const auto modes = strategy.run([&] { return model->norm->is_training(); }).values();
    for (const bool is_training : modes) EXPECT_EQ(is_training, modes[0]);
  }
}

TEST_ON_EACH_WORKER(AfterAFailedRun, AStepThatOneReplicaHasMadeIsMadeOnAllCopies) {
  std::atomic<int> ended{0};
  const auto train = [&](bool fails, int failing) {
    seed_thread(3);
    Model<NormedNet> own;
    Optimizer<optim::SGD> optimizer(own, optim::SGDOptions(1e-3).momentum(0.9),
                                    {.check_drift_every = 2});
    const auto step = [&] {
      optimizer.zero_grad();
      own(own_rows()).square().sum().backward();
      optimizer.step();
    };
    ended = 0;
    const auto step_and_throw = [&] {
      step();
      if (is_here(failing) && ended++ == 0) {
        throw ValueError("test", "failed");  // the first to come
      }
      if (!is_here(failing)) get_replica_context().barrier();
    };
    strategy.run(step);
    strategy.run(step);
    if (fails) {
      EXPECT_REPLICA_FAILS(failing, strategy.run(step_and_throw), ValueError, "failed");
    } else {
      strategy.run(step);
    }
    for (int i = 0; i < 3; ++i) strategy.run(step);
    expect_equal_copies(own);
    return own.state_dict();
  };
  const StateDict expected = train(/*fails=*/false, 0);
  for (int i = 0; i < 20; ++i) {
    expect_near(train(/*fails=*/true, i % 2 == 0 ? 0 : last), expected, 0);
  }
}

TEST_ON_EACH_WORKER(AfterAFailedRun, RatesAreAlike) {
  Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.5), {.check_drift_every = 1});
  Scheduler<optim::StepLR> scheduler(optimizer, /*step_size=*/1, 0.5);
  const auto step = [&] {
    optimizer.zero_grad();
    model(own_rows()).sum().backward();
    optimizer.step();
  };
  for (const int failing : {0, 1, last}) {
    EXPECT_REPLICA_FAILS(failing, strategy.run([&] {
      step();
      if (id() == failing) throw ValueError("test", "failed");
      if (!is_here(failing)) get_replica_context().barrier();
      scheduler.step();
    }),
                         ValueError, "failed");
    strategy.run(step);
    strategy.run([&] { scheduler.step(); });
    strategy.run(step);
    strategy.run(step);
  }
}

// Replicas that pause.

TEST_ON_EACH_WORKER(AfterAFailedRun, EachReplicaKeepsItsOwnStatisticsThroughAMergeCall) {
  std::vector<StateDict> own(n);
  strategy.run([&] {
    model(own_rows());
    for (const auto& entry : model.named_buffers()) {
      own[id()][entry.key()] = entry.value().clone();
    }
    get_replica_context().merge_call([&](Strategy&) { model.state_dict(); });
  });
  expect_statistics(own);
}

// Gradients that are cleared outside.

TEST_ON_EACH_WORKER(AfterAFailedRun, GradientsThatTheModuleClearsOutsideAreClearedOnAllReplicas) {
  for (const bool set_to_none : {true, false}) {
    Model<Net> net;
    Optimizer<optim::SGD> optimizer(net, optim::SGDOptions(0.1), {.check_drift_every = 1});
    PlainTrainer<optim::SGD> plain(optim::SGDOptions(0.1));
    net.load_state_dict(state_of(*plain.net));
    const Batch whole = batch();
    for (int i = 0; i < 3; ++i) {
      plain.step();
      net->zero_grad(set_to_none);
      strategy.run([&] {
        loss_of(net, own_share(whole), whole).backward();
        optimizer.step();
      });
    }
    expect_on_every_replica(net, state_of(*plain.net));
  }
}

}  // namespace
}  // namespace cohort
