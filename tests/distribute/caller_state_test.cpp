// What the caller's thread hands to the replicas, and the random numbers that it does not.

#include "cohort/distribute/caller_state.h"

#include <ATen/autocast_mode.h>

#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>

#include "cohort/distribute/replica_random.h"
#include "tests/distribute/layouts.h"

namespace cohort {
namespace {

using testing::Each;

struct CallerState : OnLayouts {
  using OnLayouts::OnLayouts;
};
ON_ALL_LAYOUTS(CallerState);

TEST_ON_EACH_WORKER(CallerState, NoGradReachesTheReplicas) {
  const auto enabled = [] { return at::GradMode::is_enabled(); };
  {
    const at::NoGradGuard no_grad;
    EXPECT_THAT(values_of(strategy.run(enabled)), Each(false));
  }
  EXPECT_THAT(values_of(strategy.run(enabled)), Each(true));
}

TEST_ON_EACH_WORKER(CallerState, InferenceModeReachesTheReplicas) {
  const auto enabled = [] { return c10::InferenceMode::is_enabled(); };
  {
    const c10::InferenceMode inference;
    EXPECT_THAT(values_of(strategy.run(enabled)), Each(true));
  }
  EXPECT_THAT(values_of(strategy.run(enabled)), Each(false));
}

TEST_ON_EACH_WORKER(CallerState, AutocastReachesTheReplicas) {
  const auto dtype_of_product = [] {
    return static_cast<int>(at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type());
  };
  torch_compat::set_cpu_autocast({true, at::kBFloat16});
  EXPECT_THAT(values_of(strategy.run(dtype_of_product)), Each(static_cast<int>(at::kBFloat16)));
  torch_compat::set_cpu_autocast({false, at::kBFloat16});
  EXPECT_THAT(values_of(strategy.run(dtype_of_product)), Each(static_cast<int>(at::kFloat)));
}

/// "grad", "inference" and "autocast" where they are on in the calling thread, and whether tensors
/// made there are as those say.
std::string libtorch_modes() {
  const bool tracks = at::ones({1}).requires_grad_().add(1).requires_grad();
  return cat(
      at::GradMode::is_enabled() ? "grad " : "", tracks ? "tracks " : "",
      c10::InferenceMode::is_enabled() ? "inference " : "",
      at::ones({1}).is_inference() ? "infers " : "",
      torch_compat::cpu_autocast().is_enabled ? "autocast " : "",
      at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type() == at::kFloat ? "" : "casts ");
}

/// Leaves every mode set, as a program does that forgets to end what it began.
void set_modes() {
  static auto* const forgotten = new std::vector<std::unique_ptr<c10::InferenceMode>>;
  static std::mutex mutex;
  {
    const std::lock_guard lock(mutex);
    forgotten->push_back(std::make_unique<c10::InferenceMode>());
  }
  at::GradMode::set_enabled(false);
  torch_compat::set_cpu_autocast({true, at::kBFloat16});
}

TEST_ON_EACH_WORKER(CallerState, WhatAReplicaSetsEndsWithItsRun) {
  strategy.run([] { set_modes(); });
  EXPECT_EQ(libtorch_modes(), "grad tracks ");
  EXPECT_THAT(values_of(strategy.run(libtorch_modes)), Each("grad tracks "));
}

TEST_ON_EACH_WORKER(CallerState, WhatAReplicaSetsEndsWithItsRunWhenItThrows) {
  EXPECT_RUN_THROWS(strategy.run([] {
    set_modes();
    throw std::out_of_range("no such row");
  }),
                    std::out_of_range);
  EXPECT_EQ(libtorch_modes(), "grad tracks ");
  EXPECT_THAT(values_of(strategy.run(libtorch_modes)), Each("grad tracks "));
}

TEST_ON_EACH_WORKER(CallerState, WhatTheCallerHasSetStays) {
  const at::NoGradGuard no_grad;
  strategy.run([] { at::GradMode::set_enabled(true); });
  EXPECT_EQ(libtorch_modes(), "");
}

TEST_ON_EACH_WORKER(CallerState, ReplicasUseOneThreadForEachOperation) {
  EXPECT_THAT(values_of(strategy.run([] { return at::get_num_threads(); })), Each(1));
}

TEST_ON_EACH_WORKER(CallerState, ADeviceScopeDoesNotReachTheReplicas) {
  const DeviceScope elsewhere(Device("cpu:5"));
  const auto scopes = strategy.run([] { return detail::thread_context().devices.size(); });
  EXPECT_THAT(values_of(scopes), Each(0U));
  EXPECT_EQ(detail::thread_context().devices.size(), 1U);
}

// Random numbers.

class RandomNumbers : public testing::Test {
 protected:
  void SetUp() override { set_seed(7); }

