#include "tests/strategies/job.h"

namespace cohort {
namespace {

using torch::nn::functional::cross_entropy;
using torch::nn::functional::CrossEntropyFuncOptions;

/// What makes a job hard to repeat: convolutions, statistics, random numbers.
template <class Norm>
struct CnnImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) {
    x = torch::max_pool2d(torch::relu(norm->forward(conv(x))), 2);
    return head(torch::dropout(x.flatten(1), 0.3, is_training()));
  }
  torch::nn::Conv2d conv =
      register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 6, 3)));
  std::shared_ptr<Norm> norm =
      register_module("norm", std::make_shared<Norm>(torch::nn::BatchNormOptions(6)));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(6 * 7 * 7, 10));
};
using Cnn = CnnImpl<torch::nn::BatchNorm2dImpl>;
using SyncCnn = CnnImpl<SyncBatchNormImpl>;

/// One replica's loss on images that are made up.
template <class M>
at::Tensor loss_of(const Model<M>& model, const Strategy& strategy) {
  const at::Tensor images = at::rand({4, 1, 16, 16}) + 0.1 * id();
  const at::Tensor labels = at::randint(10, {4}, at::kLong);
  const auto losses =
      cross_entropy(model(images), labels, CrossEntropyFuncOptions().reduction(torch::kNone));
  return average_loss(losses, 4 * strategy.num_replicas_in_sync());
}

template <class M>
std::string train(const Strategy& strategy, const OptimizerOptions& options, int steps = 4) {
  const auto scope = strategy.scope();
  Model<M> model;
  Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.1).momentum(0.9),
                                         options);
  for (int step = 0; step < steps; ++step) {
    strategy.run([&] {
      optimizer.zero_grad();
      loss_of(model, strategy).backward();
      optimizer.step();
    });
  }
  return fingerprint(model) + bits_of(model(at::ones({1, 1, 16, 16})));
}

class MultiWorkerTraining : public OnJobs {};
ON_ALL_JOBS(MultiWorkerTraining);

TEST_P(MultiWorkerTraining, GivesTheBitsOfOneProcess) {
  expect_as_one_process([](const Strategy& strategy) { return train<Cnn>(strategy, {}); });
}

TEST_P(MultiWorkerTraining, WithSyncBatchNorm) {
  expect_as_one_process([](const Strategy& strategy) { return train<SyncCnn>(strategy, {}); });
}

TEST_P(MultiWorkerTraining, InManyBucketsWithTheMeanClippedAndDriftWatched) {
  expect_as_one_process([](const Strategy& strategy) {
    return train<Cnn>(strategy, {.reduce = ReduceOp::MEAN,
                                 .clip_global_norm = 0.01,
                                 .check_drift_every = 1,
                                 .first_bucket_bytes = 64,
                                 .bucket_bytes = 512});
  });
}

TEST_P(MultiWorkerTraining, WithoutOverlap) {
  expect_as_one_process(
      [](const Strategy& strategy) { return train<Cnn>(strategy, {.overlap = false}); });
}

TEST_P(MultiWorkerTraining, WithAccumulation) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Model<Cnn> model;
    Optimizer<torch::optim::SGD> optimizer(model, 0.1);
    for (int step = 0; step < 3; ++step) {
      strategy.run([&] {
        optimizer.zero_grad();
        {
          const auto alone = optimizer.no_sync();
          loss_of(model, strategy).backward();
        }
        loss_of(model, strategy).backward();
        loss_of(model, strategy).backward();  // on top of the sum
        optimizer.step();
      });
    }
    return fingerprint(model);
  });
}

/// Embeddings with sparse gradients, and a head that only some replicas use.
struct WordsImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& words, bool second) {
    const at::Tensor x = embedding(words).mean(1);
    return (second ? b(x) : a(x)).square().mean();
  }
  torch::nn::Embedding embedding = register_module(
      "embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(20, 4).sparse(true)));
  torch::nn::Linear a = register_module("a", torch::nn::Linear(4, 1));
  torch::nn::Linear b = register_module("b", torch::nn::Linear(4, 1));
};
TORCH_MODULE(Words);

TEST_P(MultiWorkerTraining, WithSparseGradientsAndParametersThatSomeReplicasDoNotUse) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Model<Words> model;
    Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.5),
                                           OptimizerOptions{.allow_unused = true});
    for (int step = 0; step < 3; ++step) {
      strategy.run([&] {
        optimizer.zero_grad();
        model(at::randint(20, {3, 2}, at::kLong), id() == 1 && step > 0).backward();
        optimizer.step();
      });
    }
    return fingerprint(model);
  });
}

TEST_P(MultiWorkerTraining, WithTwoOptimizersOfWhichAPassReachesBoth) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Model<torch::nn::Linear> first(4, 4), second(4, 1);
    Optimizer<torch::optim::Adam> one(first, 0.01);
    Optimizer<torch::optim::SGD> two(second, 0.1);
    for (int step = 0; step < 3; ++step) {
      strategy.run([&] {
        const at::Tensor x = at::rand({2, 4});
        two.zero_grad();
        second(first(x).detach()).mean().backward();
        two.step();
        one.zero_grad();
        second(first(x)).mean().backward();
        one.step();
      });
    }
    return fingerprint(first) + fingerprint(second);
  });
}

