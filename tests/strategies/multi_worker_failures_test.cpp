#include <atomic>
#include <barrier>
#include <stdexcept>
#include <thread>

#include "tests/strategies/failing_job.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

class MultiWorkerFailures : public OnJobs {};
INSTANTIATE_TEST_SUITE_P(, MultiWorkerFailures,
                         testing::Values(Job{8, 2}, Job{8, 3}, Job{5, 3}, Job{2, 2}), name_of_job);

TEST_P(MultiWorkerFailures, DifferentCallsAreNamedOnAllWorkers) {
  const auto texts = on_each_worker(GetParam(), [](const Strategy& strategy, int worker) {
    const auto text = thrown_by([&] {
      strategy.run([&] {
        auto& replica = get_replica_context();
        if (worker == 1) {
          replica.all_gather(at::ones({2}), 0);
        } else {
          replica.all_reduce("SUM", at::ones({2}));
        }
      });
    });
    expect_usable(strategy);
    return text;
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("InvalidArgument"), HasSubstr("all_reduce(SUM)"),
                                HasSubstr("all_gather"), HasSubstr("worker 1"))));
}

TEST_P(MultiWorkerFailures, DifferentSizesAreNamedOnAllWorkers) {
  const auto texts = on_each_worker(GetParam(), [](const Strategy& strategy, int worker) {
    const auto text = thrown_by([&] {
      strategy.run(
          [&] { get_replica_context().all_reduce("SUM", at::ones({worker == 1 ? 30'000 : 2})); });
    });
    expect_usable(strategy);
    return text;
  });
  EXPECT_THAT(texts,
              Each(AllOf(HasSubstr("InvalidArgument"), HasSubstr("[30000]"), HasSubstr("[2]"))));
}

TEST_P(MultiWorkerFailures, AMismatchThatReplicasCatchLeavesTheRunUsable) {
  const auto texts = on_each_worker(GetParam(), [](const Strategy& strategy, int worker) {
    const auto results = strategy.run([&] {
      const std::string text =
          thrown_by([&] { get_replica_context().all_reduce("SUM", at::ones({worker + 1})); });
      return text.substr(0, 15) + cat(sum_of_ids()[0].item<double>());
    });
    return strategy.local_results(results)[0];
  });
  const int n = GetParam().replicas;
  EXPECT_THAT(texts, Each(cat("InvalidArgument", n * (n + 1) / 2.0)));
}

TEST_P(MultiWorkerFailures, ARunThatThrowsIsCancelledOnTheOthers) {
  const int last = GetParam().replicas - 1, workers = GetParam().workers;
  const auto texts = on_each_worker(GetParam(), [&](const Strategy& strategy, int) {
    const auto text = thrown_by([&] {
      strategy.run([&] {
        if (id() == last) throw std::runtime_error("no more coffee");
        sum_of_ids();
      });
    });
    expect_usable(strategy);
    return text;
  });
  for (int w = 0; w + 1 < workers; ++w) {
    EXPECT_THAT(texts[w],
                AllOf(HasSubstr("Cancelled"), HasSubstr("no more coffee"),
                      HasSubstr(cat("worker ", workers - 1)), HasSubstr(cat("replica ", last))));
  }
  EXPECT_THAT(texts[workers - 1], AllOf(HasSubstr("another"), HasSubstr("no more coffee")));
}

TEST_P(MultiWorkerFailures, AFailedRunChangesNoLaterRandomNumbers) {
  const auto program = [](const Strategy& strategy) {
    strategy.run([] { return at::rand({2}); });
    thrown_by([&] {
      strategy.run([&] {
        if (id() == 0) throw std::runtime_error("once");
        sum_of_ids();
      });
    });
    return bits_of(strategy.gather(strategy.run([] { return at::rand({2}); }), 0));
  };
  const std::string expected = on_one_process(GetParam().replicas, program);
  EXPECT_THAT(on_workers(GetParam(), program), Each(expected));
}

/// The others have ended the run that fails, and lose the next one instead: both are one on one
/// process.
TEST_P(MultiWorkerFailures, AWorkerThatIsOneRunAheadLosesThatRunAndNoRandomNumbers) {
  std::atomic<int> ended{0};
  const auto program = [&](const Strategy& strategy) {
    const World& world = strategy.extended().world();
    strategy.run([] { return at::rand({2}); });
    const auto first = thrown_by([&] {
      strategy.run([&] {
        if (id() != 0) return;
        EXPECT_TRUE(happens([&] { return ended == world.workers() - 1; }));
        throw std::runtime_error("behind");
      });
    });
    if (world.is_chief()) {
      EXPECT_THAT(first, HasSubstr("behind"));
    } else {
      EXPECT_EQ(first, "nothing");
      ++ended;
      EXPECT_THAT(thrown_by([&] { strategy.run([] { sum_of_ids(); }); }),
                  AllOf(HasSubstr("Cancelled"), HasSubstr("behind")));
    }
    expect_usable(strategy);
    return bits_of(strategy.gather(strategy.run([] { return at::rand({2}); }), 0));
  };
  const std::string expected = on_one_process(GetParam().replicas, program);
  EXPECT_THAT(on_workers(GetParam(), program), Each(expected));
}

TEST_P(MultiWorkerFailures, TrainingGoesOnWithTheSameBitsAfterAnError) {
  const auto program = [](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Model<torch::nn::Linear> model(300, 40);
    Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.1));
    const auto step = [&](bool fails) {
      optimizer.zero_grad();
      model(at::rand({2, 300})).square().mean().backward();
      if (fails && id() == 1) throw std::runtime_error("in the middle");
      optimizer.step();
    };
    for (int i = 0; i < 4; ++i) {
      thrown_by([&] { strategy.run([&] { step(i == 1); }); });
    }
    return fingerprint(model);
  };
  const std::string expected = on_one_process(GetParam().replicas, program);
  EXPECT_THAT(on_workers(GetParam(), program), Each(expected));
}

TEST_P(MultiWorkerFailures, AParameterThatSomeReplicasDoNotUseIsAnErrorOnAll) {
  const auto texts = on_each_worker(GetParam(), [](const Strategy& strategy, int) {
    const auto scope = strategy.scope();
    Model<torch::nn::Linear> used(200, 200), seldom(2, 2);
    Optimizer<torch::optim::SGD> optimizer({used, seldom}, torch::optim::SGDOptions(0.1));
    const auto step = [&](bool all) {
      at::Tensor loss = used(at::ones({1, 200})).sum();
      if (all || id() == 0) loss = loss + seldom(at::ones({1, 2})).sum();
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    };
    const auto text = thrown_by([&] { strategy.run([&] { step(false); }); });
    strategy.run([&] { thrown_by([&] { step(false); }); });  // the replicas keep it to themselves
    strategy.run([&] { step(true); });
    return text + fingerprint(used);
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("ValueError"), HasSubstr("1.weight"),
                                HasSubstr("on replica 0"))));
  const std::string fingerprint_of_first = texts[0].substr(texts[0].size() - 16);
  EXPECT_THAT(texts, Each(testing::EndsWith(fingerprint_of_first)));
}

TEST_P(MultiWorkerFailures, ALoopOverDataGoesOnAfterAFailedRun) {
  const auto program = [](const Strategy& strategy) {
    std::string text;
    int step = 0;
    for (const auto& batch :
         strategy.distribute_dataset(data::range(40).batch(strategy.num_replicas_in_sync()))) {
      const std::string thrown = thrown_by([&] {
        const auto sums = strategy.run(
            [&](const at::Tensor& own) {
              if (step == 1 && id() == 0) throw std::runtime_error("in step 1");
              return get_replica_context().all_reduce("SUM", own.sum().to(at::kDouble));
            },
            batch);
        text += bits_of(strategy.local_results(sums)[0]);
      });
      text += thrown == "nothing" ? "" : "failed\n";
      ++step;
    }
    return text;
  };
  const std::string expected = on_one_process(GetParam().replicas, program);
  EXPECT_THAT(on_workers(GetParam(), program), Each(expected));
}

TEST_P(MultiWorkerFailures, ARunThatFailsBehindItsLastCollectiveCostsAllWorkersTheNextOne) {
  for (const int failing : {0, GetParam().replicas / 2, GetParam().replicas - 1}) {
    const auto texts = on_each_worker(GetParam(), [&](const Strategy& strategy, int) {
      std::string text;
      int step = 0;
      const auto dataset = data::range(48).batch(strategy.num_replicas_in_sync());
      for (const auto& batch : strategy.distribute_dataset(dataset)) {
        const std::string thrown = thrown_by([&] {
          const auto sums = strategy.run(
              [&](const at::Tensor& own) {
                const at::Tensor sum =
                    get_replica_context().all_reduce("SUM", own.sum() + at::rand({}));
                if (step == 1 && id() == failing) throw std::runtime_error("behind the sum");
                return sum;
              },
              batch);
          if (step != 1) text += bits_of(strategy.local_results(sums)[0]);
        });
        if (step == 1 || thrown == "nothing") {
          // a worker without the failing replica has ended its run before that one failed
        } else {
          EXPECT_THAT(thrown, AllOf(HasSubstr("Cancelled"), HasSubstr("behind the sum")));
          text += cat("lost ", step, '\n');
        }
        ++step;
      }
      return text;
    });
    EXPECT_THAT(texts, Each(texts[0])) << failing;
    EXPECT_THAT(texts[0], HasSubstr("lost 2\n")) << failing;
    EXPECT_THAT(texts[0], Not(HasSubstr("lost 3\n"))) << failing;
  }
}

TEST_P(MultiWorkerFailures, TheFirstCallAfterAFailedRunMayBeAnyCollective) {
  const auto texts = on_each_worker(GetParam(), [](const Strategy& strategy, int) {
    const auto scope = strategy.scope();
    Model<torch::nn::Linear> model(2, 1);
    thrown_by([&] {
      strategy.run([&] {
        if (id() == 0) throw std::runtime_error("once");
        sum_of_ids();
      });
    });
    const auto print = fingerprint(model);  // to save what there is, say
    const auto drawn = strategy.gather(strategy.run([] { return at::rand({1}); }), 0);
    return print + bits_of(drawn);
  });
  EXPECT_THAT(texts, Each(texts[0]));
}

TEST_P(MultiWorkerFailures, AStepThatOneWorkerHasMadeBeforeItThrewIsMadeByAll) {
  const auto program = [](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Model<torch::nn::Linear> model(300, 40);
    Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.1));
    std::string text;
    for (int i = 0; i < 20; ++i) {
      thrown_by([&] {
        strategy.run([&] {
          optimizer.zero_grad();
          model(at::rand({2, 300})).square().mean().backward();
          optimizer.step();
          if (id() == i % strategy.num_replicas_in_sync()) throw std::runtime_error("behind it");
          sum_of_ids();
        });
      });
      text += fingerprint(model) + ' ';
    }
    return text;
  };
  const std::string expected = on_one_process(GetParam().replicas, program);
  EXPECT_THAT(on_workers(GetParam(), program), Each(expected));
}