  /// What each replica of a fresh strategy draws in its first run.
  static std::vector<double> draw(int devices, int replicas) {
    return draw(mirrored(devices, replicas));
  }
  static std::vector<double> draw(const Strategy& strategy) {
    return values_of(strategy.run([] { return at::rand({}, at::kDouble).item<double>(); }));
  }
};

TEST_F(RandomNumbers, AreTheSameForTheSameSeedRunAndReplica) { EXPECT_EQ(draw(2, 4), draw(2, 4)); }

TEST_F(RandomNumbers, DoNotDependOnTheDevices) {
  EXPECT_EQ(draw(1, 4), draw(4, 4));
  EXPECT_EQ(draw(3, 4), draw(4, 4));
}

TEST_F(RandomNumbers, DoNotDependOnTheWorkers) {
  for (const Job& job : all_jobs()) {
    const auto expected = draw(2, job.replicas);
    run_workers(job.workers, [&](const Worker& worker) {
      const auto drawn = draw(strategy_of(job, worker));
      const int first = drawn.empty() ? 0
                                      : job.replicas / job.workers * worker.index() +
                                            std::min(worker.index(), job.replicas % job.workers);
      for (std::size_t i = 0; i < drawn.size(); ++i) EXPECT_EQ(drawn[i], expected[first + i]);
    });
  }
}

TEST_F(RandomNumbers, DoNotDependOnTheNumberOfReplicas) {
  const auto few = draw(2, 2), many = draw(2, 8);
  EXPECT_EQ(few[0], many[0]);
  EXPECT_EQ(few[1], many[1]);
}

TEST_F(RandomNumbers, DifferBetweenReplicas) {
  const auto drawn = draw(2, 8);
  EXPECT_EQ(std::set<double>(drawn.begin(), drawn.end()).size(), 8U);
}

TEST_F(RandomNumbers, DifferBetweenRuns) {
  const Strategy strategy = mirrored(2);
  const auto first = draw(strategy), second = draw(strategy);
  EXPECT_NE(first[0], second[0]);
  EXPECT_NE(first[1], second[1]);
}

TEST_F(RandomNumbers, DifferBetweenSeeds) {
  const auto first = draw(2, 2);
  set_seed(8);
  EXPECT_NE(draw(2, 2), first);
}

TEST_F(RandomNumbers, OfReplicasLeaveTheDefaultGeneratorAlone) {
  torch::manual_seed(3);
  const auto expected = at::rand({4});
  torch::manual_seed(3);
  draw(2, 2);
  EXPECT_TRUE(at::rand({4}).equal(expected));
}

TEST_F(RandomNumbers, InAMergeCallAreLibTorchsOwn) {
  torch::manual_seed(3);
  const auto expected = at::rand({});
  torch::manual_seed(3);
  const auto drawn = mirrored(2).run(
      [] { return get_replica_context().merge_call([](Strategy&) { return at::rand({}); }); });
  EXPECT_TRUE(drawn.values()[1].equal(expected));
}

// The same, on all layouts.

/// Fresh strategies, alike.
struct FreshRandomNumbers : OnLayouts {
  FreshRandomNumbers(const Layout& layout, const std::optional<Worker>& worker)
      : OnLayouts(layout, worker),
        another(worker ? strategy_of({layout.replicas, layout.workers}, *worker)
                       : mirrored(layout.devices, layout.replicas)) {}

  const Strategy another;
};
ON_ALL_LAYOUTS(FreshRandomNumbers);

TEST_ON_EACH_WORKER(FreshRandomNumbers, GoOnWhereACheckpointLeftThem) {
  const auto draw = [](const Strategy& from) {
    return values_of(from.run([] { return at::rand({}, at::kDouble).item<double>(); }));
  };
  const auto first = draw(strategy);
  another.extended().set_runs(strategy.extended().runs());
  const auto second = draw(strategy);
  EXPECT_NE(second, first);
  EXPECT_EQ(draw(another), second);
}

TEST_ON_EACH_WORKER(FreshRandomNumbers, OfEveryKindComeFromTheReplica) {
  const auto draw_all = [] {
    at::Tensor x = at::empty({3});
    return at::cat({at::randn({3}), at::randint(100, {3}).to(at::kFloat),
                    at::randperm(5).to(at::kFloat), x.uniform_().clone(), x.normal_().clone(),
                    x.bernoulli_(0.5), at::dropout(at::ones({6}), 0.5, true)});
  };
  const MirroredStrategy on_one_device({.devices = {"cpu:0"}, .replicas = n});
  const auto expected = values_of(on_one_device.run(draw_all));
  const auto drawn = values_of(strategy.run(draw_all));
  for (int i = 0; i < n_here; ++i) EXPECT_TRUE(drawn[i].equal(expected[first_here + i]));
}

}  // namespace
}  // namespace cohort
