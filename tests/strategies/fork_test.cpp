// After fork(), the child has the objects of its parent, but not their threads.

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/data/dataset.h"
#include "cohort/device/configuration.h"
#include "cohort/distribute/run_workers.h"
#include "cohort/optim/model.h"
#include "cohort/optim/optimizer.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "cohort/strategies/multi_worker_mirrored_strategy.h"
#include "cohort/strategies/one_device_strategy.h"
#include "tests/base/failing.h"

namespace cohort {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kChildMayStartThreads = false;  // TSan allows none
#else
constexpr bool kChildMayStartThreads = true;
#endif

/// fork(), where a child that hangs is ended by an alarm.
pid_t fork_for_a_while() {
  const pid_t child = fork();
  if (child == 0) alarm(60);
  return child;
}

/// "exit 0", or how else a child has ended.
std::string end_of(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return "no child";
  return WIFEXITED(status) ? cat("exit ", WEXITSTATUS(status))
                           : cat("signal ", WTERMSIG(status), " (14: it hung)");
}

/// How a child ends that calls the function, and then _exit(0) if it returns true.
std::string end_of_child(const std::function<bool()>& function) {
  const pid_t child = fork_for_a_while();
  if (child != 0) return end_of(child);
  bool is_right = false;
  try {
    is_right = function();
  } catch (const std::exception& error) {
    fprintf(stderr, "in the child: %s\n", error.what());
  }
  _exit(is_right ? 0 : 1);
}

/// True if the function throws RuntimeError because of the fork.
bool is_refused(const std::function<void()>& function) {
  const std::string failure = failure_of(function);
  const bool is_right =
      failure.rfind("RuntimeError", 0) == 0 && failure.find("before fork()") != std::string::npos;
  if (!is_right) fprintf(stderr, "in the child: %s\n", failure.c_str());
  return is_right;
}

double sum_over_replicas(const Strategy& strategy) {
  const auto sums = strategy.run(
      [] { return get_replica_context().all_reduce("SUM", at::ones({})).item<double>(); });
  return sums.values()[0];
}

class Fork : public testing::Test {
 protected:
  void SetUp() override { configure({.cpu_devices = 2}); }
  void TearDown() override { configure({}); }