TEST_P(MultiWorkerFailures, ValuesThatCantBeAddedAreAnErrorOnAllAndTheNextCallWorks) {
  const auto texts = on_each_worker(GetParam(), [](const Strategy& strategy, int) {
    const auto flags = strategy.run([] { return at::ones({2}, at::kBool); });
    const auto text = thrown_by([&] { strategy.reduce("SUM", flags); });
    expect_usable(strategy);
    return text;
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("InvalidArgument"), HasSubstr("cannot be added"))));
}

TEST_P(MultiWorkerFailures, WhatFailsOnOneWorkerInACallOfAllFailsItOnAll) {
  const auto texts = on_each_worker(GetParam(), [](const Strategy& strategy, int worker) {
    const auto scope = strategy.scope();
    const auto text = thrown_by([&] {
      const Variable v(
          [&]() -> at::Tensor {
            if (worker == 1) throw std::runtime_error("no such file");
            return at::ones({2});
          },
          {.name = "v"});
    });
    expect_usable(strategy);
    return text;
  });
  for (const std::string& text : texts) EXPECT_THAT(text, HasSubstr("no such file"));
}

TEST_P(MultiWorkerFailures, ArgumentsOfAnUpdateThatDifferBetweenWorkersAreTold) {
  const auto texts = on_each_worker(GetParam(), [](const Strategy& strategy, int worker) {
    const auto scope = strategy.scope();
    const Variable v(at::ones({2}), {.aggregation = Aggregation::SUM});
    const auto update_by = [&](double value) {
      return thrown_by([&] {
        strategy.run([&] {
          strategy.extended().update(
              v, [](at::Tensor& copy, const at::Tensor& x, double y) { copy.add_(x + y); },
              at::full({2}, value), 1.0);
        });
      });
    };
    std::string text = update_by(1);
    EXPECT_EQ(v.read_value()[0].item<double>(), 3);
    text += update_by(worker);
    EXPECT_EQ(v.read_value()[0].item<double>(), 3);
    return text;
  });
  EXPECT_THAT(texts, Each(AllOf(testing::StartsWith("nothing"), HasSubstr("worker 1"),
                                HasSubstr("mirrored across replicas"))));
}

