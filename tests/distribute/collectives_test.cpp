// all_reduce, all_gather and reduce of tensors, numbers and nests, on every layout.

#include <functional>
#include <memory>

#include "cohort/collectives/cross_device_ops.h"
#include "tests/distribute/layouts.h"

namespace cohort {
namespace {

using testing::Each;

struct Collectives : OnLayouts {
  using OnLayouts::OnLayouts;
  static ReplicaContext& replica() { return get_replica_context(); }
  double sum_of_ids() const { return n * (n - 1) / 2.; }
};
ON_ALL_LAYOUTS(Collectives);

TEST_ON_EACH_WORKER(Collectives, EveryReplicaGetsATensorOfItsOwn) {
  const auto sums = strategy.run([] {
    at::Tensor sum = replica().all_reduce("SUM", at::ones({2}));
    replica().all_reduce("SUM", at::ones({1}));  // all have their results
    return sum.add_(id());
  });
  for (int i = 0; i < n_here; ++i) {
    EXPECT_EQ(sums.values()[i][0].item<double>(), n + first_here + i);
  }
}

TEST_ON_EACH_WORKER(Collectives, LeaveTheContributionsAlone) {
  const auto kept = strategy.run([] {
    const at::Tensor own = at::full({100}, id() + 1.);
    replica().all_reduce("MEAN", own);
    replica().all_gather(own, 0);
    return own.eq(id() + 1.).all().item<bool>();
  });
  EXPECT_THAT(values_of(kept), Each(true));
}

TEST_ON_EACH_WORKER(Collectives, LargeTensorsAreSummedInPieces) {
  const auto right = strategy.run([&] {
    const at::Tensor own = at::arange(1 << 20, at::kDouble) + id();
    const at::Tensor expected = at::arange(1 << 20, at::kDouble) * n + sum_of_ids();
    return replica().all_reduce("SUM", own).equal(expected);
  });
  EXPECT_THAT(values_of(right), Each(true));
}

TEST_ON_EACH_WORKER(Collectives, NonContiguousTensors) {
  const auto right = strategy.run([&] {
    const at::Tensor own = at::arange(6, at::kFloat).reshape({2, 3}).t() + id();
    return replica().all_reduce("SUM", own).equal(own * n - id() * n + sum_of_ids());
  });
  EXPECT_THAT(values_of(right), Each(true));
}

TEST_ON_EACH_WORKER(Collectives, NestsWithNumbersComeBackAsTensors) {
  const auto sums = strategy.run([] {
    const auto [tensor, numbers] =
        replica().all_reduce("SUM", std::pair(at::ones({2}), std::vector{1.5, 2.5}));
    return tensor.sum().template item<double>() + numbers[1].template item<double>();
  });
  EXPECT_THAT(values_of(sums), Each(4.5 * n));
}

TEST_ON_EACH_WORKER(Collectives, TheMeanOfIntegersIsExact) {
  const auto means = strategy.run(
      [] { return replica().all_reduce("MEAN", at::full({}, id(), at::kLong)).item<double>(); });
  EXPECT_THAT(values_of(means), Each((n - 1) / 2.));
}

TEST_ON_EACH_WORKER(Collectives, EmptyTensors) {
  const auto sizes = strategy.run([] {
    return replica().all_reduce("SUM", at::ones({0, 3})).numel() +
           replica().all_gather(at::ones({0, 3}), 0).numel();
  });
  EXPECT_THAT(values_of(sizes), Each(0));
}

TEST_ON_EACH_WORKER(Collectives, GatherLeavesOfDifferentRanksFromTheEnd) {
  const auto shapes = strategy.run([] {
    const auto [a, b] =
        replica().all_gather(std::pair(at::ones({2, id() + 1}), at::ones({id() + 1})), -1);
    return std::pair(a.sizes().vec(), b.sizes().vec());
  });
  EXPECT_THAT(values_of(shapes.first[1]), Each(n * (n + 1) / 2));
  EXPECT_THAT(values_of(shapes.second[0]), Each(n * (n + 1) / 2));
}

TEST_ON_EACH_WORKER(Collectives, GatherRefusesSparseTensors) {
  EXPECT_RUN_FAILS(strategy.run([] { replica().all_gather(at::ones({2}).to_sparse(), 0); }),
                   NotImplementedError, "all_gather does not support IndexedSlices");
}

TEST_ON_EACH_WORKER(Collectives, GatherRefusesShapesThatDifferElsewhere) {
  if (n == 1) return;
  EXPECT_RUN_FAILS(strategy.run([] {
    replica().all_gather(at::ones({1, id() + 1}), 0);
  }),
                   InvalidArgument, "Dimension");
  EXPECT_RUN_FAILS(strategy.run([] { replica().all_gather(at::ones({1}), 1); }), ValueError,
                   "out of range");
  EXPECT_RUN_FAILS(strategy.run([] { replica().all_gather(at::ones({}), 0); }), ValueError,
                   "scalars");
}

TEST_ON_EACH_WORKER(Collectives, SparseTensorsAreConcatenated) {
  const auto sums = strategy.run([&] {
    const auto own =
        at::sparse_coo_tensor(at::zeros({1, 1}, at::kLong), at::full({1}, id() + 1.), {3});
    const at::Tensor all = replica().all_reduce("SUM", own);
    EXPECT_EQ(all._nnz(), n);
    return all.to_dense()[0].item<double>();
  });
  EXPECT_THAT(values_of(sums), Each(n * (n + 1) / 2.));
}

TEST_ON_EACH_WORKER(Collectives, TheGradientOfAMeanIsTheMeanOfTheGradients) {
  const auto grads = strategy.run([] {
    const at::Tensor x = at::ones({2}).requires_grad_();
    (replica().all_reduce("MEAN", x) * (id() + 1)).sum().backward();
    return x.grad()[1].item<double>();
  });
  EXPECT_THAT(values_of(grads), Each((n + 1) / 2.));
}

TEST_ON_EACH_WORKER(Collectives, GradientsThatNoPathLeadsToCountAsZeros) {
  const auto grads = strategy.run([] {
    const std::vector x{at::ones({1}).requires_grad_(), at::ones({1}).requires_grad_()};
    const auto y = replica().all_reduce("SUM", x);
    y[id() == 0 ? 0 : 1].sum().backward();  // each uses one of two results
    return x[0].grad().item<double>();
  });
  EXPECT_THAT(values_of(grads), Each(1));
}

TEST_ON_EACH_WORKER(Collectives, TheGradientOfAGatherIsTheOwnSliceOfTheSum) {
  const auto right = strategy.run([&] {
    const at::Tensor x = at::ones({id() + 1}).requires_grad_();
    const at::Tensor all = replica().all_gather(x, 0);
    (all * at::arange(all.numel())).sum().backward();
    const int begin = id() * (id() + 1) / 2;
    return x.grad().equal(at::arange(begin, begin + id() + 1, at::kFloat) * n);
  });
  EXPECT_THAT(values_of(right), Each(true));
}

TEST_ON_EACH_WORKER(Collectives, GradientsOfGradients) {
  const auto second = strategy.run([] {
    const at::Tensor x = at::full({}, 3.).requires_grad_();
    const at::Tensor y = replica().all_reduce("SUM", x * x);
    const at::Tensor first = torch::autograd::grad({y}, {x}, {}, true, true)[0];
    return torch::autograd::grad({first}, {x})[0].item<double>();
  });
  EXPECT_THAT(values_of(second), Each(2. * n));
}

TEST_ON_EACH_WORKER(Collectives, ReduceWithAnAxisAveragesOverAllElements) {
  const auto uneven = strategy.distribute_values_from_function([](const ValueContext& context) {
    return at::full({context.replica_id_in_sync_group + 1}, 6.);
  });
  EXPECT_EQ(strategy.reduce("MEAN", uneven, 0).item<double>(), 6);
  EXPECT_EQ(strategy.reduce("SUM", uneven, -1).item<double>(), 6. * n * (n + 1) / 2);
  EXPECT_FAILS(strategy.reduce("SUM", uneven, 1), ValueError, "out of range");
}

TEST_ON_EACH_WORKER(Collectives, ReduceTakesAPerReplicaOfNumbers) {
  EXPECT_EQ(strategy.reduce("SUM", strategy.run([] { return id(); })).item<int>(), sum_of_ids());
  EXPECT_EQ(strategy.reduce("SUM", strategy.run([] { return 0.5; })).item<double>(), n / 2.);
}

TEST_ON_EACH_WORKER(Collectives, OptionsThatAreNotValidAreRefused) {
  EXPECT_RUN_FAILS(
      strategy.run([] { replica().all_reduce("SUM", at::ones({1}), {.bytes_per_pack = -1}); }),
      ValueError, "bytes_per_pack");
}

TEST(CollectivesOfAStrategy, WaitAsLongAsItsCommunicationOptionsSay) {
  const CommunicationOptions soon{.timeout = std::chrono::milliseconds(20)};
  const Strategy strategy(std::make_shared<StrategyExtended>(StrategyExtended::Settings{
      .name = "Impatient", .layout = mirrored(2).extended().layout(), .communication = soon}));
  std::atomic<bool> over{false};
  const auto late = [&](const auto& collective) {
    over = false;
    strategy.run([&] {
      while (id() == 1 && !over) std::this_thread::yield();
      try {
        collective();
      } catch (...) {
        over = true;
        throw;
      }
    });
  };
  EXPECT_FAILS(late([] { get_replica_context().all_reduce("SUM", at::ones({1})); }),
               DeadlineExceeded, "replica 1 has not come within 0.02 s");
  EXPECT_FAILS(late([] { get_replica_context().all_gather(at::ones({1}), 0); }), DeadlineExceeded,
               "replica 1 has not come within 0.02 s");
}

/// A replica on each worker, so that none is late on its own.
TEST(CollectivesOfAStrategy, WaitForOtherWorkersAsLongAsItsCommunicationOptionsSay) {
  const CommunicationOptions soon{.timeout = std::chrono::milliseconds(20)};
  const std::function<void()> calls[] = {
      [] { get_replica_context().all_reduce("SUM", at::ones({1})); },
      [] { get_replica_context().all_gather(at::ones({1}), 0); },
      [] { get_replica_context().barrier(); }};
  for (const auto& call : calls) {
    std::atomic<bool> over{false};
    run_workers(2, [&](const Worker& worker) {
      const Strategy patient = strategy_of({2, 2}, worker);
      const Strategy strategy(std::make_shared<StrategyExtended>(StrategyExtended::Settings{
          .name = "Impatient", .layout = patient.extended().layout(), .communication = soon}));
      if (worker.is_chief()) {
        EXPECT_FAILS(strategy.run(call), DeadlineExceeded,
                     "has waited 0.02 s for worker 1 (replica 1)");
        over = true;
      }
      while (!over) std::this_thread::yield();
    });
  }
}

/// Of whose strategy another one can be made, alike, that ends with its last handle.
struct StrategyHandles : OnLayouts {
  StrategyHandles(const Layout& layout, const std::optional<Worker>& worker)
      : OnLayouts(layout, worker), layout(layout), worker(worker) {}

