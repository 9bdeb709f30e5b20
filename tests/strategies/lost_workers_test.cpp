// Workers that are late, absent, stopped or gone, whatever the others are doing.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <memory>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <tuple>

#include "cohort/collectives/world_lane.h"
#include "tests/base/captured_log.h"
#include "tests/strategies/failing_job.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// Gone.

/// A worker of a job that dies.
struct Loss {
  Job job;
  int lost;

  friend void PrintTo(const Loss& loss, std::ostream* out) { *out << "worker " << loss.lost; }
};

class LostWorker : public testing::TestWithParam<Loss> {
 protected:
  using WorkersCall = std::function<void()>;

  void SetUp() override { configure({.cpu_devices = 2}); }

  /// Every worker prepares a call. One of them dies before it makes it: all others are told, in
  /// this call and in any other one.
  void expect_named_in(const std::function<WorkersCall(const Strategy&)>& prepare) const {
    const Job job = GetParam().job;
    const int lost = GetParam().lost;
    ThreadNetwork network(job.workers);
    std::vector<std::string> texts(job.workers);
    std::atomic<int> ready{0}, told{0};
    on_network(network, [&](const Worker& worker) {
      const MultiWorkerMirroredStrategy strategy(
          {.worker = worker, .replicas = job.replicas, .timeout = std::chrono::seconds(60)});
      const WorkersCall call = prepare(strategy);
      expect_usable(strategy);
      ++ready;
      EXPECT_TRUE(happens([&] { return ready == job.workers; }));
      if (worker.index() == lost) network.lose(lost, "its process has died");
      texts[worker.index()] = thrown_by(call);
      EXPECT_THAT(thrown_by([&] { strategy.run([] { sum_of_ids(); }); }), HasSubstr("Unavailable"));
      ++told;
      EXPECT_TRUE(happens([&] { return told == job.workers; }));
    });
    expect_named(texts, cat("worker ", lost, " (replica"));
  }

