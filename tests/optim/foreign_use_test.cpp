// Models that were made outside of a strategy's scope, inside of its run: all replicas have one
// module, which they may evaluate only.

#include "cohort/optim/foreign_use.h"

#include <mutex>

#include "tests/optim/training.h"

namespace cohort {
namespace {

/// A layer with a buffer of its own that counts the forward passes in training.
struct CountingImpl : nn::Module {
  CountingImpl() {
    layer = register_module("layer", nn::Linear(4, 3));
    passes = register_buffer("passes", torch::zeros({}));
  }
  Tensor forward(const Tensor& x) {
    if (is_training()) passes.add_(1);
    return layer(x);
  }
  nn::Linear layer{nullptr};
  Tensor passes;
};
TORCH_MODULE(Counting);

struct ForeignUses : OnLayouts {
  using OnLayouts::OnLayouts;

  void after() { expect_usable(); }

  /// What replicas must not do, but not at the same time.
  template <class F>
  void run_in_turn(const F& fn) {
    strategy.run([&] {
      const std::lock_guard lock(mutex);
      fn();
    });
  }

  Model<Counting> outside;
  std::mutex mutex;
  const Tensor x = batch().x;
  const at::NoGradGuard no_grad;
};
SUITE_ON_EACH_WORKER(ForeignUses, Layout, testing::ValuesIn(all_layouts()));

TEST_ON_EACH_WORKER(ForeignUses, MayEvaluateAModelManyTimes) {
  outside.eval();
  const Tensor expected = outside(x);
  for (int run = 0; run < 3; ++run) {
    strategy.run([&] {
      EXPECT_TRUE(outside(x).equal(expected));
      EXPECT_TRUE(outside->forward(x).equal(expected));
      EXPECT_TRUE(outside.parameters()[0].defined());
    });
  }
}

TEST_ON_EACH_WORKER(ForeignUses, MayNotChangeABufferInAForwardPass) {
  const auto evaluate = [&] { run_in_turn([&] { outside(x); }); };
  EXPECT_RUN_FAILS(evaluate(), RuntimeError, "\"passes\" was written");
  EXPECT_RUN_FAILS(evaluate(), RuntimeError, "auto scope = strategy.scope();");
  EXPECT_RUN_FAILS(evaluate(), RuntimeError, "made in the scope of no strategy");
  outside.eval();
  evaluate();
  evaluate();
}

TEST_ON_EACH_WORKER(ForeignUses, MayNotWriteToAParameter) {
  EXPECT_RUN_FAILS(run_in_turn([&] { outside->layer->bias.add_(1); }), RuntimeError,
                   "\"layer.bias\" was written");
  EXPECT_RUN_FAILS(run_in_turn([&] { outside.parameters()[0].zero_(); }), RuntimeError,
                   "\"layer.weight\" was written");
  EXPECT_RUN_FAILS(run_in_turn([&] { outside.named_buffers()["passes"].fill_(7); }), RuntimeError,
                   "\"passes\" was written");
}

TEST_ON_EACH_WORKER(ForeignUses, AreErrorsOfTheReplicaThatWrites) {
  EXPECT_REPLICA_FAILS(last, strategy.run([&] {
    {
      const std::lock_guard lock(mutex);
      outside.eval();
      outside(x);
      if (id() == last) outside->layer->bias.add_(1);
    }
    if (!is_here(last)) get_replica_context().barrier();
  }),
                       RuntimeError, "\"layer.bias\" was written");
}

TEST_ON_EACH_WORKER(ForeignUses, MayFollowOnAChangeBetweenRuns) {
  outside.eval();
  for (int run = 0; run < 2; ++run) {
    strategy.run([&] { outside(x); });
    outside->layer->bias.add_(1);
  }
  EXPECT_TRUE(values_of(strategy.run([&] { return outside(x); }))[0].equal(outside(x)));
}

TEST_ON_EACH_WORKER(ForeignUses, MayChangeAModelInAMergeCallWhereTheyAreAlone) {
  outside.eval();
  strategy.run([&] {
    outside(x);
    get_replica_context().merge_call([&](Strategy&) { outside->layer->bias.add_(1); });
    outside(x);
  });
  EXPECT_RUN_FAILS(strategy.run([&] {
    {
      const std::lock_guard lock(mutex);
      outside->layer->bias.add_(1);
    }
    get_replica_context().merge_call([&](Strategy&) { outside->layer->bias.add_(1); });
  }),
                   RuntimeError, "\"layer.bias\" was written");
}

/// Outside of its own replicas a model shows the mean of their buffers, in other memory.
TEST_ON_EACH_WORKER(ForeignUses, MayEvaluateAModelOfAnotherStrategyWhoseBuffersDiffer) {
  const Strategy another = mirrored(2);
  const auto scope = std::make_unique<Scope>(another.scope());
  Model<nn::BatchNorm1d> norm(4);
  another.run([&] { norm(x * (id() + 1)); });
  scope->exit();
  norm.eval();
  const Tensor expected = norm(x);
  for (int run = 0; run < 2; ++run) {
    strategy.run([&] {
      EXPECT_TRUE(norm(x).equal(expected));
      EXPECT_TRUE(norm(x).equal(expected));
    });
  }
  EXPECT_RUN_FAILS(run_in_turn([&] { norm->bias.add_(1); }), RuntimeError,
                   "made in the scope of another MirroredStrategy");
}

}  // namespace
}  // namespace cohort
