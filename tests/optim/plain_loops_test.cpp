// Training loops as they are written in plain LibTorch. The same code, with a replicated model,
// must do what it does there with the whole batch.

#include "tests/optim/training.h"

namespace cohort {
namespace {

std::vector<Tensor> parameters_of(const Net& net) { return net->parameters(); }
template <class M>
std::vector<Tensor> parameters_of(const Model<M>& model) {
  return model.parameters();
}

// What plain LibTorch spells differently, or has not.
struct Nothing {};
Nothing no_sync(optim::SGD&) { return {}; }
auto no_sync(Optimizer<optim::SGD>& optimizer) { return optimizer.no_sync(); }
void zero_gradients(optim::SGD& optimizer, bool) { optimizer.zero_grad(); }
void zero_gradients(Optimizer<optim::SGD>& optimizer, bool set_to_none) {
  optimizer.zero_grad(set_to_none);
}

/// A strategy, and whether the first layer is spread over the two logical devices of a replica.
struct Case : NamedStrategy {
  ModelOptions options = {};
};

std::vector<Case> cases() {
  std::vector<Case> all{{{"Replicas4On1", [] { return mirrored(1, 4); }}},
                        {{"Replicas4On2", [] { return mirrored(2, 4); }}},
                        {{"Replicas4On4", [] { return mirrored(4, 4); }}},
                        {{"Central4", [] { return central(4); }}}};
  const ModelOptions split{.split_parameters = {{"first.weight", {2, 1}}}};
  const auto four_pairs = [] {
    return MirroredStrategy(
        {.devices = first_devices(4), .replicas = 4, .logical_devices_per_replica = 2});
  };
  all.push_back({{"Split4On4", four_pairs}, split});
  for (const Job& job : all_jobs()) all.push_back({NamedStrategy(job)});
  NamedStrategy pairs(all_jobs().back(), /*logical_devices_per_replica=*/2);
  pairs.name = "Split" + pairs.name;
  all.push_back({pairs, split});
  return all;
}

struct PlainLoop : OnStrategies {
  PlainLoop(const Case& parameter, const std::optional<Worker>& worker)
      : OnStrategies(parameter, worker), model_options_(parameter.options) {}

  const ModelOptions model_options_;
  const Batch whole_ = batch();
  const optim::SGDOptions options_ = optim::SGDOptions(0.1).momentum(0.9);

  /// Expects that `step(model, optimizer, share)`, called some times in a run each, trains as in
  /// plain LibTorch, where the share is the whole batch.
  template <class Step>
  void expect_as_plain(const Step& step, int times = 3, const OptimizerOptions& more = {}) {
    seed_thread(1);
    Net net;
    optim::SGD plain(net->parameters(), options_);
    for (int i = 0; i < times; ++i) step(net, plain, whole_);

    const auto scope = strategy.scope();
    Model<Net> model = make();
    Optimizer<optim::SGD> optimizer(model, options_, more);
    for (int i = 0; i < times; ++i) {
      strategy.run([&] { step(model, optimizer, own_share(whole_)); });
    }
    expect_near(model.state_dict(), state_of(*net));
    expect_equal_copies(model);
  }

  Model<Net> make() const {
    seed_thread(1);
    return Model<Net>(model_options_);
  }

  template <class M>
  Tensor loss(M& model, const Batch& share) const {
    return losses(model(share.x), share.y).sum() / whole_.x.size(0);
  }
};
SUITE_ON_EACH_WORKER(PlainLoop, Case, testing::ValuesIn(cases()));

TEST_ON_EACH_WORKER(PlainLoop, ClipsByNorm) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    loss(model, share).backward();
    nn::utils::clip_grad_norm_(parameters_of(model), 0.05);
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, ClipsByValue) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    loss(model, share).backward();
    nn::utils::clip_grad_value_(parameters_of(model), 0.01);
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, ScalesGradientsInPlaceThroughDataAndByReplacingThem) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    loss(model, share).backward();
    for (const Tensor& p : parameters_of(model)) p.grad().mul_(0.5);
    for (const Tensor& p : parameters_of(model)) p.grad().data().mul_(3);
    for (const Tensor& p : parameters_of(model)) p.mutable_grad() = p.grad() * 0.5;
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, ZeroesSomeGradients) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    loss(model, share).backward();
    parameters_of(model)[1].grad().zero_();
    parameters_of(model)[2].mutable_grad() = Tensor();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, ReadsTheNormOfTheWholeBatchsGradient) {
  std::mutex mutex;
  std::vector<double> norms;
  expect_as_plain(
      [&](auto& model, auto& optimizer, const Batch& share) {
        optimizer.zero_grad();
        loss(model, share).backward();
        const double norm =
            spmd::full(parameters_of(model)[0].grad()).norm().template item<double>();
        optimizer.step();
        const std::lock_guard lock(mutex);
        norms.push_back(norm);
      },
      1);
  EXPECT_EQ(static_cast<int>(norms.size()), 1 + n_here);
  for (const double norm : norms) EXPECT_NEAR(norm, norms[0], 1e-6);
}