  static std::unique_ptr<Strategy> strategy(int replicas) {
    return std::make_unique<Strategy>(
        MirroredStrategy({.devices = {"cpu:0", "cpu:1"}, .replicas = replicas}));
  }
};

TEST_F(Fork, AStrategyFromBeforeIsRefusedInTheChildAndGoesOnInTheParent) {
  for (const int replicas : {2, 4}) {
    const auto used = strategy(replicas), unused = strategy(replicas);
    sum_over_replicas(*used);
    const std::string end = end_of_child([&] {
      return is_refused([&] { used->run([] {}); }) && is_refused([&] { unused->run([] {}); });
    });
    EXPECT_EQ(end, "exit 0");
    EXPECT_EQ(sum_over_replicas(*used), replicas);
    EXPECT_EQ(sum_over_replicas(*unused), replicas);
  }
}

TEST_F(Fork, AStrategyFromBeforeIsDestroyedInTheChildWithoutWaiting) {
  for (const int replicas : {2, 4}) {
    auto used = strategy(replicas);
    sum_over_replicas(*used);
    EXPECT_EQ(end_of_child([&] {
                used.reset();
                return true;
              }),
              "exit 0");
  }
}

TEST_F(Fork, AChildMayEndByExit) {
  static std::unique_ptr<Strategy> destroyed_at_exit;
  destroyed_at_exit = strategy(4);
  sum_over_replicas(*destroyed_at_exit);
  const pid_t child = fork_for_a_while();
  if (child == 0) std::exit(0);
  EXPECT_EQ(end_of(child), "exit 0");
  destroyed_at_exit.reset();
}

TEST_F(Fork, AStrategyOfOneReplicaNeedsNoThreads) {
  const OneDeviceStrategy one("cpu:0");
  sum_over_replicas(one);
  EXPECT_EQ(end_of_child([&] { return sum_over_replicas(one) == 1; }), "exit 0");
}

TEST_F(Fork, AStrategyMadeInTheChildWorks) {
  if (!kChildMayStartThreads) GTEST_SKIP();
  auto before = strategy(4);
  sum_over_replicas(*before);
  EXPECT_EQ(end_of_child([&] {
              const auto after = strategy(4);
              before.reset();
              return sum_over_replicas(*after) == 4 && sum_over_replicas(*strategy(2)) == 2;
            }),
            "exit 0");
}

TEST_F(Fork, AStrategyWithARunInFlightIsDestroyedInTheChildWithoutWaiting) {
  auto used = strategy(4);
  std::string end;
  used->extended().call_for_each_replica([&] {
    if (get_replica_context().local_id() != 0) return;
    end = end_of_child([&] {
      used.reset();
      return true;
    });
  });
  EXPECT_EQ(end, "exit 0");
}

TEST_F(Fork, InsideOfARunTheChildIsAlone) {
  const auto used = strategy(4);
  std::string end;
  used->run([&] {
    ReplicaContext& replica = get_replica_context();
    if (replica.local_id() == 0) {
      end = end_of_child([&] {
        return is_refused([&] { replica.barrier(); }) &&
               is_refused([&] { replica.all_reduce("SUM", at::ones({1})); });
      });
    }
    replica.barrier();
  });
  EXPECT_EQ(end, "exit 0");
}

TEST_F(Fork, InsideOfARunTheChildsRunThrowsAtItsEnd) {
  const auto used = strategy(4);
  pid_t child = -1;
  const std::string failure = failure_of([&] {
    used->run([&] {
      if (get_replica_context().local_id() == 0) child = fork_for_a_while();
    });
  });
  if (child == 0) _exit(failure.find("before fork()") != std::string::npos ? 0 : 1);
  EXPECT_EQ(failure, "nothing");
  EXPECT_EQ(end_of(child), "exit 0");
}

TEST_F(Fork, InsideOfARunTheThreadOfAnotherReplicaEndsTheChild) {
  if (!kChildMayStartThreads) GTEST_SKIP() << "the thread sanitizer forks in its first thread only";
  const auto used = strategy(4);
  std::atomic<pid_t> child = -1;
  used->run([&] {
    if (get_replica_context().local_id() == 1) child = fork_for_a_while();
  });
  EXPECT_EQ(end_of(child), "exit 0");
}

TEST_F(Fork, APipelineFromBeforeIsRefusedAndDestroyedInTheChild) {
  const auto numbers = data::range(100);
  const auto twice = [](std::int64_t x) { return 2 * x; };
  for (const auto& dataset : {numbers.prefetch(2), numbers.map(twice, {.parallel = 2}),
                              numbers.map(twice, {.parallel = 2}).prefetch()}) {
    auto used = std::make_unique<data::DatasetIterator<std::int64_t>>(dataset.iterator());
    used->next();
    EXPECT_EQ(end_of_child([&] {
                const bool is_right = is_refused([&] { used->next(); });
                used.reset();
                return is_right;
              }),
              "exit 0");
    EXPECT_EQ(end_of_child([&] {
                used.reset();
                if (!kChildMayStartThreads) return true;
                auto again = dataset.iterator();
                return again.next() == 0;
              }),
              "exit 0");
    EXPECT_TRUE(used->next()) << "goes on in the parent";
  }
}

TEST_F(Fork, AnOptimizerFromBeforeIsRefusedAndDestroyedInTheChild) {
  auto used = strategy(4);
  auto scope = std::make_unique<Scope>(used->scope());
  auto model = std::make_unique<Model<torch::nn::Linear>>(2, 1);
  auto optimizer =
      std::make_unique<Optimizer<torch::optim::SGD>>(*model, torch::optim::SGDOptions(0.1));
  const auto step = [&] {
    used->run([&] {
      optimizer->zero_grad();
      (*model)(at::ones({3, 2})).sum().backward();
      optimizer->step();
    });
  };
  step();
  EXPECT_EQ(end_of_child([&] {
              const bool is_right = is_refused(step);
              optimizer.reset();
              model.reset();
              scope.reset();
              used.reset();
              return is_right;
            }),
            "exit 0");
  step();
}

/// What worker 0 of a job with a replica on each worker has, when it has trained for a step.
struct TrainedJob {
  explicit TrainedJob(const Worker& worker)
      : strategy(std::make_unique<Strategy>(
            MultiWorkerMirroredStrategy({.worker = worker, .devices = {"cpu:0"}}))),
        scope(std::make_unique<Scope>(strategy->scope())),
        model(std::make_unique<Model<torch::nn::Linear>>(2, 1)),
        optimizer(
            std::make_unique<Optimizer<torch::optim::SGD>>(*model, torch::optim::SGDOptions(0.1))) {
    step();
  }
  void step() {
    strategy->run([this] {
      optimizer->zero_grad();
      (*model)(at::ones({3, 2})).sum().backward();
      optimizer->step();
    });
  }
  void destroy() {
    optimizer.reset();
    model.reset();
    scope.reset();
    strategy.reset();
  }

  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<Scope> scope;
  std::unique_ptr<Model<torch::nn::Linear>> model;
  std::unique_ptr<Optimizer<torch::optim::SGD>> optimizer;
};

/// How a child of worker 0 ends that calls the function; the job goes on afterwards.
std::string end_of_workers_child(const std::function<bool(TrainedJob&)>& function) {
  std::string end;
  std::barrier both(2);
  run_workers(2, [&](const Worker& worker) {
    TrainedJob job(worker);
    both.arrive_and_wait();
    if (worker.index() == 0) end = end_of_child([&] { return function(job); });
    both.arrive_and_wait();
    job.step();
  });
  return end;
}

TEST_F(Fork, AnOptimizerOfSeveralWorkersIsDestroyedInTheChildWithoutWaiting) {
  if (!kChildMayStartThreads) GTEST_SKIP() << "the thread sanitizer forks in its first thread only";
  EXPECT_EQ(end_of_workers_child([](TrainedJob& job) {
              job.destroy();
              return true;
            }),
            "exit 0");
}

TEST_F(Fork, AStrategyOfSeveralWorkersIsRefusedInTheChildWithOneReplicaToo) {
  if (!kChildMayStartThreads) GTEST_SKIP() << "the thread sanitizer forks in its first thread only";
  EXPECT_EQ(end_of_workers_child([](TrainedJob& job) {
              return is_refused([&] { job.step(); }) &&
                     is_refused([&] { job.strategy->reduce("SUM", at::ones({})); });
            }),
            "exit 0");
}

}  // namespace
}  // namespace cohort