  Strategy another() const {
    if (worker) return strategy_of({layout.replicas, layout.workers}, *worker);
    return mirrored(layout.devices, layout.replicas);
  }

  const Layout layout;
  const std::optional<Worker> worker;
};
ON_ALL_LAYOUTS(StrategyHandles);

TEST_ON_EACH_WORKER(StrategyHandles, AreNeededToDeriveACollective) {
  at::Tensor sum;
  {
    const Strategy own = another();
    sum = own.run([] {
               return get_replica_context().all_reduce("SUM", at::ones({1}).requires_grad_());
             })
              .values()[0];
  }
  EXPECT_FAILS(sum.backward(), RuntimeError, "keep a copy of the strategy until backward is done");
}

TEST_ON_EACH_WORKER(StrategyHandles, TheLastOneEndsTheStrategy) {
  std::weak_ptr<StrategyExtended> extended;
  {
    const Strategy own = another();
    extended = own.extended().weak_from_this();
    const Strategy copy = own;
    own.run([] { get_replica_context().all_reduce("SUM", at::ones({1}).requires_grad_()); });
    EXPECT_FALSE(extended.expired());
  }
  EXPECT_TRUE(extended.expired());
}

// The same bits, however the replicas lie on devices.

/// Values whose sum depends on the order of addition.
at::Tensor rough(int replica, std::int64_t elements) {
  at::Tensor values = at::arange(elements, at::kFloat) * 0.1f + static_cast<float>(replica);
  return values.sin().mul(at::arange(elements, at::kFloat).remainder(7).mul(3).exp());
}

TEST(SameBits, OfAllReduceAndReduceOnAnyNumberOfDevices) {
  for (const int replicas : {3, 4, 7, 8}) {
    std::vector<at::Tensor> sums;
    for (const int devices : {1, 2, 3}) {
      const Strategy strategy = mirrored(devices, replicas);
      const auto own = strategy.run([] { return rough(id(), 70'000); });
      sums.push_back(strategy.reduce("SUM", own));
      const auto all = strategy.run(
          [](const at::Tensor& x) { return get_replica_context().all_reduce("SUM", x); }, own);
      sums.insert(sums.end(), all.values().begin(), all.values().end());
    }
    for (const at::Tensor& sum : sums) EXPECT_TRUE(sum.equal(sums[0])) << replicas << " replicas";
  }
}

}  // namespace
}  // namespace cohort