TEST_ON_EACH_WORKER(PlainLoop, AddsUpTwoLosses) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    loss(model, share).backward();
    (loss(model, share) * 0.3).backward();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, GoesBackTwiceThroughAGraphThatIsRetained) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    const Tensor once = loss(model, share);
    once.backward({}, /*retain_graph=*/true);
    once.backward();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, LetsGradientsGrowWithoutZeroGrad) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    loss(model, share).backward();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, ZeroesGradientsInPlace) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    zero_gradients(optimizer, /*set_to_none=*/false);
    loss(model, share).backward();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, ZeroesGradientsThroughTheModule) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    model->zero_grad();
    loss(model, share).backward();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, SkipsAStep) {
  std::vector<int> steps(n + 1);  // of each replica, and in plain LibTorch
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    const bool is_plain = share.x.size(0) == whole_.x.size(0);
    optimizer.zero_grad();
    loss(model, share).backward();
    if (steps[is_plain ? n : id()]++ != 1) optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, StartsFromGradientsThatTheProgramHasPutThere) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    for (const Tensor& p : parameters_of(model)) p.mutable_grad() = p.detach() * 0.01;
    loss(model, share).backward();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, KeepsWhatAPassHasAddedWhenGradientsAreHalvedInBetween) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    loss(model, share).backward();
    for (const Tensor& p : parameters_of(model)) p.grad().mul_(0.5);
    loss(model, share).backward();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, GoesBackWithAGraphOfTheGradients) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    loss(model, share).backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, PenalizesTheGradientOfItsInput) {  // as in a WGAN-GP
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    const Tensor x = share.x.clone().set_requires_grad(true);
    const Tensor score = model(x).sum();
    const Tensor slope = torch::autograd::grad({score}, {x}, {}, true, /*create_graph=*/true)[0];
    const Tensor penalty = (slope.norm(2, 1) - 1).square().sum() / whole_.x.size(0);
    (loss(model, share) + 0.1 * penalty).backward();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, GathersInsideNoSyncOnTopOfWhatIsThere) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    loss(model, share).backward();
    {
      [[maybe_unused]] const auto waiting = no_sync(optimizer);
      loss(model, share).backward();
      loss(model, share).backward();
    }
    (loss(model, share) * 0.5).backward();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, SumsWhatHasGatheredInsideNoSyncThoughTheNextPassDoesNotReachIt) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    {
      [[maybe_unused]] const auto waiting = no_sync(optimizer);
      (model->hidden(share.x).sum() / 13).backward();
    }
    const Tensor ones = torch::ones({share.x.size(0), 8});
    (model->second(ones).sum() / 13).backward();
    nn::utils::clip_grad_norm_(parameters_of(model), 0.1);
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, ClearsThroughTheModuleWhatHasGatheredInsideNoSync) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    model->zero_grad();
    loss(model, share).backward();
    optimizer.step();
    [[maybe_unused]] const auto waiting = no_sync(optimizer);
    loss(model, share).backward();  // for another model's sake
  });
}

TEST_ON_EACH_WORKER(PlainLoop, StepsWithWhatHasGatheredInsideNoSync) {
  for (const bool set_to_none : {true, false}) {
    expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
      zero_gradients(optimizer, set_to_none);
      [[maybe_unused]] const auto waiting = no_sync(optimizer);
      loss(model, share).backward();
      loss(model, share).backward();
      optimizer.step();
    });
  }
}

TEST_ON_EACH_WORKER(PlainLoop, GoesBackInOneRunAndStepsInTheNext) {
  seed_thread(1);
  Net net;
  optim::SGD plain(net->parameters(), options_);
  const auto scope = strategy.scope();
  Model<Net> model = make();
  Optimizer<optim::SGD> optimizer(model, options_);
  for (int i = 0; i < 3; ++i) {
    plain.zero_grad();
    loss(net, whole_).backward();
    plain.step();
    strategy.run([&] {
      optimizer.zero_grad();
      loss(model, own_share(whole_)).backward();
    });
    strategy.run([&] { optimizer.step(); });
  }
  expect_near(model.state_dict(), state_of(*net));
}