  void expect_named(const std::vector<std::string>& texts, const std::string& name) const {
    for (int w = 0; w < GetParam().job.workers; ++w) {
      if (w == GetParam().lost) continue;
      EXPECT_THAT(texts[w], AllOf(HasSubstr("Unavailable"), HasSubstr(name),
                                  HasSubstr("is gone: its process has died")));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(, LostWorker,
                         testing::Values(Loss{{8, 3}, 0}, Loss{{8, 3}, 2}, Loss{{3, 3}, 1},
                                         Loss{{2, 2}, 0}, Loss{{2, 2}, 1}),
                         [](const auto& info) {
                           return cat("Worker", info.param.lost, "Of", name_of(info.param.job));
                         });

TEST_P(LostWorker, IsNamedInACollectiveOfReplicas) {
  expect_named_in(
      [](const Strategy& strategy) { return [strategy] { strategy.run([] { sum_of_ids(); }); }; });
}

TEST_P(LostWorker, IsNamedInAReduction) {
  expect_named_in([](const Strategy& strategy) {
    const auto values = strategy.run([] { return at::ones({2}); });
    return [strategy, values] { strategy.reduce("SUM", values); };
  });
}

TEST_P(LostWorker, IsNamedInTheForwardPassOfSyncBatchNorm) {
  expect_named_in([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    const Model<SyncBatchNorm> model(3);
    return [strategy, model] { strategy.run([&] { model(at::ones({2, 3})); }); };
  });
}

TEST_P(LostWorker, IsNamedInBackward) {
  expect_named_in([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    const Model<torch::nn::Linear> model(4, 3);
    const auto optimizer =
        std::make_shared<Optimizer<torch::optim::SGD>>(model, torch::optim::SGDOptions(0.1));
    return [strategy, model, optimizer] {
      strategy.run([&] {
        model(at::ones({2, 4})).sum().backward();
        optimizer->step();
      });
    };
  });
}

TEST_P(LostWorker, IsNamedInAStepOfInput) {
  expect_named_in([](const Strategy& strategy) {
    const auto numbers =
        strategy.distribute_dataset(data::range(64).batch(strategy.num_replicas_in_sync()));
    const auto pass = std::make_shared<DistributedIterator<at::Tensor>>(numbers.iterator());
    return [pass] { pass->get_next(); };
  });
}

TEST_P(LostWorker, IsNamedInTheConstructorOfTheStrategy) {
  const Job job = GetParam().job;
  ThreadNetwork network(job.workers);
  network.lose(GetParam().lost, "its process has died");
  std::vector<std::string> texts(job.workers);
  on_network(network, [&](const Worker& worker) {
    texts[worker.index()] = thrown_by([&] {
      const MultiWorkerMirroredStrategy strategy(
          {.worker = worker, .replicas = job.replicas, .timeout = std::chrono::seconds(60)});
    });
  });
  expect_named(texts, cat("worker ", GetParam().lost));
}

// What is under way then: it keeps nobody from the end.

/// The gradient of the second layer fills a bucket of which every worker adds up a range.
struct TwoLayers : torch::nn::Module {
  static constexpr int kBytesOfARange = 10'000;  // or more, on two workers and on three

  torch::nn::Linear first =
      register_module("first", torch::nn::Linear(torch::nn::LinearOptions(4, 100).bias(false)));
  torch::nn::Linear second =
      register_module("second", torch::nn::Linear(torch::nn::LinearOptions(100, 100).bias(false)));
};

/// A bucket for each parameter.
const OptimizerOptions kSmallBuckets{.first_bucket_bytes = 1, .bucket_bytes = 1};

/// A job with a replica on each worker, of which one dies or stops.
struct Fault {
  int workers;
  int faulty;
  bool dies;

  friend void PrintTo(const Fault& fault, std::ostream* out) {
    *out << "worker " << fault.faulty << (fault.dies ? " dies" : " stops");
  }
};

class UnderWay : public testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(, UnderWay,
                         testing::Values(Fault{2, 1, true}, Fault{3, 0, true}, Fault{3, 2, true},
                                         Fault{2, 1, false}, Fault{3, 0, false},
                                         Fault{3, 2, false}),
                         [](const auto& info) {
                           return cat(info.param.dies ? "Dead" : "Stopped", "Worker",
                                      info.param.faulty, "Of", info.param.workers);
                         });

/// One worker fails while the gradients of the others are on their way to it, which a thread takes
/// there, another thread asks for the next step of input, and a third one makes it. Then everything
/// is destroyed: optimizer, model, pass, dataset and strategy.
TEST_P(UnderWay, EndsWithTheWorkerThatDiesOrStops) {
  const auto [workers, faulty, dies] = GetParam();
  struct Errors {
    std::string training, reading;
  };
  std::vector<Errors> errors(workers);
  std::atomic<int> sending{0}, told{0};
  std::atomic<bool> has_failed{false};
  configure({.cpu_devices = 2});
  ThreadNetwork network(workers);
  on_network(network, [&, n = workers, faulty = faulty, dies = dies](const Worker& worker) {
    const bool is_faulty = worker.index() == faulty;
    Errors& own = errors[worker.index()];
    const MultiWorkerMirroredStrategy strategy(
        {.worker = worker,
         .replicas = n,
         .timeout = std::chrono::milliseconds(dies ? 60'000 : 300)});
    const auto scope = strategy.scope();
    const auto numbers =
        strategy.distribute_dataset(data::range(64)
                                        .map([&](std::int64_t number) {
                                          if (number >= n) {  // of the second step
                                            happens([&] { return has_failed.load(); });
                                          }
                                          return number;
                                        })
                                        .batch(n));
    auto pass = numbers.iterator();
    pass.get_next();
    Model<TwoLayers> model;
    Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.1), kSmallBuckets);
    const auto bytes = [&] { return worker.exchange()->traffic().bytes; };
    const auto before = bytes();
    const auto train = [&] {
      strategy.run([&] {
        const at::Tensor hidden = model->first(at::ones({2, 4}));
        hidden.register_hook([&](const at::Tensor& gradient) -> at::Tensor {
          if (is_faulty) return gradient;
          EXPECT_TRUE(happens([&] { return bytes() > before + TwoLayers::kBytesOfARange; }));
          ++sending;
          return gradient;
        });
        model->second(hidden).sum().backward();
        optimizer.step();
      });
    };
    const auto read = [&] { own.reading = thrown_by([&] { pass.get_next(); }); };
    if (is_faulty) {
      EXPECT_TRUE(happens([&] { return sending == n - 1; }));
      if (dies) {
        network.lose(faulty, "its process has died");
      } else {
        network.stop(faulty);
      }
      has_failed = true;
    }
    std::thread reader(read);
    own.training = thrown_by(train);
    reader.join();
    ++told;
    EXPECT_TRUE(happens([&] { return told == n; }));
  });
  const std::string name = cat("worker ", faulty, " (replica ", faulty, ')');
  testing::Matcher<std::string> is_named = AllOf(HasSubstr("DeadlineExceeded"), HasSubstr(name));
  if (dies) {
    is_named = AllOf(HasSubstr("Unavailable"), HasSubstr(name + " is gone: its process has died"));
  }
  for (int w = 0; w < workers; ++w) {
    if (w == faulty) continue;
    EXPECT_THAT(errors[w].training, is_named);
    EXPECT_THAT(errors[w].reading, is_named);
  }
}

/// Without any error of the workers: the replicas catch theirs, and another worker never comes.
TEST(BucketsUnderWay, DoNotKeepTheirOptimizerFromItsEnd) {
  constexpr int kWorkers = 3, kAbsent = 2;
  std::atomic<int> destroyed{0};
  configure({.cpu_devices = 2});
  run_workers(kWorkers, [&](const Worker& worker) {
    const bool is_absent = worker.index() == kAbsent;
    const MultiWorkerMirroredStrategy strategy(
        {.worker = worker, .replicas = kWorkers, .timeout = std::chrono::seconds(60)});
    const auto scope = strategy.scope();
    Model<TwoLayers> model;
    std::optional<Optimizer<torch::optim::SGD>> optimizer;
    optimizer.emplace(model, torch::optim::SGDOptions(0.1), kSmallBuckets);
    const auto bytes = [&] { return worker.exchange()->traffic().bytes; };
    const auto before = bytes();
    strategy.run([&] {
      if (is_absent) return;
      const at::Tensor hidden = model->first(at::ones({2, 4}));
      hidden.register_hook([&](const at::Tensor&) -> at::Tensor {
        EXPECT_TRUE(happens([&] { return bytes() > before + TwoLayers::kBytesOfARange; }));
        throw std::runtime_error("in the middle");
      });
      EXPECT_THAT(thrown_by([&] { model->second(hidden).sum().backward(); }),
                  HasSubstr("in the middle"));
    });
    if (is_absent) {
      EXPECT_TRUE(happens([&] { return destroyed == kWorkers - 1; }));
    }
    optimizer.reset();
    ++destroyed;
    expect_usable(strategy);
  });
}

// Absent: calls of all workers that one of them makes alone.

using Normalized = Model<torch::nn::BatchNorm1d>;

constexpr std::chrono::milliseconds kSoon(40);

struct CallOfAll {
  const char* name;
  const char* text;  // what errors call it
  std::function<void(const Strategy&, Normalized&)> call;

  friend void PrintTo(const CallOfAll& call, std::ostream* out) { *out << call.name; }
};

std::vector<CallOfAll> calls_of_all() {
  return {
      {"StateDict", "model.state_dict", [](const Strategy&, Normalized& m) { m.state_dict(); }},
      {"Fingerprint", "fingerprint", [](const Strategy&, Normalized& m) { fingerprint(m); }},
      {"Save", "model.save",
       [](const Strategy&, Normalized& m) {
         m.save(cat(testing::TempDir(), "alone_", ::getpid(), ".pt"));
       }},
      {"Forward", "a forward pass outside of strategy.run",
       [](const Strategy&, Normalized& m) {
         m(at::ones({4, 2}));
       }},
      {"ReduceTo", "extended.reduce_to",
       [](const Strategy& strategy, Normalized&) {
         const auto values = strategy.run([] { return at::ones({2}); });
         strategy.extended().reduce_to("SUM", values, "cpu:0", {.timeout = kSoon});
       }},
      {"MakeAnOptimizer", "an optimizer's constructor",
       [](const Strategy&, Normalized& m) { Optimizer<torch::optim::SGD>(m, 0.1); }},
  };
}

class CalledAlone : public testing::TestWithParam<std::tuple<CallOfAll, int>> {};

INSTANTIATE_TEST_SUITE_P(, CalledAlone,
                         testing::Combine(testing::ValuesIn(calls_of_all()), testing::Values(0, 2)),
                         [](const auto& info) {
                           return cat(std::get<0>(info.param).name, "ByWorker",
                                      std::get<1>(info.param));
                         });

TEST_P(CalledAlone, EndsWithTheNamesOfAllWhoAreAbsent) {
  const CallOfAll& call = std::get<0>(GetParam());
  const int alone = std::get<1>(GetParam());
  std::string text;
  std::atomic<bool> is_over{false};
  configure({.cpu_devices = 2});
  run_workers(3, [&](const Worker& worker) {
    const MultiWorkerMirroredStrategy strategy(
        {.worker = worker, .replicas = 8, .timeout = std::chrono::seconds(60)});
    const auto scope = strategy.scope();
    Normalized model(2);
    strategy.run([&] { model(at::rand({4, 2})); });
    if (worker.index() == alone) {
      const WaitLimits soon{.timeout = kSoon};
      const WorldLane::OwnLimits limits(strategy.extended().world().replicas_lane(), soon);
      text = thrown_by([&] { call.call(strategy, model); });
      is_over = true;
    }
    EXPECT_TRUE(happens([&] { return is_over.load(); }));
  });
  const std::vector<std::string> names{"worker 0 (replicas 0 to 2)", "worker 1 (replicas 3 to 5)",
                                       "worker 2 (replicas 6 and 7)"};
  EXPECT_THAT(text, AllOf(HasSubstr("DeadlineExceeded"), HasSubstr(call.text)));
  for (const std::string& name : names) EXPECT_THAT(text, HasSubstr(name));  // one of them waits
  EXPECT_THAT(text, HasSubstr(cat(names[alone], " has waited ")));
}

// Late.

class LateWorker : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(, LateWorker, testing::Values(0, 2));

TEST_P(LateWorker, IsNamedInTheLogWhileTheOthersWait) {
  const int late = GetParam();
  const CapturedLog log;
  const std::string missing = cat(" s for worker ", late, " (replica ", late, ')');
  const auto is_named_in = [&](const std::string& call) {
    const auto lines = log.lines();
    return std::any_of(lines.begin(), lines.end(), [&](const auto& line) {
      const auto& [level, text] = line;
      return level == log::Level::WARNING && text.find('[' + call) != std::string::npos &&
             text.find(missing) != std::string::npos;
    });
  };
  configure({.cpu_devices = 2});
  run_workers(3, [&](const Worker& worker) {
    const auto come_late_to = [&](const std::string& call) {
      if (worker.index() != late) return;
      EXPECT_TRUE(happens([&] { return is_named_in(call); })) << call;
    };
    const MultiWorkerMirroredStrategy strategy({.worker = worker,
                                                .replicas = 3,
                                                .timeout = std::chrono::seconds(60),
                                                .warn_after = std::chrono::milliseconds(1)});
    const auto numbers = strategy.distribute_dataset(data::range(6).batch(3));
    auto pass = numbers.iterator();
    const auto values = strategy.run([] { return at::ones({2}); });
    come_late_to("all_reduce(SUM)");
    expect_usable(strategy);
    come_late_to("strategy.reduce");
    EXPECT_EQ(strategy.reduce("SUM", values)[0].item<float>(), 3);
    come_late_to("iterator.get_next");
    pass.get_next();
  });
}

class AbsentWorkers : public OnJobs {};
INSTANTIATE_TEST_SUITE_P(, AbsentWorkers,
                         testing::Values(Job{8, 2}, Job{8, 3}, Job{5, 3}, Job{2, 2}), name_of_job);

TEST_P(AbsentWorkers, ALateOneIsNamed) {
  const int late = GetParam().workers - 1;
  std::atomic<int> told{0};
  const auto texts = on_each_worker(
      GetParam(),
      [&](const Strategy& strategy, int worker) {
        std::string text;
        if (worker != late) {
          text = thrown_by([&] { strategy.run([] { sum_of_ids(); }); });
          ++told;
        }
        EXPECT_TRUE(happens([&] { return told == late; }));
        return text;
      },
      std::chrono::milliseconds(200));
  for (int w = 0; w < late; ++w) {
    EXPECT_THAT(texts[w], AllOf(HasSubstr("DeadlineExceeded"), HasSubstr(cat("worker ", late)),
                                HasSubstr("all_reduce")));
  }
}

TEST_P(AbsentWorkers, TheJobGoesOnWhenTheLateOneHasCome) {
  const int late = GetParam().workers - 1;
  std::atomic<int> told{0};
  const auto texts = on_each_worker(
      GetParam(),
      [&](const Strategy& strategy, int worker) {
        const auto before = strategy.run([] { return at::rand({1}); });
        if (worker == late) {
          EXPECT_TRUE(happens([&] { return told == late; }));
        }
        int tries = 0;
        std::string text;
        for (; tries < 20; ++tries) {
          text = thrown_by([&] { strategy.run([] { sum_of_ids(); }); });
          if (text == "nothing") break;
          if (tries == 0 && worker != late) ++told;
        }
        EXPECT_LT(tries, 20) << text;
        expect_usable(strategy);
        return bits_of(strategy.gather(strategy.run([] { return at::rand({1}); }), 0));
      },
      std::chrono::milliseconds(150));
  EXPECT_THAT(texts, Each(texts[0]));
}

TEST_P(AbsentWorkers, AReplicaThatIsLateIsToldToTheOtherWorkersEvenIfItsOwnCatchIt) {
  std::atomic<bool> is_told{false};
  const auto texts = on_each_worker(
      GetParam(),
      [&](const Strategy& strategy, int worker) {
        const bool has_two = strategy.extended().layout().local() > 1;
        const auto results = strategy.run([&] {
          if (worker != 0) return thrown_by([] { sum_of_ids(); });
          if (!has_two) return std::string("alone");
          if (id() == 0) {
            EXPECT_TRUE(happens([&] { return is_told.load(); }));
            return std::string("late");
          }
          const std::string text = thrown_by([] { sum_of_ids(); });
          is_told = true;
          return text;
        });
        return strategy.local_results(results).back();
      },
      std::chrono::milliseconds(200), /*devices=*/8);  // else one may wait for the late one's slot
  if (GetParam().replicas < 2 * GetParam().workers - 1) return;
  EXPECT_THAT(texts[0], HasSubstr("DeadlineExceeded"));
  for (int w = 1; w < GetParam().workers; ++w) {
    EXPECT_THAT(texts[w], AllOf(HasSubstr("Cancelled"), HasSubstr("replica 0")));
  }
}

TEST_P(AbsentWorkers, OneThatStopsIsNamedAndGoesOnLater) {
  const Job job = GetParam();
  const int last = job.workers - 1;
  configure({.cpu_devices = 2});
  ThreadNetwork network(job.workers);
  std::vector<std::string> texts(job.workers);
  std::barrier made(job.workers), late(job.workers);
  on_network(network, [&](const Worker& worker) {
    const MultiWorkerMirroredStrategy strategy(
        {.worker = worker, .replicas = job.replicas, .timeout = std::chrono::milliseconds(300)});
    expect_usable(strategy);
    made.arrive_and_wait();
    if (worker.index() == last) network.stop(last);
    texts[worker.index()] = thrown_by([&] { strategy.run([] { sum_of_ids(); }); });
    late.arrive_and_wait();
    if (worker.index() == last) network.resume(last);
    for (int i = 0; i < 10; ++i) {
      if (thrown_by([&] { strategy.run([] { sum_of_ids(); }); }) == "nothing") break;
    }
    expect_usable(strategy);
  });
  for (int w = 0; w < last; ++w) {
    EXPECT_THAT(texts[w], AllOf(HasSubstr("DeadlineExceeded"), HasSubstr(cat("worker ", last))));
  }
}

TEST_P(AbsentWorkers, WhoLeavesIsNamed) {
  const int leaver = GetParam().workers - 1;
  std::atomic<int> told{0};
  const auto texts = on_each_worker(GetParam(), [&](const Strategy& strategy, int worker) {
    if (worker == leaver) return std::string();
    auto text = thrown_by([&] { strategy.run([] { sum_of_ids(); }); });
    ++told;
    EXPECT_TRUE(happens([&] { return told == leaver; }));
    return text;
  });
  for (int w = 0; w < leaver; ++w) {
    EXPECT_THAT(texts[w], AllOf(HasSubstr("Unavailable"), HasSubstr(cat("worker ", leaver))));
  }
}

}  // namespace
}  // namespace cohort
