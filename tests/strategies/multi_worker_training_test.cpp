#include <unistd.h>

#include <cstdio>
#include <set>
#include <sstream>

#include "tests/strategies/failing_job.h"

namespace cohort {
namespace {

using torch::nn::functional::cross_entropy;
using torch::nn::functional::CrossEntropyFuncOptions;

/// What makes a job hard to repeat: convolutions, statistics, random numbers.
template <class Norm>
struct CnnImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) {
    x = torch::max_pool2d(torch::relu(norm->forward(conv(x))), 2);
    return tail(torch::relu(head(torch::dropout(x.flatten(1), 0.3, is_training()))));
  }
  torch::nn::Conv2d conv =
      register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 6, 3)));
  std::shared_ptr<Norm> norm =
      register_module("norm", std::make_shared<Norm>(torch::nn::BatchNormOptions(6)));
  // Large enough for each worker to add a range of it.
  torch::nn::Linear head = register_module("head", torch::nn::Linear(6 * 7 * 7, 40));
  torch::nn::Linear tail = register_module("tail", torch::nn::Linear(40, 10));
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

/// One number for each input, of any type.
struct Scales : torch::nn::Module {
  explicit Scales(at::ScalarType type) : weight(register_parameter("weight", numbers(type))) {}

  static at::Tensor numbers(at::ScalarType type) {
    const at::Tensor real = at::rand({3'000});
    if (!c10::isComplexType(type)) return real.to(type);
    return at::complex(real, at::rand({3'000})).to(type);
  }
  at::Tensor forward(const at::Tensor& x) { return x * weight; }

  at::Tensor weight;
};

TEST_P(MultiWorkerTraining, WithGradientsOfHalfPrecisionAndComplexOnes) {
  for (const auto type : {at::kHalf, at::kBFloat16, at::kComplexFloat, at::kComplexDouble}) {
    expect_as_one_process([type](const Strategy& strategy) {
      const auto scope = strategy.scope();
      Model<Scales> model(type);
      Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.01));
      for (int step = 0; step < 3; ++step) {
        strategy.run([&] {
          optimizer.zero_grad();
          const at::Tensor y = model(Scales::numbers(type));
          const at::Tensor real = y.is_complex() ? at::view_as_real(y) : y.to(at::kFloat);
          real.square().sum().backward();
          optimizer.step();
        });
      }
      return fingerprint(model);
    });
  }
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

TEST_P(MultiWorkerTraining, WhatIsWrittenOutsideIsTheChiefsWithoutARunInBetween) {
  const auto texts = on_workers(GetParam(), [](const Strategy& strategy) {
    const auto scope = strategy.scope();
    const int worker = strategy.extended().world().index();
    const at::NoGradGuard no_grad;
    Model<torch::nn::BatchNorm1d> model(2);
    std::string text;
    model->weight.fill_(worker + 1.5);
    text += fingerprint(model);
    model->bias.data().fill_(worker + 2.5);
    text += fingerprint(model);
    model.update([&](const std::string&, at::Tensor p) { p.add_(worker + 1); });
    text += bits_of(model.state_dict().at("weight"));
    model->running_mean.fill_(worker);
    text += bits_of(model(at::ones({4, 2}) * (1 << worker)));  // trains, on each worker's own
    model.eval();
    return text + bits_of(model(at::ones({3, 2})));
  });
  EXPECT_THAT(texts, testing::Each(texts[0]));
}

TEST_P(MultiWorkerTraining, AStateThatFitsOnSomeWorkersOnlyChangesNothing) {
  const auto texts = on_workers(GetParam(), [](const Strategy& strategy) {
    const auto scope = strategy.scope();
    const World& world = strategy.extended().world();
    Model<torch::nn::Linear> model(2, 1);
    const std::string before = fingerprint(model);
    StateDict state = model.state_dict();
    state["bias"] = at::full({world.index() == world.workers() - 1 ? 3 : 1}, 5.0f);
    std::string text;
    try {
      model.load_state_dict(state);
    } catch (const Error&) {
      text = "refused";
    }
    EXPECT_EQ(fingerprint(model), before);
    return text + before;
  });
  EXPECT_THAT(texts, testing::Each(testing::StartsWith("refused")));
}

TEST_P(MultiWorkerTraining, APassOutsideOfRunIsALocalCallForAModelWithoutBuffers) {
  on_workers(GetParam(), [](const Strategy& strategy) {
    const auto scope = strategy.scope();
    const World& world = strategy.extended().world();
    const at::NoGradGuard no_grad;
    Model<torch::nn::Linear> model(2, 1);
    model.update([](const std::string&, at::Tensor p) { p.fill_(2); });
    if (world.is_chief()) {
      EXPECT_EQ(model(at::ones({1, 2})).item<float>(), 6);
    }
    strategy.run([&] { EXPECT_EQ(model(at::ones({1, 2})).item<float>(), 6); });
    return std::string();
  });
}

struct NormedLine : torch::nn::Module {
  at::Tensor features(const at::Tensor& x) { return norm(x); }
  at::Tensor forward(const at::Tensor& x) { return line(features(x)); }
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(2));
  torch::nn::Linear line = register_module("line", torch::nn::Linear(2, 1));
};

TEST_P(MultiWorkerTraining, AWorkerThatLooksAtAModelOutsideOfRunSendsNothing) {
  const int alone = GetParam().workers - 1;
  std::vector<std::string> texts(GetParam().workers);
  configure({.cpu_devices = 2});
  run_workers(GetParam().workers, [&](const Worker& worker) {
    const MultiWorkerMirroredStrategy strategy(
        {.worker = worker, .replicas = GetParam().replicas, .timeout = std::chrono::seconds(60)});
    const auto scope = strategy.scope();
    Model<NormedLine> model;
    strategy.run([&] { model(at::rand({4, 2})); });
    model.eval();
    const auto messages = [&] { return worker.exchange()->traffic().messages; };
    const auto before = messages();
    if (worker.index() == alone) {
      EXPECT_EQ(model->line->weight.numel(), 2);
      EXPECT_EQ(model.parameters().size(), 4U);
      EXPECT_EQ(model.named_parameters().size(), 4U);
      EXPECT_EQ(model.named_buffers().size(), 3U);
      EXPECT_EQ(model->features(at::ones({3, 2})).size(0), 3);
      EXPECT_FALSE(model.is_training());
      std::ostringstream text;
      text << model;
      EXPECT_THAT(text.str(), testing::HasSubstr("norm"));
    }
    EXPECT_EQ(messages(), before);
    strategy.run([] { return id(); });
    EXPECT_EQ(messages(), before);
    texts[worker.index()] = fingerprint(model);
  });
  EXPECT_THAT(texts, testing::Each(texts[0]));
}

TEST_P(MultiWorkerTraining, AStepOutsideOfRunIsTheChiefs) {
  const auto texts = on_workers(GetParam(), [](const Strategy& strategy) {
    auto scope = strategy.scope();
    Model<torch::nn::Linear> model(2, 1);
    Optimizer<torch::optim::SGD> optimizer(model, 0.1);
    scope.exit();
    model(at::full({1, 2}, strategy.extended().world().index() + 1.0)).sum().backward();
    optimizer.step();
    return fingerprint(model);
  });
  EXPECT_THAT(texts, testing::Each(texts[0]));
}

TEST_P(MultiWorkerTraining, AModelIsSavedAndLoadedByTheChiefOnOnePath) {
  const std::string path = cat(testing::TempDir(), "job_", ::getpid(), ".pt");
  const auto texts = on_workers(GetParam(), [&](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Model<torch::nn::BatchNorm1d> saved(3), loaded(3);
    strategy.run([&] { saved(at::rand({4, 3}) + id()); });
    saved.save(path);
    loaded.load(path);
    EXPECT_EQ(fingerprint(loaded), fingerprint(saved));
    EXPECT_THAT(failure_of([&] { loaded.load(path + ".missing"); }),
                testing::HasSubstr(path + ".missing"));
    EXPECT_THAT(failure_of([&] { loaded.save("/nowhere/at_all.pt"); }),
                testing::HasSubstr("can't be written"));
    return fingerprint(loaded);
  });
  std::remove(path.c_str());
  EXPECT_THAT(texts, testing::Each(texts[0]));
}

TEST_P(MultiWorkerTraining, CopiesThatHaveDriftedApartAreFound) {
  const auto texts = on_workers(GetParam(), [](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Model<torch::nn::Linear> model(2, 1);
    Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.1),
                                           OptimizerOptions{.check_drift_every = 1});
    const World& world = strategy.extended().world();
    return failure_of([&] {
      strategy.run([&] {
        optimizer.zero_grad();
        model(at::ones({1, 2})).sum().backward();
        if (world.index() == 1) model.parameters()[0].data().add_(id() == world.first() ? 1 : 0);
        optimizer.step();
      });
    });
  });
  if (GetParam().workers == 1) return;
  EXPECT_THAT(texts, testing::Each(testing::HasSubstr("have drifted apart: weight")));
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
constexpr int kManySteps = 10, kFewSteps = 4;
#else
constexpr int kManySteps = 200, kFewSteps = 20;
#endif

/// What a long training comes to: each step sums two passes, statistics are of all replicas, and
/// gradients leave in several buckets. On the way a replica throws three times: before it computes,
/// while it goes back, and when it has stepped.
std::string train_for_long(const Strategy& strategy, int steps, int failing) {
  const auto scope = strategy.scope();
  Model<SyncCnn> model;
  Optimizer<torch::optim::SGD> optimizer(
      model, torch::optim::SGDOptions(0.02).momentum(0.9),
      OptimizerOptions{.first_bucket_bytes = 1 << 10, .bucket_bytes = 20 << 10});
  const auto step_of = [&](int step) {
    const auto fail_at = [&](int quarter) {
      if (step == quarter * steps / 4 && id() == failing) {
        throw std::runtime_error("in the middle");
      }
    };
    fail_at(1);
    optimizer.zero_grad();
    {
      const auto alone = optimizer.no_sync();
      loss_of(model, strategy).backward();
    }
    at::Tensor loss = loss_of(model, strategy);
    loss.register_hook([&](const at::Tensor& gradient) {
      fail_at(2);
      return gradient;
    });
    loss.backward();
    optimizer.step();
    fail_at(3);
    get_replica_context().barrier();  // else the others lose their next run instead
  };
  int failed = 0;
  for (int step = 0; step < steps; ++step) {
    try {
      strategy.run([&] { step_of(step); });
    } catch (const std::exception&) {  // Cancelled, on the other workers
      ++failed;
    }
  }
  return cat(failed, ' ', fingerprint(model));
}

std::string train_with_many_steps(const Strategy& strategy) {
  return train_for_long(strategy, kManySteps, /*failing=*/1);
}

TEST_P(MultiWorkerTraining, GivesTheSameBitsAfterManySteps) {
  expect_as_one_process(train_with_many_steps);
}

TEST_P(MultiWorkerTraining, GivesTheSameBitsWhicheverReplicaFails) {
  const int n = GetParam().replicas;
  for (const int failing : std::set{n / 2, n - 1}) {
    SCOPED_TRACE(failing);
    expect_as_one_process([failing](const Strategy& strategy) {
      return train_for_long(strategy, kFewSteps, failing);
    });
  }
}

TEST_P(MultiWorkerTraining, GivesTheSameBitsAfterManyStepsOverASlowNetwork) {
  const std::string expected = on_one_process(GetParam().replicas, train_with_many_steps);
  const NetworkOptions slow{.bytes_per_second = 20e6, .latency = std::chrono::microseconds(100)};
  EXPECT_THAT(on_workers(GetParam(), train_with_many_steps, slow), testing::Each(expected));
}

// When gradients leave. Replicas that share a device would wait for each other.

class BucketsOfAJob : public OnJobs {};
INSTANTIATE_TEST_SUITE_P(, BucketsOfAJob, testing::Values(Job{2, 2}, Job{4, 2}, Job{3, 3}),
                         name_of_job);

TEST_P(BucketsOfAJob, LeaveDuringBackwardUnlessTheyMayNotOverlapIt) {
  constexpr std::uint64_t kRange = 10'000;  // or more: what a worker sends of the largest gradient
  configure({.cpu_devices = 2});
  for (const bool overlap : {true, false}) {
    run_workers(GetParam().workers, [&](const Worker& worker) {
      const MultiWorkerMirroredStrategy strategy(
          {.worker = worker, .replicas = GetParam().replicas, .timeout = std::chrono::seconds(60)});
      const auto scope = strategy.scope();
      Model<Cnn> model;
      Optimizer<torch::optim::SGD> optimizer(
          model, torch::optim::SGDOptions(0.1),
          OptimizerOptions{.overlap = overlap, .first_bucket_bytes = 1, .bucket_bytes = 1});
      const auto bytes = [&] { return worker.exchange()->traffic().bytes; };
      const auto before = bytes();
      strategy.run([&] {
        const at::Tensor loss = loss_of(model, strategy);
        model->conv->weight.register_hook([&](const at::Tensor& gradient) {
          if (overlap) {
            EXPECT_TRUE(happens([&] { return bytes() > before + kRange; }));
          } else {
            EXPECT_EQ(bytes(), before);
          }
          return gradient;
        });
        loss.backward();
        optimizer.step();
      });
      EXPECT_GT(bytes(), before + kRange);
    });
  }
}

}  // namespace
}  // namespace cohort
