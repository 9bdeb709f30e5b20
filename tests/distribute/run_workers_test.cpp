#include "cohort/distribute/run_workers.h"

#include <ATen/CPUGeneratorImpl.h>

#include <barrier>
#include <set>

#include "cohort/base/random.h"
#include "cohort/collectives/exchange.h"
#include "cohort/distribute/replica_random.h"
#include "cohort/optim/model.h"
#include "tests/distribute/layouts.h"

namespace cohort {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

/// Waits until the other worker is gone, and says why.
std::string wait_for_end(const Worker& worker, int other) {
  Exchange& exchange = *worker.exchange();
  for (;;) {
    const auto seen = exchange.events();
    if (const auto why = exchange.lost(other)) return *why;
    exchange.wait(seen, std::nullopt);
  }
}

TEST(RunWorkers, CallsTheFunctionForEachAtTheSameTime) {
  std::barrier all(3);
  std::vector<int> counts(3, -1);
  std::vector<std::thread::id> threads(3);
  run_workers(3, [&](const Worker& worker) {
    all.arrive_and_wait();
    counts[worker.index()] = worker.count();
    threads[worker.index()] = std::this_thread::get_id();
    EXPECT_EQ(worker.is_chief(), worker.index() == 0);
  });
  EXPECT_THAT(counts, Each(3));
  threads.push_back(std::this_thread::get_id());
  EXPECT_EQ(std::set(threads.begin(), threads.end()).size(), 4U);
}

TEST(RunWorkers, MayBeOneWorker) {
  int calls = 0;
  run_workers(1, [&](const Worker& worker) { calls += worker.count(); });
  EXPECT_EQ(calls, 1);
}

TEST(RunWorkers, ChecksItsArguments) {
  const auto nothing = [](const Worker&) { FAIL(); };
  EXPECT_FAILS(run_workers(0, nothing), ValueError,
               "[run_workers] workers: expected 1 or more, got 0");
  EXPECT_FAILS(run_workers(2, nothing, {.bytes_per_second = -1}), ValueError,
               "[run_workers] bytes_per_second: expected 0 or more bytes per second, got -1");
  EXPECT_FAILS(run_workers(2, nothing, {.latency = std::chrono::seconds(-1)}), ValueError,
               "[run_workers] latency");
  EXPECT_FAILS(run_workers(2, nullptr), ValueError, "[run_workers] the function is empty");
}

TEST(RunWorkers, ConnectsThemByTheNetwork) {
  const auto begin = std::chrono::steady_clock::now();
  run_workers(2,
              [](const Worker& worker) {
                Exchange& exchange = *worker.exchange();
                Exchange::Transfer transfer;
                exchange.send(transfer, 1 - worker.index(), 1, {7}, {});
                while (!exchange.peek(1 - worker.index(), 1)) exchange.wait(exchange.events(), {});
              },
              {.latency = std::chrono::milliseconds(10)});
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(10));
}

TEST(RunWorkers, TellsTheOthersWhenOneHasEnded) {
  std::string why;
  run_workers(2, [&](const Worker& worker) {
    if (worker.is_chief()) why = wait_for_end(worker, 1);
  });
  EXPECT_EQ(why, "it has ended");
}

TEST(RunWorkers, GivesThemTheCallersSettings) {
  const torch::NoGradGuard no_gradients;
  run_workers(2, [](const Worker&) { EXPECT_FALSE(torch::GradMode::is_enabled()); });
}

TEST(RunWorkers, LeavesAWorkerThatReachesNobody) {
  std::optional<Worker> kept;
  run_workers(2, [&](const Worker& worker) {
    if (worker.is_chief()) kept = worker;
  });
  EXPECT_EQ(kept->count(), 2);
  EXPECT_TRUE(kept->exchange()->lost(1));
}

// Exceptions.

TEST(AWorkersException, ComesOutWithItsTypeAndTheWorkersNumber) {
  EXPECT_FAILS(run_workers(3,
                           [](const Worker& worker) {
                             if (worker.index() == 1) throw InvalidArgument("here", "it is wrong");
                           }),
               InvalidArgument, "[here] it is wrong (in worker 1)");
  const auto out_of_range = [](const Worker& worker) {
    if (worker.is_chief()) throw std::out_of_range("too far");
  };
  EXPECT_THAT([&] { run_workers(2, out_of_range); },
              testing::ThrowsMessage<std::out_of_range>("too far (in worker 0)"));
  EXPECT_THROW(run_workers(2, [](const Worker&) { throw 42; }), int);
}

