// The methods of strategies that make and distribute datasets.

#include <filesystem>

#include "cohort/device/configuration.h"
#include "cohort/distribute/default_strategy.h"
#include "cohort/input/strategy_input.h"
#include "cohort/io/npy.h"
#include "cohort/strategies/central_storage_strategy.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "cohort/strategies/one_device_strategy.h"
#include "cohort/strategies/tpu_strategy.h"
#include "cohort/tpu/tpu_system.h"
#include "tests/input/simulated_workers.h"

namespace cohort {
namespace {

using data::range;
using testing::ElementsAre;

Strategy two() {
  configure({.cpu_devices = 4});
  return MirroredStrategy({"cpu:0", "cpu:1"});
}

TEST(DistributeDataset, GivesEachReplicaItsPart) {
  const Strategy strategy = two();
  std::vector<double> sums;
  for (const auto& batch : strategy.distribute_dataset(range(8).batch(4))) {
    const auto each = strategy.run([](const at::Tensor& x) { return x.sum(); }, batch);
    sums.push_back(strategy.reduce("SUM", each).item<double>());
  }
  EXPECT_THAT(sums, ElementsAre(6, 22));
}

TEST(DistributeDataset, OfAStrategyWithOneReplicaChangesNothing) {
  for (const Strategy& strategy : {default_strategy(), Strategy(OneDeviceStrategy("cpu:0"))}) {
    EXPECT_THAT(steps_of(strategy.distribute_dataset(range(3))), ElementsAre("0", "1", "2"));
  }
}

TEST(DistributeDataset, TakesThePolicyOfTheCallOverThatOfTheDataset) {
  const auto dataset = range(4).batch(2).options({.auto_shard = data::AutoShardPolicy::OFF});
  EXPECT_THAT(two().distribute_dataset(dataset).explain(), testing::HasSubstr("policy OFF"));
  EXPECT_THAT(two().distribute_dataset(dataset, policy(data::AutoShardPolicy::DATA)).explain(),
              testing::HasSubstr("policy DATA"));
}

TEST(AnIterator, CannotBeAskedInsideOfAReplica) {
  const Strategy strategy = two();
  auto iterator = strategy.distribute_dataset(range(8).batch(2)).iterator();
  EXPECT_FAILS(strategy.run([&] { iterator.get_next(); }), ValueError,
               "should be called from outside of replica_fn");
}

TEST(DatasetsFromFunction, AreNotCutAndGoToReplicasInTurn) {
  const auto distributed = two().distribute_datasets_from_function([](const InputContext& input) {
    EXPECT_EQ(input.num_input_pipelines, 1);
    EXPECT_EQ(input.num_replicas_in_sync, 2);
    return range(9).batch(2);
  });
  EXPECT_THAT(steps_of(distributed), ElementsAre("0 1|2 3", "4 5|6 7", "8|"));
}

TEST(DatasetsFromFunction, OfScalarsEndWithAZero) {
  const auto distributed = two().distribute_datasets_from_function(
      [](const InputContext&) { return data::from_tensor_slices(torch::arange(1, 6)); });
  EXPECT_THAT(steps_of(distributed), ElementsAre("1|2", "3|4", "5|0"));
}

TEST(DatasetsFromFunction, OfBoolsEndWithAFalse) {
  const auto distributed = two().distribute_datasets_from_function(
      [](const InputContext&) { return range(3).map([](std::int64_t x) { return x % 2 == 0; }); });
  EXPECT_THAT(steps_of(distributed), ElementsAre("1|0", "1|0"));
  for (const auto& flags : distributed) {
    const auto both = two().run([](bool own) { return own; }, flags);
    EXPECT_TRUE(both.values()[0]);
    EXPECT_FALSE(both.values()[1]);
  }
}

TEST(DatasetsFromFunction, CanBeOnePerReplica) {
  const InputOptions per_replica{.replication_mode = InputReplicationMode::PER_REPLICA};
  const auto shard = [](const InputContext& input) {
    return range(5).shard(input.num_input_pipelines, input.input_pipeline_id).batch(2);
  };
  EXPECT_THAT(steps_of(two().distribute_datasets_from_function(shard, per_replica)),
              ElementsAre("0 2|1 3", "4|"));
  EXPECT_FAILS(CentralStorageStrategy().distribute_datasets_from_function(shard, per_replica),
               NotImplementedError, "PER_REPLICA");
  EXPECT_FAILS(OneDeviceStrategy("cpu:0").distribute_datasets_from_function(shard, per_replica),
               NotImplementedError, "PER_REPLICA");
  const cluster::TPUClusterResolver resolver("local:2x1x1x1");
  tpu::initialize_system(resolver);
  EXPECT_FAILS(TPUStrategy(resolver).distribute_datasets_from_function(shard, per_replica),
               NotImplementedError, "PER_REPLICA");
}

TEST(DatasetsFromFunction, HavePositionsThatDoNotDependOnTheReplicas) {
  const auto batches = [](const InputContext& input) {
    return range(24).batch(input.per_replica_batch_size(4));
  };
  auto saved = two().distribute_datasets_from_function(batches).iterator();
  saved.get_next();
  const auto four = MirroredStrategy({"cpu:0", "cpu:1", "cpu:2", "cpu:3"});
  auto resumed = four.distribute_datasets_from_function(batches).iterator();
  resumed.restore(saved.position());
  EXPECT_EQ(step_text(resumed.get_next()), "4|5|6|7");
  auto other = two().distribute_datasets_from_function(
      [](const InputContext&) { return range(24).map([](std::int64_t x) { return x; }); });
  EXPECT_FAILS(other.iterator().restore(saved.position()), InvalidArgument, "other stages");
}

TEST(AnElementOfPairs, CanBeTakenApartInTheLoop) {
  const Strategy strategy = two();
  const auto add = [](const at::Tensor& x, const at::Tensor& y) { return (x + y).sum(); };
  const auto sum = [&](const auto& each) {
    return strategy.reduce("SUM", each).template item<int>();
  };
  const auto pairs = strategy.distribute_dataset(data::zip(range(4), range(10, 14)).batch(4));
  for (auto& [x, y] : pairs) EXPECT_EQ(sum(strategy.run(add, x, y)), 6 + 46);
  for (auto [x, y] : pairs) {
    static_assert(std::is_same_v<decltype(x), PerReplica<at::Tensor>>);
    EXPECT_EQ(step_text(x), "0 1|2 3");
    EXPECT_EQ(step_text(y), "10 11|12 13");
    EXPECT_EQ(x.devices()->at(1), Device("cpu:1"));
    EXPECT_EQ(sum(strategy.run(add, x, y)), 6 + 46);
  }
  for (const auto& whole : pairs) {
    const auto both = strategy.run(
        [&](const std::pair<at::Tensor, at::Tensor>& own) { return add(own.first, own.second); },
        whole);
    EXPECT_EQ(sum(both), 6 + 46);
  }
}

struct Sample {
  at::Tensor image;
  data::Strings name;
};

TEST(AnElement, OfTuplesArraysAndStructsCanBeTakenApart) {
  const Strategy strategy = two();
  const auto triples =
      strategy.distribute_dataset(data::zip(range(2), range(2, 4), range(4, 6)).batch(2));
  for (const auto& [a, b, c] : triples) {
    EXPECT_EQ(step_text(a) + ',' + step_text(b) + ',' + step_text(c), "0|1,2|3,4|5");
  }
  const auto samples = strategy.distribute_dataset(
      data::from_tensor_slices(
          Sample{torch::arange(2), data::Strings(std::vector<std::string>{"p", "q"})})
          .batch(2));
  for (const auto& [image, name] : samples) {
    EXPECT_EQ(step_text(image) + ',' + step_text(name), "0|1,p |q ");
  }
  const PerReplica<std::array<bool, 2>> arrays({{true, false}, {false, false}});
  const auto [first, second] = arrays;
  EXPECT_EQ(step_text(first) + ',' + step_text(second), "1|0,0|0");
}

TEST(InputContexts, DivideTheGlobalBatch) {
  const InputContext context{3, 1, 2};
  EXPECT_EQ(context.per_replica_batch_size(8), 4);
  EXPECT_FAILS(context.per_replica_batch_size(7), ValueError, "multiple of 2 replicas, got 7");
  EXPECT_THAT(cat(context), testing::HasSubstr("input pipeline id 1, total: 3"));
}

TEST(NumpyDatasets, AreTheRowsOfArrays) {
  const Strategy strategy = two();
  const std::string path = cat(testing::TempDir(), "cohort_rows_", getpid(), ".npy");
  io::write_npy(path, torch::arange(6).reshape({3, 2}));
  EXPECT_THAT(steps_of(strategy.make_numpy_dataset(path).batch(2), 1),
              ElementsAre("0 1 2 3", "4 5"));
  std::filesystem::remove(path);
  EXPECT_THAT(steps_of(strategy.make_numpy_dataset(torch::arange(3)), 1),
              ElementsAre("0", "1", "2"));
  EXPECT_THAT(steps_of(strategy.make_numpy_dataset(std::vector<int>{4, 5}), 1),
              ElementsAre("4", "5"));
  EXPECT_THAT(steps_of(strategy.make_numpy_dataset(std::vector<bool>{true, false}), 1),
              ElementsAre("1", "0"));
  EXPECT_THAT(steps_of(strategy.make_numpy_dataset(
                           std::vector<at::Tensor>{torch::ones({2}), torch::zeros({2})}),
                       1),
              ElementsAre("1 1", "0 0"));
}

TEST(FashionMnist, HasImagesAndLabels) {
  const auto train = data::fashion_mnist("train"), test = data::fashion_mnist("test");
  EXPECT_EQ(train.cardinality(), 60'000);
  EXPECT_EQ(test.cardinality(), 10'000);
  EXPECT_EQ(cat(test.batch(4).element_spec()), "{float32[?, 1, 28, 28], int64[?]}");
  const auto batch = test.shuffle(100).batch(4).iterator().next();
  const auto& [images, labels] = *batch;
  EXPECT_EQ(images.sizes(), at::IntArrayRef({4, 1, 28, 28}));
  EXPECT_LE(images.max().item<float>(), 1);
  EXPECT_GE(labels.min().item<int>(), 0);
  EXPECT_FAILS(data::fashion_mnist("validation"), ValueError, "expected \"train\" or \"test\"");
}

}  // namespace
}  // namespace cohort
