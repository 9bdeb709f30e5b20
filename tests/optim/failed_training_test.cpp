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

std::vector<NamedStrategy> strategies_of_four() {
  return {{"FourOnOne", [] { return mirrored(1, 4); }},
          {"FourOnTwo", [] { return mirrored(2, 4); }},
          {"FourOnFour", [] { return mirrored(4); }},
          {"Central", [] { return central(4); }}};
}

class AfterAFailedRun : public ManyDevices, public testing::WithParamInterface<NamedStrategy> {
 protected:
  const Strategy strategy_ = GetParam().make();
  const Scope scope_ = strategy_.scope();
  Model<NormedNet> model_;

  static Tensor own_rows() { return batch(6).x * (id() + 1); }

  /// A run in which every replica's statistics change, and one replica then throws. Returns the
  /// statistics that each replica had when its function ended.
  std::vector<StateDict> fail(int failing) {
    std::vector<StateDict> own(4);
    EXPECT_FAILS(strategy_.run([&] {
      model_(own_rows());
      for (const auto& entry : model_.named_buffers()) {
        own[id()][entry.key()] = entry.value().clone();
      }
      if (id() == failing) throw ValueError("test", "failed");
    }),
                 ValueError, "failed");
    return own;
  }

  void expect_statistics(const std::vector<StateDict>& expected) {
    strategy_.run([&] {
      const auto own = model_.named_buffers();
      for (const auto& [name, value] : expected[id()]) {
        EXPECT_TRUE(own[name].equal(value)) << name << " of replica " << id();
      }
    });
  }

  void expect_alike() {
    strategy_.run([&] {
      const auto own = model_.parameters();
      const auto first = model_.shared()->replica(0)->parameters();
      for (std::size_t p = 0; p < own.size(); ++p) EXPECT_TRUE(own[p].equal(first[p])) << id();
    });
  }
};

INSTANTIATE_TEST_SUITE_P(, AfterAFailedRun, testing::ValuesIn(strategies_of_four()),
                         [](const auto& info) { return info.param.name; });

TEST_P(AfterAFailedRun, EachReplicaKeepsItsOwnStatistics) {
  for (const int failing : {0, 2}) {
    const auto own = fail(failing);
    EXPECT_FALSE(own[0].at("center.mean").equal(own[1].at("center.mean")));
    EXPECT_FALSE(own[0].at("norm.running_mean").equal(own[1].at("norm.running_mean")));
    expect_statistics(own);
  }
}

TEST_P(AfterAFailedRun, LookingAtTheModelLeavesTheStatisticsAlone) {
  const auto own = fail(0);
  model_.state_dict();
  model_.parameters();
  model_.named_buffers();
  EXPECT_TRUE(model_->norm->is_training());
  nn::init::zeros_(model_->first->bias);
  expect_statistics(own);
}

TEST_P(AfterAFailedRun, WhatIsWrittenOutsideReachesAllReplicas) {
  Tensor kept = model_.named_buffers()["center.mean"];
  auto own = fail(0);
  kept.fill_(2);
  for (StateDict& each : own) each["center.mean"] = torch::full({8}, 2.);
  expect_statistics(own);
  own = fail(3);
  model_->norm->running_var.fill_(3);
  for (StateDict& each : own) each["norm.running_var"] = torch::full({8}, 3.);
  expect_statistics(own);
}

TEST_P(AfterAFailedRun, WhatWasWrittenBeforeItReachesAllReplicas) {
  Tensor kept = model_.named_buffers()["center.mean"];
  strategy_.run([&] { model_(own_rows()); });
  kept.fill_(2);
  EXPECT_FAILS(strategy_.run([] { throw ValueError("test", "failed"); }), ValueError, "failed");
  strategy_.run([&] { EXPECT_TRUE(model_->center->mean.eq(2).all().item<bool>()) << id(); });
}