TEST_ON_EACH_WORKER(PlainLoop, TakesTheMeanOfLossesThatAreMeansOfTheReplicasBatch) {
  const Batch even = batch(3 * n);
  seed_thread(1);
  Net net;
  optim::SGD plain(net->parameters(), options_);
  const auto scope = strategy.scope();
  Model<Net> model = make();
  Optimizer<optim::SGD> optimizer(model, options_, {.reduce = ReduceOp::MEAN});
  const auto step = [](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    losses(model(share.x), share.y).mean().backward();
    (losses(model(share.x), share.y).mean() * 0.5).backward();
    optimizer.step();
  };
  for (int i = 0; i < 3; ++i) {
    step(net, plain, even);
    strategy.run([&] { step(model, optimizer, own_share(even)); });
  }
  expect_near(model.state_dict(), state_of(*net));
}

// Gradients that the program puts there after the module's own zero_grad.

/// How a gradient is cleared, and how another one is put in its place.
struct Putting {
  bool set_to_none, in_place;
};
constexpr Putting kPuttings[] = {{true, false}, {false, false}, {false, true}};

void put(const Tensor& parameter, const Tensor& gradient, bool in_place) {
  if (in_place && parameter.grad().defined()) {
    parameter.grad().copy_(gradient);
  } else {
    parameter.mutable_grad() = gradient;
  }
}

template <class M>
void put_gradients_of(const Tensor& loss, const M& model, bool in_place) {
  const auto parameters = parameters_of(model);
  const auto gradients = torch::autograd::grad({loss}, parameters);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    put(parameters[p], gradients[p].clone(), in_place);  // LibTorch may give views
  }
}

TEST_ON_EACH_WORKER(PlainLoop, SumsWhatIsPutThereAfterTheModulesZeroGrad) {
  for (const Putting& how : kPuttings) {
    expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
      loss(model, share).backward();
      model->zero_grad(how.set_to_none);
      put_gradients_of(loss(model, share), model, how.in_place);
      optimizer.step();
    });
  }
}

TEST_ON_EACH_WORKER(PlainLoop, SumsWhatIsPutThereAfterTheModulesZeroGradOfChangedGradients) {
  for (const Putting& how : kPuttings) {
    expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
      loss(model, share).backward();
      for (const Tensor& p : parameters_of(model)) p.mutable_grad() = p.grad() * 0.5;
      for (const Tensor& p : parameters_of(model)) p.grad().clamp_(-1, 1);
      model->zero_grad(how.set_to_none);
      put_gradients_of(loss(model, share), model, how.in_place);
      optimizer.step();
    });
  }
}

TEST_ON_EACH_WORKER(PlainLoop, SumsWhatIsPutThereAfterTheModulesZeroGradOfAppliedGradients) {
  for (const Putting& how : kPuttings) {
    expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
      model->zero_grad(how.set_to_none);
      put_gradients_of(loss(model, share), model, how.in_place);
      optimizer.step();
    });
  }
}

TEST_ON_EACH_WORKER(PlainLoop, SumsWhatIsPutThereAfterTheModulesZeroGradOfGatheredGradients) {
  for (const bool is_mixed : {true, false}) {
    for (const Putting& how : kPuttings) {
      expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
        optimizer.zero_grad();
        if (is_mixed) loss(model, share).backward();
        [[maybe_unused]] const auto waiting = no_sync(optimizer);
        loss(model, share).backward();
        model->zero_grad(how.set_to_none);
        put_gradients_of(loss(model, share), model, how.in_place);
        optimizer.step();
      });
    }
  }
}

TEST_ON_EACH_WORKER(PlainLoop, AddsAPassToWhatIsPutThereAfterTheModulesZeroGrad) {
  for (const bool is_gathered : {true, false}) {
    for (const Putting& how : kPuttings) {
      expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
        optimizer.zero_grad();
        if (is_gathered) {
          [[maybe_unused]] const auto waiting = no_sync(optimizer);
          loss(model, share).backward();
        } else {
          loss(model, share).backward();
        }
        model->zero_grad(how.set_to_none);
        for (const Tensor& p : parameters_of(model)) put(p, p.detach() * 0.01, how.in_place);
        loss(model, share).backward();
        optimizer.step();
      });
    }
  }
}

TEST_ON_EACH_WORKER(PlainLoop, ChangesAlikeWhatItHasZeroedInPlaceOrReplaced) {
  expect_as_plain([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    loss(model, share).backward();
    const auto parameters = parameters_of(model);
    parameters[0].grad().zero_();
    parameters[1].mutable_grad() = parameters[1].grad() * 0;
    parameters[2].mutable_grad() = parameters[2].grad().detach();
    for (const Tensor& p : parameters) p.grad().add_(p.detach(), 0.01);
    for (const Tensor& p : parameters) p.mutable_grad() = p.grad() + p.detach() * 0.01;
    optimizer.step();
  });
}

// Two models.

