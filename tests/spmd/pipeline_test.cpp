// Stages on logical devices, micro-batches one behind the other.

#include "cohort/spmd/pipeline.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/distribute/replica_context.h"
#include "cohort/optim/model.h"
#include "cohort/optim/optimizer.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "cohort/strategies/one_device_strategy.h"
#include "tests/base/failing.h"

namespace cohort {
namespace {

using torch::Tensor;

torch::nn::Sequential layer(int in, int out) {
  return torch::nn::Sequential(torch::nn::Linear(in, out), torch::nn::Tanh());
}
Strategy devices(int n) { return OneDeviceStrategy("cpu:0", {.logical_devices_per_replica = n}); }

TEST(Pipeline, GivesWhatTheStagesGiveOneAfterTheOther) {
  for (const int count : {1, 2, 3, 5}) {
    const Strategy strategy = devices(2);
    strategy.run([&] {
      torch::manual_seed(1);
      auto a = layer(4, 6), b = layer(6, 5), c = layer(5, 2);
      auto pipe = spmd::pipeline({a, b, c}, count);
      const Tensor x = torch::rand({7, 4}, torch::requires_grad());
      const Tensor expected = c->forward(b->forward(a->forward(x)));
      expected.square().sum().backward();
      std::vector<Tensor> gradients{x.grad().clone()};
      for (auto module : {a, b, c}) {
        for (auto& p : module->parameters()) gradients.push_back(p.grad().clone());
        module->zero_grad();
      }
      x.mutable_grad().reset();
      const Tensor got = pipe(x);
      EXPECT_TRUE(torch::allclose(got, expected));
      got.square().sum().backward();
      std::size_t next = 0;
      EXPECT_TRUE(torch::allclose(x.grad(), gradients[next++]));
      for (auto module : {a, b, c}) {
        for (auto& p : module->parameters()) {
          EXPECT_TRUE(torch::allclose(p.grad(), gradients[next++], 1e-4, 1e-6));
        }
      }
    });
  }
}

TEST(Pipeline, GivesTheSameBitsEveryTimeWithDropoutToo) {
  const auto once = [] {
    const Strategy strategy = devices(3);
    return strategy.local_results(strategy.run([] {
      torch::manual_seed(1);
      torch::nn::Sequential a(torch::nn::Linear(4, 8), torch::nn::Dropout(0.5)),
          b(torch::nn::Linear(8, 8), torch::nn::Dropout(0.5)), c(torch::nn::Linear(8, 1));
      auto pipe = spmd::pipeline({a, b, c}, 4);
      pipe(torch::rand({16, 4})).sum().backward();
      return a->parameters()[0].grad();
    }))[0];
  };
  const Tensor first = once();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(torch::equal(first, once()));
}

struct FailsImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) {
    if (x.sum().item<float>() > 5) throw ValueError("my stage", "too much");
    return x;
  }
};
TORCH_MODULE(Fails);
struct DropsRowsImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) { return x.slice(0, 1); }
};
TORCH_MODULE(DropsRows);

TEST(Pipeline, AnErrorInAStageComesOutAndEndsTheOthers) {
  const Strategy strategy = devices(2);
  strategy.run([&] {
    auto pipe = spmd::pipeline({Fails(), layer(2, 2), layer(2, 2)}, 4);
    EXPECT_FAILS(pipe(torch::full({8, 2}, 100.)), ValueError, "too much");
    EXPECT_EQ(pipe(torch::zeros({8, 2})).size(0), 8);
    auto drops = spmd::pipeline({DropsRows(), layer(2, 2)}, 2);
    EXPECT_FAILS(drops(torch::rand({8, 2})), ValueError, "stage 0 must keep the rows");
  });
}

struct MeetsImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) { return get_replica_context().all_reduce(ReduceOp::SUM, x); }
};
TORCH_MODULE(Meets);

TEST(Pipeline, ACollectiveInAStageIsAnErrorAndNoHang) {
  // The replicas share one device, and its logical devices.
  const Strategy strategy = MirroredStrategy(MirroredStrategy::Options{
      .devices = {"cpu:0"}, .replicas = 2, .logical_devices_per_replica = 2});
  EXPECT_FAILS(strategy.run([&] {
    auto pipe = spmd::pipeline({Meets(), layer(2, 2)}, 2);
    pipe(torch::rand({4, 2}));
  }),
               RuntimeError, "inside of a stage of spmd::Pipeline");
}

TEST(Pipeline, BackwardTwiceSaysWhatToDo) {
  const Strategy strategy = devices(2);
  strategy.run([&] {
    auto pipe = spmd::pipeline({layer(2, 2), layer(2, 2)}, 2);
    const Tensor loss = pipe(torch::rand({4, 2})).sum();
    loss.backward({}, /*retain_graph=*/true);
    EXPECT_FAILS(loss.backward(), RuntimeError, "call the pipeline again");
  });
}

TEST(Pipeline, BadUseIsAnError) {
  EXPECT_FAILS(spmd::pipeline({}, 2), ValueError, "there must be a stage");
  EXPECT_FAILS(spmd::pipeline({layer(2, 2)}, 0), ValueError, "got 0");
  auto pipe = spmd::pipeline({layer(2, 2)}, 2);
  const Strategy strategy = devices(2);
  const auto scope = strategy.scope();
  EXPECT_FAILS(pipe(torch::rand({2, 2})), ValueError, "inside of strategy.run()");
}

struct NetImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) { return pipe(x); }
  torch::nn::Sequential front = register_module("front", layer(4, 6));
  torch::nn::Sequential back = register_module("back", layer(6, 1));
  spmd::Pipeline pipe = spmd::pipeline({front, back}, 3);
};
TORCH_MODULE(Net);

TEST(Pipeline, StagesMayHaveNothingToTrain) {
  auto front = torch::nn::Sequential(torch::nn::Flatten());
  auto back = layer(4, 4);
  devices(2).run([&] {
    spmd::pipeline({front, back}, 4)(torch::rand({16, 2, 2})).sum().backward();
    EXPECT_TRUE(back->parameters()[0].grad().defined());
    const Tensor x = torch::rand({16, 4}, torch::requires_grad());
    for (const Tensor& each : back->parameters()) each.set_requires_grad(false);
    spmd::pipeline({back, back}, 4)(x).sum().backward();
    EXPECT_TRUE(x.grad().defined());
  });
}

TEST(Pipeline, TrainsUnderAModelOnSeveralReplicas) {
  const Strategy strategy =
      MirroredStrategy(MirroredStrategy::Options{.replicas = 2, .logical_devices_per_replica = 2});
  const auto scope = strategy.scope();
  torch::manual_seed(2);
  Model<Net> model;
  Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.2));
  std::vector<double> losses;
  for (int step = 0; step < 30; ++step) {
    const auto loss = strategy.run([&] {
      const int id = get_replica_context().replica_id_in_sync_group();
      const Tensor x = torch::arange(24.).reshape({6, 4}).add(id).sin();
      optimizer.zero_grad();
      const Tensor own = (model(x) - x.sum(1, true).tanh()).square().mean();
      own.backward();
      optimizer.step();
      return own.detach();
    });
    losses.push_back(strategy.reduce(ReduceOp::MEAN, loss).item<double>());
  }
  EXPECT_LT(losses.back(), losses.front() / 2);
}

}  // namespace
}  // namespace cohort