TEST_P(MultiWorkerFailures, ARunBesideACrossReplicaCallNamesBoth) {
  const auto texts = on_each_worker(GetParam(), [](const Strategy& strategy, int worker) {
    const auto values = strategy.run([] { return at::ones({2}); });
    const auto text = thrown_by([&] {
      if (worker == 1) {
        strategy.reduce("SUM", values);
      } else {
        strategy.run([] { sum_of_ids(); });
      }
    });
    return text;
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("InvalidArgument"), HasSubstr("strategy.reduce"),
                                HasSubstr("all_reduce"))));
}

TEST_P(MultiWorkerFailures, ThreadsThatRunInOtherOrdersOnTheWorkersAreTold) {
  const auto texts = on_each_worker(GetParam(), [](const Strategy& strategy, int worker) {
    std::string first, second;
    const auto sum = [&] { first = thrown_by([&] { strategy.run([] { sum_of_ids(); }); }); };
    const auto gather = [&] {
      second = thrown_by(
          [&] { strategy.run([] { get_replica_context().all_gather(at::ones({1}), 0); }); });
    };
    std::thread one(worker == 1 ? std::function<void()>(gather) : sum);
    one.join();
    std::thread two(worker == 1 ? std::function<void()>(sum) : gather);
    two.join();
    return worker == 1 ? second + ' ' + first : first + ' ' + second;
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("InvalidArgument"), HasSubstr("all_reduce(SUM)"),
                                HasSubstr("all_gather"))));
}