TEST_ON_EACH_WORKER(PlainLoop, TrainsAGeneratorAndADiscriminator) {
  const auto make = [](int seed) {
    seed_thread(seed);
    return nn::Linear(4, 4);
  };
  nn::Linear plain_maker = make(1), plain_judge = make(2);
  optim::SGD plain_making(plain_maker->parameters(), options_);
  optim::SGD plain_judging(plain_judge->parameters(), options_);
  const auto scope = strategy.scope();
  Model<nn::Linear> maker([&] { return make(1); }), judge([&] { return make(2); });
  Optimizer<optim::SGD> making(maker, options_), judging(judge, options_);

  const double rows = static_cast<double>(whole_.x.size(0));
  const auto step = [&](auto& maker, auto& judge, auto& making, auto& judging, const Tensor& x) {
    judging.zero_grad();
    (torch::relu(1 - judge(x)).sum() / rows).backward();
    (torch::relu(1 + judge(maker(x).detach())).sum() / rows).backward();
    judging.step();
    making.zero_grad();
    (-judge(maker(x)).sum() / rows).backward();  // reaches the judge's parameters too
    making.step();
  };
  for (int i = 0; i < 3; ++i) {
    step(plain_maker, plain_judge, plain_making, plain_judging, whole_.x);
    strategy.run([&] { step(maker, judge, making, judging, own_share(whole_).x); });
  }
  expect_on_every_replica(maker, state_of(*plain_maker));
  expect_on_every_replica(judge, state_of(*plain_judge));
}

// Sparse gradients.

TEST_ON_EACH_WORKER(PlainLoop, ScalesAndAccumulatesSparseGradients) {
  const Batch whole{torch::arange(12).remainder(7), torch::arange(12).remainder(3)};
  const auto step = [&](auto& model, auto& optimizer, const Batch& share) {
    zero_gradients(optimizer, true);
    (losses(model(share.x), share.y).sum() / 12).backward();
    (losses(model(share.x), share.y).sum() / 12).backward();
    for (const Tensor& p : model->parameters()) p.grad().mul_(0.5);
    optimizer.step();
  };
  Words plain;
  optim::SGD plain_optimizer(plain->parameters(), optim::SGDOptions(0.1));
  const auto scope = strategy.scope();
  Model<Words> model;
  Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.1));
  for (int i = 0; i < 3; ++i) {
    step(plain, plain_optimizer, whole);
    strategy.run([&] { step(model, optimizer, own_share(whole)); });
  }
  expect_on_every_replica(model, state_of(*plain));
}

TEST_ON_EACH_WORKER(PlainLoop, SumsSparseGradientsThatArePutThereAfterTheModulesZeroGrad) {
  const Batch whole{torch::arange(12).remainder(7), torch::arange(12).remainder(3)};
  for (const bool set_to_none : {true, false}) {
    const auto step = [&](auto& model, auto& optimizer, const Batch& share) {
      (losses(model(share.x), share.y).sum() / 12).backward();
      model->zero_grad(set_to_none);
      const auto parameters = model->parameters();
      const auto gradients =
          torch::autograd::grad({losses(model(share.x), share.y).sum() / 12}, parameters);
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        parameters[p].mutable_grad() = gradients[p];
      }
      optimizer.step();
    };
    Words plain;
    optim::SGD plain_optimizer(plain->parameters(), optim::SGDOptions(0.1));
    const auto scope = strategy.scope();
    Model<Words> model;
    Optimizer<optim::SGD> optimizer(model, optim::SGDOptions(0.1));
    for (int i = 0; i < 3; ++i) {
      step(plain, plain_optimizer, whole);
      strategy.run([&] { step(model, optimizer, own_share(whole)); });
    }
    expect_on_every_replica(model, state_of(*plain));
  }
}

// Memory that gradients share.

/// Autograd gives `a` and `b` one gradient, seen in two shapes.
struct SharedImpl : nn::Module {
  Tensor forward(const Tensor& x) { return (x * (a.view(-1) + b)).tanh(); }
  Tensor a = register_parameter("a", torch::full({2, 2}, 0.3));
  Tensor b = register_parameter("b", torch::full({4}, 0.2));
};
TORCH_MODULE(Shared);

TEST_ON_EACH_WORKER(PlainLoop, SumsGradientsOfTwoParametersThatShareMemory) {
  Shared plain;
  optim::SGD plain_optimizer(plain->parameters(), options_);
  const auto scope = strategy.scope();
  Model<Shared> model;
  Optimizer<optim::SGD> optimizer(model, options_);
  for (int i = 0; i < 3; ++i) {
    plain_optimizer.zero_grad();
    plain(whole_.x).sum().backward();
    plain_optimizer.step();
    strategy.run([&] {
      optimizer.zero_grad();
      model(own_share(whole_).x).sum().backward();
      optimizer.step();
    });
  }
  expect_on_every_replica(model, state_of(*plain));
}

}  // namespace
}  // namespace cohort
