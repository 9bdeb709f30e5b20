// The methods of strategies that make and distribute datasets.

#include <filesystem>

#include "cohort/device/configuration.h"
#include "cohort/distribute/default_strategy.h"
#include "cohort/io/npy.h"
#include "cohort/strategies/central_storage_strategy.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "cohort/strategies/one_device_strategy.h"
#include "cohort/strategies/tpu_strategy.h"
#include "cohort/tpu/tpu_system.h"
#include "tests/input/input_layouts.h"

namespace cohort {
namespace {

using data::range;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

Strategy two() {
  configure({.cpu_devices = 8});
  return MirroredStrategy({"cpu:0", "cpu:1"});
}

/// The methods of strategies, on all layouts.
struct StrategyInput : InputOnLayouts {
  using InputOnLayouts::InputOnLayouts;

  double sum(const auto& each) const {
    return strategy.reduce("SUM", each).template item<double>();
  }
};
ON_ALL_INPUT_LAYOUTS(StrategyInput);

TEST_ON_EACH_WORKER(StrategyInput, GivesEachReplicaItsPart) {
  std::vector<double> sums;
  for (const auto& batch : strategy.distribute_dataset(range(5 * n).batch(2 * n))) {
    EXPECT_EQ(batch.size(), static_cast<std::size_t>(n_here));
    sums.push_back(sum(strategy.run([](const at::Tensor& x) { return x.sum(); }, batch)));
  }
  const auto sum_of = [](int from, int to) { return (to - from) * (from + to - 1) / 2; };
  EXPECT_THAT(sums, ElementsAre(sum_of(0, 2 * n), sum_of(2 * n, 4 * n), sum_of(4 * n, 5 * n)));
}

TEST_ON_EACH_WORKER(StrategyInput, EndsOnAllWorkersWithCollectivesInEachStep) {
  int steps = 0;
  for (const auto& batch : strategy.distribute_dataset(range(7 * n + 1).batch(2 * n))) {
    const auto rows = strategy.run(
        [](const at::Tensor& x) {
          const at::Tensor own = at::full({}, x.size(0), at::kLong);
          return get_replica_context().all_reduce("SUM", own).item<int>();
        },
        batch);
    EXPECT_THAT(values_of(rows), Each(std::min(2 * n, 7 * n + 1 - steps * 2 * n)));
    ++steps;
  }
  EXPECT_EQ(steps, 4);
}

TEST(DistributeDataset, OfAStrategyWithOneReplicaChangesNothing) {
  for (const Strategy& strategy : {default_strategy(), Strategy(OneDeviceStrategy("cpu:0"))}) {
    EXPECT_THAT(steps_of(strategy.distribute_dataset(range(3))), ElementsAre("0", "1", "2"));
  }
}

TEST_ON_EACH_WORKER(StrategyInput, CannotBeAskedInsideOfAReplica) {
  const auto distributed = strategy.distribute_dataset(range(8 * n).batch(2 * n));
  auto iterator = distributed.iterator();
  EXPECT_RUN_FAILS(strategy.run([&] { iterator.get_next(); }), ValueError,
                   "should be called from outside of replica_fn");
  EXPECT_RUN_FAILS(strategy.run([&] { distributed.iterator(); }), ValueError,
                   "should be called from outside of replica_fn");
  EXPECT_EQ(step_text(iterator.get_next()), cut(8 * n, 2 * n)[0]) << "nothing was taken";
}

TEST_ON_EACH_WORKER(StrategyInput, IsNotDistributedInsideOfAReplica) {
  const auto dataset = range(8 * n).batch(2 * n);
  const auto of_worker = [&](const InputContext&) {
    ADD_FAILURE() << "the function was called";
    return dataset;
  };
  const auto refused = [](const std::string& call) {
    return cat('[', call, "] Method requires being in cross-replica context: called in replica ");
  };
  EXPECT_RUN_FAILS(strategy.run([&] { strategy.distribute_dataset(dataset); }), RuntimeError,
                   refused("strategy.distribute_dataset"));
  EXPECT_RUN_FAILS(strategy.run([&] { strategy.distribute_datasets_from_function(of_worker); }),
                   RuntimeError, refused("strategy.distribute_datasets_from_function"));
}

TEST_ON_EACH_WORKER(StrategyInput, OfAFunctionIsNotCutAndGoesToReplicasInTurn) {
  // Each worker has three steps, but for the first ones, which have one element more.
  const auto of_worker = [&](const InputContext& input) {
    EXPECT_EQ(input.num_input_pipelines, workers);
    EXPECT_EQ(input.input_pipeline_id, world().index());
    EXPECT_EQ(input.num_replicas_in_sync, n);
    return range(6 * n_here + (world().is_chief() ? 1 : 0)).batch(2);
  };
  expect_for_even_workers_only(
      [&] {
        Steps expected(4, std::string(n_here - 1, '|'));
        for (int step = 0; step < 3; ++step) {
          expected[step] = "";
          for (int i = 0; i < n_here; ++i) {
            const int from = 2 * (step * n_here + i);
            expected[step] += cat(i > 0 ? "|" : "", from, ' ', from + 1);
          }
        }
        if (world().is_chief()) expected[3] = cat(6 * n_here) + expected[3];
        EXPECT_EQ(steps_per_worker(of_worker), expected);
      },
      "[distribute_datasets_from_function] a function with PER_WORKER");
}

TEST(DatasetsFromFunction, AreNotCutAndGoToReplicasInTurn) {
  const auto distributed = two().distribute_datasets_from_function([](const InputContext& input) {
    EXPECT_EQ(input.num_input_pipelines, 1);
    EXPECT_EQ(input.num_replicas_in_sync, 2);
    return range(9).batch(2);
  });
  EXPECT_THAT(steps_of(distributed), ElementsAre("0 1|2 3", "4 5|6 7", "8|"));
}

/// Scalars for replicas: each has one more than the one before it.
template <class Make>
auto scalars_per_replica(const Make& make) {
  return
      [make](const InputContext& input) { return range(1, input.input_pipeline_id + 2).map(make); };
}

TEST_ON_EACH_WORKER(StrategyInput, OfScalarsEndsWithAZero) {
  const auto numbers = scalars_per_replica([](std::int64_t x) { return x; });
  const auto tensors = scalars_per_replica([](std::int64_t x) { return torch::tensor(x); });
  Steps expected;
  for (int step = 0; step < n; ++step) {
    expected.emplace_back();
    for (const int i : ids_here()) {
      expected[step] += cat(i > first_here ? "|" : "", step <= i ? step + 1 : 0);
    }
  }
  EXPECT_EQ(steps_per_replica(numbers), expected);
  EXPECT_EQ(steps_per_replica(tensors), expected);
}

TEST(DatasetsFromFunction, OfScalarsEndWithAZero) {
  const auto distributed = two().distribute_datasets_from_function(
      [](const InputContext&) { return data::from_tensor_slices(torch::arange(1, 6)); });
  EXPECT_THAT(steps_of(distributed), ElementsAre("1|2", "3|4", "5|0"));
}

TEST_ON_EACH_WORKER(StrategyInput, OfBoolsEndsWithAFalse) {
  const auto flags = scalars_per_replica([](std::int64_t x) { return x > 0; });
  int step = 0;
  for (const auto& each : strategy.distribute_datasets_from_function(flags, kPerReplica)) {
    const auto own = strategy.run([](bool flag) { return flag; }, each);
    for (int i = 0; i < n_here; ++i) EXPECT_EQ(own.values()[i], step <= first_here + i);
    ++step;
  }
  EXPECT_EQ(step, n);
}

TEST(DatasetsFromFunction, OfBoolsEndWithAFalse) {
  const auto distributed = two().distribute_datasets_from_function(
      [](const InputContext&) { return range(3).map([](std::int64_t x) { return x % 2 == 0; }); });
  EXPECT_THAT(steps_of(distributed), ElementsAre("1|0", "1|0"));
}

TEST_ON_EACH_WORKER(StrategyInput, OfAFunctionCanBeOnePerReplica) {
  std::vector<int> asked;
  const auto shard = [&](const InputContext& input) {
    EXPECT_EQ(input.num_input_pipelines, n);
    EXPECT_EQ(input.num_replicas_in_sync, n);
    asked.push_back(input.input_pipeline_id);
    return range(2 * n + 1).shard(input.num_input_pipelines, input.input_pipeline_id).batch(2);
  };
  Steps expected(2);
  for (const int i : ids_here()) {
    const char* const bar = i > first_here ? "|" : "";
    expected[0] += n == 1 ? "0 1" : cat(bar, i, ' ', n + i);
    expected[1] += i == 0 ? cat(2 * n) : bar;
  }
  EXPECT_EQ(steps_per_replica(shard), expected);
  EXPECT_EQ(asked, ids_here());
}

TEST_ON_EACH_WORKER(StrategyInput, OfAFunctionKnowsItsStepsWhereItMakesThemAll) {
  const auto distributed = strategy.distribute_datasets_from_function(
      [](const InputContext& input) { return range(3 + input.input_pipeline_id).batch(1); },
      kPerReplica);
  EXPECT_EQ(distributed.cardinality(), workers == 1 ? 3 + last : data::kUnknownCardinality);
  EXPECT_THAT(distributed.explain(), HasSubstr("the data does not depend on the number of"));
}

TEST(DatasetsFromFunction, CanBeOnePerReplicaOfMirroredStrategiesOnly) {
  const auto shard = [](const InputContext& input) {
    return range(5).shard(input.num_input_pipelines, input.input_pipeline_id).batch(2);
  };
  EXPECT_THAT(steps_of(two().distribute_datasets_from_function(shard, kPerReplica)),
              ElementsAre("0 2|1 3", "4|"));
  EXPECT_FAILS(CentralStorageStrategy().distribute_datasets_from_function(shard, kPerReplica),
               NotImplementedError, "PER_REPLICA");
  EXPECT_FAILS(OneDeviceStrategy("cpu:0").distribute_datasets_from_function(shard, kPerReplica),
               NotImplementedError, "PER_REPLICA");
  const cluster::TPUClusterResolver resolver("local:2x1x1x1");
  tpu::initialize_system(resolver);
  EXPECT_FAILS(TPUStrategy(resolver).distribute_datasets_from_function(shard, kPerReplica),
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

TEST_ON_EACH_WORKER(StrategyInput, OfAFunctionRefusesThePositionOfOtherStages) {
  const auto of = [this](const auto& function) {
    return strategy.distribute_datasets_from_function(function, kPerReplica).iterator();
  };
  auto saved = of([](const InputContext&) { return range(24).batch(2); });
  saved.get_next();
  auto other = of([](const InputContext&) { return range(24).batch(2).take(5); });
  EXPECT_FAILS(other.restore(saved.position()), InvalidArgument, "other stages");
}

TEST_ON_EACH_WORKER(StrategyInput, OfPairsCanBeTakenApartInTheLoop) {
  const auto add = [](const at::Tensor& x, const at::Tensor& y) { return (x + y).sum(); };
  const int all = 2 * n, sum_of_both = all * (all - 1) + 100 * all;
  const auto pairs =
      strategy.distribute_dataset(data::zip(range(all), range(100, 100 + all)).batch(all));
  Numbers second(all);
  std::iota(second.begin(), second.end(), 100);
  for (auto& [x, y] : pairs) EXPECT_EQ(sum(strategy.run(add, x, y)), sum_of_both);
  for (auto [x, y] : pairs) {
    static_assert(std::is_same_v<decltype(x), PerReplica<at::Tensor>>);
    EXPECT_EQ(step_text(x), cut(all, all)[0]);
    EXPECT_EQ(step_text(y), cut(second, all)[0]);
    EXPECT_EQ(*x.devices(), *strategy.extended().layout().replica_devices());
    EXPECT_EQ(sum(strategy.run(add, x, y)), sum_of_both);
  }
  for (const auto& whole : pairs) {
    const auto both = strategy.run(
        [&](const std::pair<at::Tensor, at::Tensor>& own) { return add(own.first, own.second); },
        whole);
    EXPECT_EQ(sum(both), sum_of_both);
  }
}

struct Sample {
  at::Tensor image;
  data::Strings name;
};

TEST_ON_EACH_WORKER(StrategyInput, OfTuplesArraysAndStructsCanBeTakenApart) {
  const auto triples = strategy.distribute_dataset(
      data::zip(range(n), range(n, 2 * n), range(2 * n, 3 * n)).batch(n));
  const auto from = [this](int first) {
    Numbers numbers(n);
    std::iota(numbers.begin(), numbers.end(), first);
    return cut(numbers, n)[0];
  };
  for (const auto& [a, b, c] : triples) {
    EXPECT_EQ(step_text(a), from(0));
    EXPECT_EQ(step_text(b), from(n));
    EXPECT_EQ(step_text(c), from(2 * n));
  }
  std::vector<std::string> names;
  for (int i = 0; i < n; ++i) names.push_back(cat('p', i));
  const auto samples = strategy.distribute_dataset(
      data::from_tensor_slices(Sample{torch::arange(n), data::Strings(names)}).batch(n));
  std::string own_names;
  for (const int i : ids_here()) own_names += cat(i > first_here ? "|" : "", names[i], ' ');
  for (const auto& [image, name] : samples) {
    EXPECT_EQ(step_text(image), from(0));
    EXPECT_EQ(step_text(name), own_names);
  }
}

TEST(AnElement, OfArraysOfBoolsCanBeTakenApart) {
  const PerReplica<std::array<bool, 2>> arrays({{true, false}, {false, false}});
  const auto [first, second] = arrays;
  EXPECT_EQ(step_text(first) + ',' + step_text(second), "1|0,0|0");
}

TEST_ON_EACH_WORKER(StrategyInput, OfArraysInMemory) {
  const at::Tensor rows = torch::arange(6 * n).reshape({3 * n, 2});
  std::string expected;  // two rows of two numbers for each replica
  for (const int i : ids_here()) {
    expected +=
        cat(i > first_here ? "|" : "", 4 * i, ' ', 4 * i + 1, ' ', 4 * i + 2, ' ', 4 * i + 3);
  }
  EXPECT_EQ(steps_of(strategy.make_numpy_dataset(rows).batch(2 * n)).at(0), expected);
  EXPECT_RUN_FAILS(strategy.run([&] { strategy.make_numpy_dataset(rows); }), RuntimeError,
                   "strategy.make_numpy_dataset");
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