/// Which of the two begins first on a worker is chance.
TEST_P(MultiWorkerFailures, ThreadsThatRunAtTheSameTimeAreInOneOrderOrAreTold) {
  const auto texts = on_each_worker(GetParam(), [](const Strategy& strategy, int) {
    std::string outcomes;
    for (int i = 0; i < 10; ++i) {
      std::string first, second;
      std::barrier both(2);
      std::thread other([&] {
        both.arrive_and_wait();
        second = thrown_by(
            [&] { strategy.run([] { get_replica_context().all_gather(at::ones({1}), 0); }); });
      });
      both.arrive_and_wait();
      first = thrown_by([&] { strategy.run([] { sum_of_ids(); }); });
      other.join();
      if (first == "nothing" && second == "nothing") {
        outcomes += "in order, ";
        continue;
      }
      for (const std::string& text : {first, second}) {
        EXPECT_THAT(text, AllOf(HasSubstr("InvalidArgument"), HasSubstr("all_reduce(SUM)"),
                                HasSubstr("all_gather")));
      }
      outcomes += "told, ";
    }
    expect_usable(strategy);
    return outcomes;
  });
  EXPECT_THAT(texts, Each(texts[0]));
}

TEST_P(MultiWorkerFailures, ADatasetThatOneWorkerHasLeftEndsNothingElse) {
  const auto texts = on_each_worker(GetParam(), [](const Strategy& strategy, int worker) {
    std::string text;
    {
      const auto numbers =
          strategy.distribute_dataset(data::range(64).batch(strategy.num_replicas_in_sync()));
      auto next = numbers.begin();
      if (worker != 1) text = thrown_by([&] { ++next; });
    }
    expect_usable(strategy);
    return text;
  });
  for (int w = 0; w < GetParam().workers; ++w) {
    if (w == 1) continue;
    EXPECT_THAT(texts[w], AllOf(HasSubstr("Unavailable"), HasSubstr("worker 1")));
  }
}

