// Training loops as they are written in plain LibTorch. The same code, with a replicated model,
// must do what it does there with the whole batch.

#include "tests/optim/training.h"

namespace cohort {
namespace {

template <class Impl>
std::vector<Tensor> parameters_of(const nn::ModuleHolder<Impl>& module) {
  return module->parameters();
}
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

/// A strategy, and whether a layer is spread over the two logical devices of a replica.
struct Case : NamedStrategy {
  bool is_split = false;
};

std::vector<Case> cases() {
  std::vector<Case> all{{{"Replicas4On1", [] { return mirrored(1, 4); }}},
                        {{"Replicas4On2", [] { return mirrored(2, 4); }}},
                        {{"Replicas4On4", [] { return mirrored(4, 4); }}},
                        {{"Central4", [] { return central(4); }}}};
  const auto four_pairs = [] {
    return MirroredStrategy(
        {.devices = first_devices(4), .replicas = 4, .logical_devices_per_replica = 2});
  };
  all.push_back({{"Split4On4", four_pairs}, true});
  for (const Job& job : all_jobs()) all.push_back({NamedStrategy(job)});
  NamedStrategy pairs(all_jobs().back(), /*logical_devices_per_replica=*/2);
  pairs.name = "Split" + pairs.name;
  all.push_back({pairs, true});
  return all;
}

/// A model and its optimizer in plain LibTorch, and the same ones replicated.
template <class M, class O = optim::SGD>
struct Twins {
  template <class Options>
  Twins(const std::function<M()>& make, const ModelOptions& model_options, const Options& options,
        const OptimizerOptions& more = {})
      : plain(make()),
        plain_optimizer(plain->parameters(), options),
        model(make, model_options),
        optimizer(model, options, more) {}

  M plain;
  O plain_optimizer;
  Model<M> model;
  Optimizer<O> optimizer;
};

struct PlainLoop : OnStrategies {
  PlainLoop(const Case& parameter, const std::optional<Worker>& worker)
      : OnStrategies(parameter, worker), is_split_(parameter.is_split) {}

  const bool is_split_;
  const Batch whole_ = batch();
  const double rows_ = static_cast<double>(whole_.x.size(0));
  const Batch symbols_{torch::arange(13).remainder(7), whole_.y};
  const optim::SGDOptions options_ = optim::SGDOptions(0.1).momentum(0.9);

  /// This parameter in so many parts, where the case asks for it.
  ModelOptions split(const char* parameter, const std::vector<std::int64_t>& parts) const {
    if (!is_split_) return {};
    return {.split_parameters = {{parameter, parts}}};
  }

  // In a scope of the strategy:

  Twins<Net> nets(const OptimizerOptions& more = {}) const {
    return {Trainer<optim::SGD>::seeded(), split("first.weight", {2, 1}), options_, more};
  }
  /// With sparse gradients.
  Twins<Words> words() const {
    return {[] { return Words(); }, split("head.weight", {1, 2}), optim::SGDOptions(0.1)};
  }
  Twins<nn::Linear> linears(int seed) const {
    const auto make = [seed] {
      seed_thread(seed);
      return nn::Linear(4, 4);
    };
    return {make, split("weight", {2, 1}), options_};
  }

  template <class M, class O>
  void expect_same(Twins<M, O>& twins, double tolerance = 1e-5) const {
    expect_near(twins.model.state_dict(), state_of(*twins.plain), tolerance);
    expect_equal_copies(twins.model);
  }

  /// Expects that `step(model, optimizer, share)`, called some times in a run each, trains as in
  /// plain LibTorch, where the share is the whole batch.
  template <class M, class O, class Step>
  void expect_as_plain(Twins<M, O>&& twins, const Batch& whole, const Step& step, int times,
                       double tolerance = 1e-5) const {
    for (int i = 0; i < times; ++i) {
      step(twins.plain, twins.plain_optimizer, whole);
      strategy.run([&] { step(twins.model, twins.optimizer, own_share(whole)); });
    }
    expect_same(twins, tolerance);
  }
  template <class Step>
  void expect_as_plain(const Step& step, int times = 3) const {
    const auto scope = strategy.scope();
    expect_as_plain(nets(), whole_, step, times);
  }
  /// The same, and again with an embedding whose gradients are sparse.
  template <class Step>
  void expect_as_plain_and_sparse(const Step& step, int times = 3) const {
    const auto scope = strategy.scope();
    expect_as_plain(nets(), whole_, step, times);
    expect_as_plain(words(), symbols_, step, times);
  }
  /// The same of two models: step(first, second, first's optimizer, second's optimizer, share).
  template <class A, class B, class Step>
  void expect_both_as_plain(Twins<A>& first, Twins<B>& second, const Step& step) const {
    for (int i = 0; i < 3; ++i) {
      step(first.plain, second.plain, first.plain_optimizer, second.plain_optimizer, whole_);
      strategy.run([&] {
        step(first.model, second.model, first.optimizer, second.optimizer, own_share(whole_));
      });
    }
    expect_same(first);
    expect_same(second);
  }