TEST_P(AfterAFailedRun, ParametersThatAreHalfWrittenAreMadeAlike) {
  EXPECT_FAILS(strategy_.run([&] {
    model_(own_rows());
    model_.update([&](const std::string& name, Tensor parameter) {
      parameter.add_(1);
      if (name == "norm.bias") throw ValueError("test", "failed");
    });
  }),
               ValueError, "failed");
  const auto own = fail(2);
  expect_alike();
  expect_statistics(own);
}

TEST_P(AfterAFailedRun, ModesAreAlike) {
  for (const int in_evaluation : {0, 1}) {
    model_.train();
    EXPECT_FAILS(strategy_.run([&] {
      if (id() == in_evaluation) model_.eval();
      if (id() == in_evaluation) throw ValueError("test", "failed");
    }),
                 ValueError, "failed");
    const auto modes = strategy_.run([&] { return model_->norm->is_training(); }).values();
    for (const bool is_training : modes) EXPECT_EQ(is_training, modes[0]);
  }
}

TEST_P(AfterAFailedRun, AStepThatOneReplicaHasMadeIsMadeOnAllCopies) {
  const auto train = [&](bool fails) {
    torch::manual_seed(3);
    Model<NormedNet> model;
    Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(1e-3).momentum(0.9),
                                    {.check_drift_every = 2});
    const auto step = [&] {
      optimizer.zero_grad();
      model(own_rows()).square().sum().backward();
      optimizer.step();
    };
    std::atomic<int> ended{0};
    const auto step_and_throw = [&] {
      step();
      if (ended++ == 0) throw ValueError("test", "failed");  // the first to come
    };
    strategy_.run(step);
    strategy_.run(step);
    if (fails) {
      EXPECT_FAILS(strategy_.run(step_and_throw), ValueError, "failed");
    } else {
      strategy_.run(step);
    }
    for (int i = 0; i < 3; ++i) strategy_.run(step);
    return model.state_dict();
  };
  const StateDict expected = train(/*fails=*/false);
  for (int i = 0; i < 20; ++i) expect_near(train(/*fails=*/true), expected, 0);
}

TEST_P(AfterAFailedRun, RatesAreAlike) {
  Optimizer<optim::SGD> optimizer(model_, optim::SGDOptions(0.5), {.check_drift_every = 1});
  Scheduler<optim::StepLR> scheduler(optimizer, /*step_size=*/1, 0.5);
  const auto step = [&] {
    optimizer.zero_grad();
    model_(own_rows()).sum().backward();
    optimizer.step();
  };
  for (const int failing : {0, 1, 3}) {
    EXPECT_FAILS(strategy_.run([&] {
      step();
      if (id() == failing) throw ValueError("test", "failed");
      scheduler.step();
    }),
                 ValueError, "failed");
    strategy_.run(step);
    strategy_.run([&] { scheduler.step(); });
    strategy_.run(step);
    strategy_.run(step);
  }
}

// Replicas that pause.

TEST_P(AfterAFailedRun, EachReplicaKeepsItsOwnStatisticsThroughAMergeCall) {
  std::vector<StateDict> own(4);
  strategy_.run([&] {
    model_(own_rows());
    for (const auto& entry : model_.named_buffers()) {
      own[id()][entry.key()] = entry.value().clone();
    }
    get_replica_context().merge_call([&](Strategy&) { model_.state_dict(); });
  });
  expect_statistics(own);
}

// Gradients that are cleared outside.

TEST_P(AfterAFailedRun, GradientsThatTheModuleClearsOutsideAreClearedOnAllReplicas) {
  for (const bool set_to_none : {true, false}) {
    torch::manual_seed(3);
    Model<Net> model;
    Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.1), {.check_drift_every = 1});
    PlainTrainer<optim::SGD> plain(optim::SGDOptions(0.1));
    model.load_state_dict(state_of(*plain.net));
    const Batch whole = batch();
    for (int i = 0; i < 3; ++i) {
      plain.step();
      model->zero_grad(set_to_none);
      strategy_.run([&] {
        loss_of(model, own_share(whole), whole).backward();
        optimizer.step();
      });
    }
    expect_on_every_replica(model, state_of(*plain.net));
  }
}

}  // namespace
}  // namespace cohort