TEST(AWorkersException, IsWhyItIsLost) {
  std::string why;
  const auto fn = [&](const Worker& worker) {
    if (worker.index() == 1) throw std::runtime_error("out of luck\nin line 7");
    why = wait_for_end(worker, 1);
  };
  EXPECT_THROW(run_workers(2, fn), std::runtime_error);
  EXPECT_EQ(why, "it has thrown: out of luck");
}

TEST(AWorkersException, IsTheFirstInTime) {
  EXPECT_FAILS(run_workers(3,
                           [](const Worker& worker) {
                             if (worker.index() == 2) throw ValueError("here", "first");
                             wait_for_end(worker, 2);
                             throw InvalidArgument("there", "later");
                           }),
               ValueError, "first (in worker 2)");
}

/// Two workers: the chief throws `early`; then the other one throws a ValueError.
template <class Error>
void throw_in_turn(const Error& early) {
  run_workers(2, [&](const Worker& worker) {
    if (worker.is_chief()) throw early;
    wait_for_end(worker, 0);
    throw ValueError("here", "why");
  });
}

TEST(AWorkersException, IsTheCauseAndNotWhatOthersMadeOfIt) {
  EXPECT_FAILS(throw_in_turn(Cancelled("run", "a run of worker 1 has failed")), ValueError,
               "why (in worker 1)");
  EXPECT_FAILS(throw_in_turn(Unavailable("run", "worker 1 is gone: it has thrown")), ValueError,
               "why (in worker 1)");
  EXPECT_FAILS(throw_in_turn(Unavailable("run", "worker 10 is gone")), Unavailable,
               "(in worker 0)");
  EXPECT_FAILS(throw_in_turn(Unavailable("file", "no such disk")), Unavailable, "(in worker 0)");
}

TEST(AWorkersException, MayBeThatAnotherHasEnded) {
  EXPECT_FAILS(run_workers(3,
                           [](const Worker& worker) {
                             if (!worker.is_chief()) return;
                             const std::string why = wait_for_end(worker, 1);
                             throw Unavailable("run", "worker 1 is gone: " + why);
                           }),
               Unavailable, "[run] worker 1 is gone: it has ended (in worker 0)");
}

TEST(AWorkersException, IsTheFirstReactionIfThereIsNothingElse) {
  EXPECT_FAILS(run_workers(2,
                           [](const Worker& worker) {
                             if (worker.is_chief()) throw Cancelled("run", "given up");
                             wait_for_end(worker, 0);
                             throw Unavailable("run", "worker 0 is gone");
                           }),
               Cancelled, "given up (in worker 0)");
}

// Random numbers.

/// Numbers of every kind, and of what calls them inside of LibTorch.
torch::Tensor draw_all() {
  std::vector<torch::Tensor> drawn{torch::rand({3}),
                                   torch::randn({3}),
                                   torch::randint(100, {3}, torch::kFloat),
                                   torch::randperm(5, torch::kFloat),
                                   torch::empty({3}).normal_(),
                                   torch::empty({3}).uniform_(),
                                   torch::empty({9}).bernoulli_(0.5),
                                   torch::bernoulli(torch::full({9}, 0.5)),
                                   torch::rand_like(torch::ones({2})),
                                   torch::dropout(torch::ones({9}), 0.5, true),
                                   torch::multinomial(torch::ones({9}), 3).to(torch::kFloat),
                                   torch::nn::init::kaiming_uniform_(torch::empty({2, 2})),
                                   torch::nn::init::orthogonal_(torch::empty({2, 2})),
                                   torch::nn::Linear(2, 2)->weight,
                                   torch::nn::Conv1d(1, 2, 3)->bias,
                                   torch::nn::Embedding(3, 2)->weight,
                                   torch::nn::Dropout(0.5)(torch::ones({9}))};
  for (auto& each : drawn) each = each.detach().flatten();
  return torch::cat(drawn);
}

class WorkersRandomNumbers : public testing::Test {
 protected:
  void SetUp() override {
    set_seed(7);
    begin();
  }

  /// Puts the default generator somewhere.
  static void begin() {
    torch::manual_seed(3);
    torch::rand({5});
  }