  template <class M>
  Tensor loss(M& model, const Batch& share) const {
    return losses(model(share.x), share.y).sum() / whole_.x.size(0);
  }
};
SUITE_ON_EACH_WORKER(PlainLoop, Case, testing::ValuesIn(cases()));

TEST_ON_EACH_WORKER(PlainLoop, ClipsByNorm) {
  expect_as_plain_and_sparse([&](auto& model, auto& optimizer, const Batch& share) {
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
  expect_as_plain_and_sparse([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    loss(model, share).backward();
    for (const Tensor& p : parameters_of(model)) p.grad().mul_(0.5);
    for (const Tensor& p : parameters_of(model)) p.grad().data().mul_(3);
    for (const Tensor& p : parameters_of(model)) p.mutable_grad() = p.grad() * 0.5;
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, ZeroesSomeGradients) {
  expect_as_plain_and_sparse([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    loss(model, share).backward();
    parameters_of(model)[0].grad().zero_();
    parameters_of(model)[1].mutable_grad() = Tensor();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, ReadsTheNormOfTheWholeBatchsGradient) {
  std::mutex mutex;
  std::vector<double> norms[2];  // of dense gradients, and of sparse ones
  expect_as_plain_and_sparse(
      [&](auto& model, auto& optimizer, const Batch& share) {
        optimizer.zero_grad();
        loss(model, share).backward();
        const Tensor gradient = spmd::full(parameters_of(model)[0].grad());
        const double norm = gradient.norm().item<double>();
        optimizer.step();
        const std::lock_guard lock(mutex);
        norms[gradient.is_sparse()].push_back(norm);
      },
      1);
  for (const auto& each : norms) {
    EXPECT_EQ(static_cast<int>(each.size()), 1 + n_here);
    for (const double norm : each) EXPECT_NEAR(norm, each[0], 1e-6);
  }
}

TEST_ON_EACH_WORKER(PlainLoop, AddsUpTwoLosses) {
  expect_as_plain_and_sparse([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    loss(model, share).backward();
    (loss(model, share) * 0.3).backward();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, GoesBackTwiceThroughAGraphThatIsRetained) {
  expect_as_plain_and_sparse([&](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    const Tensor once = loss(model, share);
    once.backward({}, /*retain_graph=*/true);
    once.backward();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, LetsGradientsGrowWithoutZeroGrad) {
  expect_as_plain_and_sparse([&](auto& model, auto& optimizer, const Batch& share) {
    loss(model, share).backward();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, ZeroesGradientsInPlace) {
  expect_as_plain_and_sparse([&](auto& model, auto& optimizer, const Batch& share) {
    zero_gradients(optimizer, /*set_to_none=*/false);
    loss(model, share).backward();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, ZeroesGradientsThroughTheModule) {
  expect_as_plain_and_sparse([&](auto& model, auto& optimizer, const Batch& share) {
    model->zero_grad();
    loss(model, share).backward();
    optimizer.step();
  });
}

TEST_ON_EACH_WORKER(PlainLoop, SkipsAStep) {
  std::vector<int> steps(n + 1);  // of each replica, and in plain LibTorch
  expect_as_plain_and_sparse([&](auto& model, auto& optimizer, const Batch& share) {
    const bool is_plain = share.x.size(0) == whole_.x.size(0);
    optimizer.zero_grad();
    loss(model, share).backward();
    if (steps[is_plain ? n : id()]++ % 3 != 1) optimizer.step();
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
  expect_as_plain_and_sparse([&](auto& model, auto& optimizer, const Batch& share) {
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
  expect_as_plain_and_sparse([&](auto& model, auto& optimizer, const Batch& share) {
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
  expect_as_plain_and_sparse([&](auto& model, auto& optimizer, const Batch& share) {
    model->zero_grad();
    loss(model, share).backward();
    optimizer.step();
    [[maybe_unused]] const auto waiting = no_sync(optimizer);
    loss(model, share).backward();  // for another model's sake
  });
}

TEST_ON_EACH_WORKER(PlainLoop, StepsWithWhatHasGatheredInsideNoSync) {
  for (const bool set_to_none : {true, false}) {
    expect_as_plain_and_sparse([&](auto& model, auto& optimizer, const Batch& share) {
      zero_gradients(optimizer, set_to_none);
      [[maybe_unused]] const auto waiting = no_sync(optimizer);
      loss(model, share).backward();
      loss(model, share).backward();
      optimizer.step();
    });
  }
}

TEST_ON_EACH_WORKER(PlainLoop, GoesBackInOneRunAndStepsInTheNext) {
  const auto scope = strategy.scope();
  const auto expect = [&](auto&& twins, const Batch& whole) {
    for (int i = 0; i < 3; ++i) {
      twins.plain_optimizer.zero_grad();
      loss(twins.plain, whole).backward();
      twins.plain_optimizer.step();
      strategy.run([&] {
        twins.optimizer.zero_grad();
        loss(twins.model, own_share(whole)).backward();
      });
      strategy.run([&] { twins.optimizer.step(); });
    }
    expect_same(twins);
  };
  expect(nets(), whole_);
  expect(words(), symbols_);
}

TEST_ON_EACH_WORKER(PlainLoop, TakesTheMeanOfLossesThatAreMeansOfTheReplicasBatch) {
  const auto scope = strategy.scope();
  const auto step = [](auto& model, auto& optimizer, const Batch& share) {
    optimizer.zero_grad();
    losses(model(share.x), share.y).mean().backward();
    (losses(model(share.x), share.y).mean() * 0.5).backward();
    optimizer.step();
  };
  expect_as_plain(nets({.reduce = ReduceOp::MEAN}), batch(3 * n), step, 3);
}

TEST_ON_EACH_WORKER(PlainLoop, EvaluatesAClosureSeveralTimesInAStepOfLbfgs) {
  const auto make = [] {
    Net net = Trainer<optim::SGD>::seeded()();
    net->to(at::kDouble);
    return net;
  };
  const auto scope = strategy.scope();
  expect_as_plain(
      Twins<Net, optim::LBFGS>(make, split("first.weight", {2, 1}),
                               optim::LBFGSOptions(0.5).max_iter(5)),
      batch(13, at::kDouble),
      [&](auto& model, auto& optimizer, const Batch& share) {
        optimizer.step([&] {
          optimizer.zero_grad();
          const Tensor part = loss(model, share);
          part.backward();
          return part;
        });
      },
      2, 1e-8);
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
    const auto step = [&](auto& model, auto& optimizer, const Batch& share) {
      loss(model, share).backward();
      model->zero_grad(how.set_to_none);
      put_gradients_of(loss(model, share), model, how.in_place);
      optimizer.step();
    };
    how.in_place ? expect_as_plain(step) : expect_as_plain_and_sparse(step);
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
  const auto scope = strategy.scope();
  auto makers = linears(1), judges = linears(2);
  expect_both_as_plain(
      makers, judges,
      [&](auto& maker, auto& judge, auto& making, auto& judging, const Batch& share) {
        judging.zero_grad();
        (torch::relu(1 - judge(share.x)).sum() / rows_).backward();
        (torch::relu(1 + judge(maker(share.x).detach())).sum() / rows_).backward();
        judging.step();
        making.zero_grad();
        (-judge(maker(share.x)).sum() / rows_).backward();  // reaches the judge's parameters too
        making.step();
      });
}

/// How far the critic's slope is from 1 between samples and fakes.
template <class M>
Tensor slope_penalty(M& critic, const Tensor& real, const Tensor& fake, const Tensor& factors) {
  const Tensor x = (factors * real + (1 - factors) * fake).set_requires_grad(true);
  const Tensor score = critic(x);
  const Tensor slope = torch::autograd::grad({score}, {x}, {torch::ones_like(score)},
                                             /*retain_graph=*/true, /*create_graph=*/true)[0];
  return (slope.norm(2, 1) - 1).square().sum();
}

TEST_ON_EACH_WORKER(PlainLoop, TrainsAGeneratorAndACriticWithAPenaltyOnItsSlope) {  // a WGAN-GP
  const auto scope = strategy.scope();
  auto makers = linears(1);
  auto critics = nets();
  expect_both_as_plain(
      makers, critics,
      [&](auto& maker, auto& critic, auto& making, auto& judging, const Batch& share) {
        const Tensor noise = torch::cos(3 * share.x);
        const Tensor factors = (share.y + 1).unsqueeze(1) / 4;  // instead of random ones
        for (int i = 0; i < 2; ++i) {
          judging.zero_grad();
          const Tensor fake = maker(noise).detach();
          const Tensor distance = critic(share.x).sum() - critic(fake).sum();
          const Tensor penalty = slope_penalty(critic, share.x, fake, factors);
          ((0.5 * penalty - distance) / rows_).backward();
          judging.step();
        }
        making.zero_grad();
        (-critic(maker(noise)).sum() / rows_).backward();
        making.step();
      });
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