TEST_P(MultiWorkerFailures, ADatasetThatOneWorkerMakesAloneIsNamed) {
  const auto texts = on_each_worker(GetParam(), [](const Strategy& strategy, int worker) {
    const auto text = thrown_by([&] {
      if (worker == 0) {
        strategy.distribute_dataset(data::range(8).batch(8));
      } else {
        const auto scope = strategy.scope();
        Model<torch::nn::Linear> model(2, 1);
      }
    });
    expect_usable(strategy);
    return text;
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("InvalidArgument"),
                                HasSubstr("strategy.distribute_dataset"), HasSubstr("Model"))));
}

TEST_P(MultiWorkerFailures, ARunWithoutACollectiveSendsNothing) {
  configure({.cpu_devices = 2});
  run_workers(GetParam().workers, [&](const Worker& worker) {
    const MultiWorkerMirroredStrategy strategy({.worker = worker, .replicas = GetParam().replicas});
    expect_usable(strategy);
    const auto before = worker.exchange()->traffic().messages;
    for (int i = 0; i < 10; ++i) strategy.run([] { return at::rand({2}); });
    EXPECT_EQ(worker.exchange()->traffic().messages, before);
  });
}

TEST(MultiWorkerMirroredStrategy, WorkersMustAskForTheSameJob) {
  run_workers(2, [](const Worker& worker) {
    EXPECT_FAILS(MultiWorkerMirroredStrategy({.worker = worker, .replicas = 4 + worker.index()}),
                 ValueError, "worker 1 for 5");
    EXPECT_FAILS(MultiWorkerMirroredStrategy({.worker = worker, .replicas = 1}), ValueError,
                 "fewer replicas than workers");
  });
}

TEST(MultiWorkerMirroredStrategy, ReplicasAreDealtInBlocks) {
  configure({.cpu_devices = 2});
  std::vector<std::string> blocks(3);
  run_workers(3, [&](const Worker& worker) {
    const MultiWorkerMirroredStrategy strategy({.worker = worker, .replicas = 8});
    const auto ids = strategy.local_results(strategy.run([] { return id(); }));
    blocks[worker.index()] = cat(ids.front(), '-', ids.back());
    EXPECT_EQ(strategy.num_replicas_in_sync(), 8);
    EXPECT_EQ(strategy.extended().should_checkpoint(), worker.is_chief());
    EXPECT_EQ(strategy.extended().worker_devices()[0].name(),
              cat("/job:worker/replica:0/task:", worker.index(), "/device:CPU:0"));
  });
  EXPECT_THAT(blocks, testing::ElementsAre("0-2", "3-5", "6-7"));
}

TEST(MultiWorkerMirroredStrategy, WithoutAWorkerIsAJobOfThisProcess) {
  configure({.cpu_devices = 2});
  const MultiWorkerMirroredStrategy strategy({.replicas = 3});
  EXPECT_EQ(strategy.num_replicas_in_sync(), 3);
  expect_usable(strategy);
}

}  // namespace
}  // namespace cohort
