#include "cohort/collectives/world.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <thread>

#include "cohort/collectives/threads/thread_network.h"
#include "cohort/collectives/worker.h"
#include "cohort/collectives/world_sum.h"
#include "cohort/collectives/world_tensors.h"
#include "tests/base/failing.h"

namespace cohort {
namespace {

using collectives::Node;
using testing::ElementsAre;

/// Calls fn(world) for each worker of a job, in threads; returns the network's counters.
std::vector<Exchange::Traffic> in_world(int workers, int replicas,
                                        const std::function<void(World&)>& fn) {
  ThreadNetwork network(workers);
  std::vector<Exchange::Traffic> traffic(workers);
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      const auto world = World::join(Worker(network.exchange(w)), {.replicas = replicas});
      fn(*world);
      traffic[w] = network.exchange(w)->traffic();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return traffic;
}

TEST(World, DealsReplicasInBlocks) {
  in_world(3, 8, [](World& world) {
    const int first[] = {0, 3, 6}, local[] = {3, 3, 2};
    EXPECT_EQ(world.first(), first[world.index()]);
    EXPECT_EQ(world.local(), local[world.index()]);
    EXPECT_EQ(world.replicas(), 8);
    EXPECT_EQ(world.worker_of(5), 1);
    EXPECT_FALSE(world.holds_root());
    EXPECT_EQ(world.name(2), "worker 2 (replicas 6 and 7)");
  });
}

TEST(World, KnowsWhatEachWorkerCanAddUpByItself) {
  in_world(3, 8, [](World& world) {
    const auto nodes = [&](int worker) {
      return std::vector<Node>(world.nodes_of(worker).begin(), world.nodes_of(worker).end());
    };
    EXPECT_THAT(nodes(0), ElementsAre(Node{0, 2}, Node{2, 3}));
    EXPECT_THAT(nodes(1), ElementsAre(Node{3, 4}, Node{4, 6}));  // never 3 + 4
    EXPECT_THAT(nodes(2), ElementsAre(Node{6, 8}));
  });
}

TEST(World, OfOneProcessHoldsTheRoot) {
  const auto world = World::alone(5);
  EXPECT_TRUE(world->holds_root());
  EXPECT_TRUE(world->is_chief());
  EXPECT_EQ(world->local(), 5);
}

/// The nodes of a worker, whose replicas have these values each.
std::vector<at::Tensor> sums_of_nodes(const World& world, const std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> sums;
  for (const Node node : world.nodes()) {
    const std::vector<at::Tensor> own(values.begin() + node.lo, values.begin() + node.hi);
    sums.push_back(collectives::sum_in_tree(own, node).clone());
  }
  return sums;
}

TEST(WorldSum, AddsInTheOrderOfTheTreeWhateverTheSizesAndWorkers) {
  for (const std::int64_t size : {1, 3, 4095, 4097, 50'001}) {
    std::vector<at::Tensor> values;
    for (int r = 0; r < 8; ++r) values.push_back(at::rand({size}) * (r + 1));
    const at::Tensor expected = collectives::reduce_tensors(ReduceOp::SUM, values);
    for (const int workers : {2, 3, 4, 5, 8}) {
      in_world(workers, 8, [&](World& world) {
        const auto sums = sums_of_nodes(world, values);
        std::vector<std::vector<void*>> nodes;
        for (const at::Tensor& sum : sums) nodes.push_back({sum.data_ptr()});
        WorldSum sum(world, {{at::kFloat, size}});
        sum.run(world.replicas_lane(), "sum", nodes, nodes[0]);
        EXPECT_TRUE(sums[0].equal(expected)) << size << " on " << workers;
      });
    }
  }
}

TEST(WorldSum, TakesSegmentsOfSeveralTypesAndDividesThoseOfFloatingPoint) {
  in_world(3, 3, [](World& world) {
    const at::Tensor floats = at::full({9001}, world.index() + 1.0, at::kFloat);
    const at::Tensor doubles = at::full({7}, world.index() + 1.0, at::kDouble);
    const at::Tensor integers = at::full({333}, world.index() + 1, at::kLong);
    const at::Tensor none = at::empty({0});
    const std::vector<at::Tensor> all{floats, none, doubles, integers};
    std::vector<WorldSum::Segment> segments;
    std::vector<void*> addresses;
    for (const at::Tensor& each : all) {
      segments.push_back({each.scalar_type(), each.numel()});
      addresses.push_back(each.data_ptr());
    }
    const std::vector<std::vector<void*>> nodes{addresses};
    WorldSum(world, segments).run(world.replicas_lane(), "sum", nodes, addresses, 3);
    EXPECT_TRUE(floats.eq(2).all().item<bool>());
    EXPECT_TRUE(doubles.eq(2).all().item<bool>());
    EXPECT_TRUE(integers.eq(6).all().item<bool>());
  });
}

TEST(WorldSum, SendsNoMoreThanTheFormulaSays) {
  constexpr std::int64_t kBytes = 4 << 20;
  for (const int workers : {2, 3, 4}) {
    const auto traffic = in_world(workers, 8, [&](World& world) {
      std::vector<at::Tensor> memory;
      std::vector<std::vector<void*>> nodes;
      for (std::size_t j = 0; j < world.nodes().size(); ++j) {
        memory.push_back(at::ones({kBytes / 4}));
        nodes.push_back({memory.back().data_ptr()});
      }
      WorldSum(world, {{at::kFloat, kBytes / 4}})
          .run(world.replicas_lane(), "sum", nodes, nodes[0]);
    });
    const collectives::ReductionTree tree(8);
    const std::size_t most = workers == 3 ? 2 : 1;  // nodes of the worst worker
    const double formula = static_cast<double>((most + 1) * (workers - 1)) / workers * kBytes;
    for (const auto& each : traffic) EXPECT_LT(static_cast<double>(each.bytes), 1.01 * formula);
  }
}

TEST(WorldLane, GathersWhatEachWorkerSays) {
  in_world(3, 3, [](World& world) {
    const std::vector<std::byte> mine(world.index(), std::byte{7});
    const auto all = world.replicas_lane().all_gather("say", mine);
    for (std::size_t w = 0; w < all.size(); ++w) EXPECT_EQ(all[w].size(), w);
  });
}

TEST(WorldLane, LanesDoNotWaitForEachOther) {
  in_world(2, 2, [](World& world) {
    const auto one = world.make_lane("one"), two = world.make_lane("two");
    std::thread other([&] { one->all_gather("one", {}); });
    two->all_gather("two", {});
    other.join();
  });
}

TEST(WorldTensors, AllReplicasTensorsInTheirOrder) {
  in_world(3, 5, [](World& world) {
    std::vector<at::Tensor> own;
    for (int r = 0; r < world.local(); ++r) {
      own.push_back(at::full({world.first() + r}, world.first() + r));
    }
    const auto all = all_of_world(world.replicas_lane(), "all", own);
    ASSERT_EQ(all.size(), 5U);
    for (int r = 0; r < 5; ++r) EXPECT_TRUE(all[r].equal(at::full({r}, r)));
  });
}

TEST(WorldTensors, SparseOnesCountAsDenseBesideADenseOneOfAnotherWorker) {
  for (const int dense_worker : {0, 1, 2, 3}) {  // the last one is in no job of three
    in_world(3, 3, [&](World& world) {
      const at::Tensor dense = at::full({4}, world.index() + 1.0f);
      const at::Tensor own = world.index() == dense_worker ? dense : dense.to_sparse();
      WorldLane& lane = world.replicas_lane();
      const auto values = in_one_layout_of_world(lane, "sum", {&own, 1});
      EXPECT_EQ(values[0].is_sparse(), dense_worker == 3);
      const at::Tensor sum = reduce_over_world(lane, "sum", ReduceOp::SUM, values);
      EXPECT_TRUE((sum.is_sparse() ? sum.to_dense() : sum).equal(at::full({4}, 6.0f)));
    });
  }
}

}  // namespace
}  // namespace cohort