  /// What fn gives in the caller's thread, and in each of three workers' that begin alike. The
  /// default generator must be where it was.
  template <class F>
  void expect_same_in_workers(const F& fn) {
    const torch::Tensor expected = fn();
    begin();
    const torch::Tensor before = at::globalContext().defaultGenerator(at::kCPU).get_state();
    std::vector<torch::Tensor> drawn(3);
    run_workers(3, [&](const Worker& worker) { drawn[worker.index()] = fn(); });
    for (const auto& each : drawn) EXPECT_TRUE(each.equal(expected)) << each << '\n' << expected;
    const torch::Tensor after = at::globalContext().defaultGenerator(at::kCPU).get_state();
    EXPECT_TRUE(before.equal(after));
  }

  static torch::Tensor stacked(const PerReplica<torch::Tensor>& values) {
    return torch::stack(values_of(values));
  }
};

TEST_F(WorkersRandomNumbers, AreThoseOfASingleThread) {
  expect_same_in_workers([] { return torch::cat({draw_all(), draw_all()}); });
}

TEST_F(WorkersRandomNumbers, DoNotDependOnWhatOthersDraw) {
  const torch::Tensor expected = torch::rand({100});
  begin();
  std::vector<torch::Tensor> drawn(4);
  run_workers(4, [&](const Worker& worker) {
    for (int i = 0; i < 100; i += 1 + worker.index()) torch::randn({20});
    if (worker.index() == 3) drawn[3] = torch::rand({1});
  });
  run_workers(4, [&](const Worker& worker) {
    drawn[worker.index()] = torch::rand({100});
    torch::rand({worker.index()});
  });
  for (const auto& each : drawn) EXPECT_TRUE(each.equal(expected));
}

TEST_F(WorkersRandomNumbers, InReplicasAreThoseOfTheMainThread) {
  expect_same_in_workers([] {
    const Strategy strategy = mirrored(2, 4);
    const torch::Tensor before = draw_all();
    const auto first = stacked(strategy.run(draw_all)), second = stacked(strategy.run(draw_all));
    return torch::cat({before, first.flatten(), second.flatten(), draw_all()});
  });
}

TEST_F(WorkersRandomNumbers, InOneReplicaAreThoseOfTheMainThread) {
  expect_same_in_workers([] {
    return torch::cat({draw_all(), stacked(mirrored(1).run(draw_all)).flatten(), draw_all()});
  });
}

TEST_F(WorkersRandomNumbers, InAMergeCallAreTheWorkersOwn) {
  expect_same_in_workers([] {
    const auto merged = mirrored(2).run([] {
      draw_all();
      const auto drawn =
          get_replica_context().merge_call([](Strategy&) { return torch::rand({4}); });
      return torch::cat({drawn, torch::rand({4})});
    });
    return torch::cat({stacked(merged).flatten(), torch::rand({4})});
  });
}

TEST_F(WorkersRandomNumbers, AreThereByTheNameOfTheGenerator) {
  expect_same_in_workers([] {
    const auto draw = [] { return torch::rand({4}, get_replica_context().generator()); };
    const torch::Tensor before = draw();
    const auto in_run = stacked(mirrored(2).run(draw));
    return torch::cat({before, torch::rand({4}), in_run.flatten(), draw()});
  });
}

TEST_F(WorkersRandomNumbers, OfAModelDoNotDependOnItsReplicas) {
  expect_same_in_workers([] {
    std::vector<torch::Tensor> all;
    for (const int replicas : {2, 4}) {
      const Strategy strategy = mirrored(2, replicas);
      const auto scope = strategy.scope();
      const Model<torch::nn::Linear> model(4, 3);
      all.push_back(model.parameters()[0].detach().flatten());
      all.push_back(torch::rand({4}));
    }
    return torch::cat(all);
  });
}

TEST_F(WorkersRandomNumbers, GiveWayToAThreadsOwn) {
  expect_same_in_workers([] {
    const torch::Tensor before = torch::rand({4});
    torch::Tensor own;
    {
      const detail::OwnGenerator generator(at::detail::createCPUGenerator(5));
      own = torch::rand({4});
    }
    return torch::cat({before, own, torch::rand({4})});
  });
}

TEST_F(WorkersRandomNumbers, OfWorkersInAWorkerBeginWhereItStands) {
  expect_same_in_workers([] {
    const torch::Tensor before = torch::rand({4});
    torch::Tensor inner;
    run_workers(2, [&](const Worker& worker) {
      const torch::Tensor drawn = torch::rand({4});
      if (worker.is_chief()) inner = drawn;
    });
    EXPECT_TRUE(inner.equal(torch::rand({4})));
    return torch::cat({before, inner});
  });
}

}  // namespace
}  // namespace cohort