TEST_P(MultiWorkerTraining, WithAClosure) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Model<torch::nn::Linear> model(3, 1);
    Optimizer<torch::optim::LBFGS> optimizer(model, torch::optim::LBFGSOptions(0.5));
    strategy.run([&] {
      const at::Tensor x = at::rand({4, 3}), y = at::rand({4, 1});
      optimizer.step([&] {
        optimizer.zero_grad();
        const at::Tensor loss = (model(x) - y).square().sum() / 32;
        loss.backward();
        return loss;
      });
    });
    return fingerprint(model);
  });
}

TEST_P(MultiWorkerTraining, ByHandWithModelUpdate) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Model<torch::nn::Linear> model(3, 1);
    for (int step = 0; step < 3; ++step) {
      strategy.run([&] {
        model(at::rand({2, 3})).square().sum().backward();
        model.update([](const std::string&, at::Tensor p) {
          p.sub_(p.grad(), 0.01);
          p.mutable_grad() = at::Tensor();
        });
      });
    }
    return fingerprint(model);
  });
}

TEST_P(MultiWorkerTraining, WhatIsWrittenToAModelOutsideOfRunBecomesTheChiefs) {
  std::vector<std::string> texts(GetParam().workers);
  configure({.cpu_devices = 2});
  run_workers(GetParam().workers, [&](const Worker& worker) {
    const MultiWorkerMirroredStrategy strategy({.worker = worker, .replicas = GetParam().replicas});
    const auto scope = strategy.scope();
    const at::NoGradGuard no_grad;
    Model<torch::nn::BatchNorm1d> model(2);
    model->weight.fill_(worker.index() + 1.5);
    for (at::Tensor& parameter : model.parameters()) parameter.add_(worker.index() + 1);
    model->running_mean.fill_(worker.index() + 0.5);
    if (worker.is_chief()) model.parameters()[0].sum().item<float>();  // looking changes nothing
    strategy.run([&] {
      EXPECT_EQ(model.parameters()[0][0].item<float>(), 2.5);
      EXPECT_EQ(model->running_mean[0].item<float>(), 0.5);
    });
    if (worker.is_chief()) model.parameters()[0].sum().item<float>();
    strategy.run([&] { EXPECT_EQ(model.parameters()[1][0].item<float>(), 1); });
    texts[worker.index()] = fingerprint(model);
  });
  EXPECT_THAT(texts, testing::Each(texts[0]));
}

TEST_P(MultiWorkerTraining, ALoadedModelIsTheChiefs) {
  run_workers(GetParam().workers, [&](const Worker& worker) {
    const MultiWorkerMirroredStrategy strategy({.worker = worker, .replicas = GetParam().replicas});
    const auto scope = strategy.scope();
    Model<torch::nn::Linear> model(2, 1);
    auto state = model.state_dict();
    for (auto& [name, value] : state) value = at::full_like(value, worker.index() + 1);
    model.load_state_dict(state);
    EXPECT_EQ(model.parameters()[0][0][0].item<float>(), 1);
  });
}

TEST_P(MultiWorkerTraining, WithParametersSplitOverLogicalDevices) {
  const auto program = [](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Model<torch::nn::Linear> model(ModelOptions{.split_parameters = {{"weight", {2, 1}}}}, 6, 4);
    Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 3; ++step) {
      strategy.run([&] {
        optimizer.zero_grad();
        model(at::rand({2, 6})).square().mean().backward();
        optimizer.step();
      });
    }
    return fingerprint(model);
  };
  configure({.cpu_devices = 2});
  torch::manual_seed(3);
  const std::string expected = program(
      MirroredStrategy({.replicas = GetParam().replicas, .logical_devices_per_replica = 2}));
  torch::manual_seed(3);
  run_workers(GetParam().workers, [&](const Worker& worker) {
    EXPECT_EQ(
        program(MultiWorkerMirroredStrategy(
            {.worker = worker, .replicas = GetParam().replicas, .logical_devices_per_replica = 2})),
        expected);
  });
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kManySteps = 10;
#else
constexpr int kManySteps = 200;
#endif

/// What a long training comes to: each step sums two passes, and statistics are of all replicas. In
/// the middle a replica throws.
std::string train_for_long(const Strategy& strategy) {
  const auto scope = strategy.scope();
  Model<SyncCnn> model;
  Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.02).momentum(0.9));
  const auto step_of = [&](int step) {
    if (step == kManySteps / 2 && id() == 1) throw std::runtime_error("in the middle");
    optimizer.zero_grad();
    {
      const auto alone = optimizer.no_sync();
      loss_of(model, strategy).backward();
    }
    loss_of(model, strategy).backward();
    optimizer.step();
  };
  int failed = 0;
  for (int step = 0; step < kManySteps; ++step) {
    try {
      strategy.run([&] { step_of(step); });
    } catch (const std::exception&) {  // Cancelled, on the other workers
      ++failed;
    }
  }
  return cat(failed, ' ', fingerprint(model));
}

TEST_P(MultiWorkerTraining, GivesTheSameBitsAfterManySteps) {
  expect_as_one_process(train_for_long);
}

TEST_P(MultiWorkerTraining, GivesTheSameBitsAfterManyStepsOverASlowNetwork) {
  const std::string expected = on_one_process(GetParam().replicas, train_for_long);
  const NetworkOptions slow{.bytes_per_second = 20e6, .latency = std::chrono::microseconds(100)};
  EXPECT_THAT(on_workers(GetParam(), train_for_long, slow), testing::Each(expected));
}

}  // namespace
}  // namespace cohort
