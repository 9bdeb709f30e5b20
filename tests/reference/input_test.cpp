// The examples of all pages that are about input.

#include "cohort/data/readers.h"
#include "cohort/data/sources.h"
#include "cohort/io/tfrecord.h"
#include "tests/base/failing.h"
#include "tests/io/scratch_folder.h"
#include "tests/reference/reference.h"

namespace cohort {
namespace {

using testing::ElementsAre;
using Texts = std::vector<std::string>;

/// What the pages of TensorFlow 1 to 2.3 have in common.
class InputOfAllPages : public Reference {
 protected:
  /// "/a/1.tfr", "/a/2.tfr", "/a/3.tfr", "/a/4.tfr", with two records each.
  Texts record_files() const {
    Texts paths;
    for (int i = 1; i <= 4; ++i) {
      paths.push_back(folder_.path(cat(i, ".tfr")));
      io::TFRecordWriter writer(paths.back());
      for (const char* half : {"a", "b"}) writer.write(cat(i, half));
      writer.close();
    }
    return paths;
  }

  static Texts texts(const data::Strings& strings) { return {strings.begin(), strings.end()}; }

  /// What the replicas got, step by step, when `run` was given each element.
  template <class T, class Show>
  static Texts run_over(const Strategy& strategy, const DistributedDataset<T>& distributed,
                        Show&& show) {
    Texts steps;
    for (const auto& x : distributed) {
      const auto seen = strategy.run([&](const T& own) { return std::string(show(own)); }, x);
      std::string step;
      for (const std::string& each : seen.values()) step += cat(step.empty() ? "" : "|", each);
      steps.push_back(step);
    }
    return steps;
  }

  static std::string joined(const data::Strings& strings) {
    std::string text;
    for (const std::string_view each : strings) text += cat(text.empty() ? "" : " ", each);
    return text;
  }

  ScratchFolder folder_;
};

// strategy.experimental_distribute_dataset: "The following is an example", a TFRecordDataset that
// nobody has batched. One replica takes it as it is.
TEST_F(InputOfAllPages, DistributeDatasetOfRecords) {
  const Strategy strategy = one();
  const auto dataset = data::tf_records(record_files());
  const auto dist_dataset = compat::experimental_distribute_dataset(strategy, dataset);
  EXPECT_THAT(run_over(strategy, dist_dataset, [](const std::string& record) { return record; }),
              ElementsAre("1a", "1b", "2a", "2b", "3a", "3b", "4a", "4b"));
}

// The same on two replicas is forbidden: "We will assume that the input dataset is batched by the
// global batch size".
TEST_F(InputOfAllPages, DistributeDatasetOfRecordsOnTwoReplicasMustBeBatched) {
  const Strategy strategy = two();
  const auto dataset = data::tf_records(record_files());
  const auto dist_dataset = strategy.distribute_dataset(dataset);
  EXPECT_FAILS(dist_dataset.iterator().get_next(), ValueError, ".batch(global_batch_size)");

  constexpr int kGlobalBatchSize = 4;
  EXPECT_THAT(
      run_over(strategy, strategy.distribute_dataset(dataset.batch(kGlobalBatchSize)), joined),
      ElementsAre("1a 1b|2a 2b", "3a 3b|4a 4b"));
}

// "Within each worker, we will also split the data among all the worker devices, and this will
// happen even if multi-worker sharding is disabled using the method above."
TEST_F(InputOfAllPages, DataIsSplitWithoutShardingToo) {
  const Strategy strategy = two();
  const auto dataset = data::tf_records(record_files()).batch(4);
  const auto off = dataset.options({.auto_shard = data::AutoShardPolicy::OFF});
  EXPECT_THAT(run_over(strategy, strategy.distribute_dataset(off), joined),
              ElementsAre("1a 1b|2a 2b", "3a 3b|4a 4b"));
}

// "def dataset_fn(input_context)", on one device and on two; the loop of the page has no end, as
// its dataset has none.
TEST_F(InputOfAllPages, DistributeDatasetsFromFunction) {
  const int global_batch_size = 8;
  const auto dataset_fn = [&](const InputContext& input_context) {
    const auto batch_size = input_context.get_per_replica_batch_size(global_batch_size);
    const auto d = data::from_tensors(torch::tensor({{1.f}})).repeat().batch(batch_size);
    return d.shard(input_context.num_input_pipelines, input_context.input_pipeline_id);
  };
  for (const Strategy& strategy : {one(), two()}) {
    const auto inputs =
        compat::experimental_distribute_datasets_from_function(strategy, dataset_fn);
    int steps = 0;
    for (const auto& batch : inputs) {
      const auto replica_results = compat::experimental_run_v2(
          strategy, [](const Tensor& own) { return own.size(0); }, batch);
      for (const std::int64_t rows : replica_results.values()) {
        EXPECT_EQ(rows, global_batch_size / strategy.num_replicas_in_sync());
      }
      if (++steps == 3) break;
    }
    EXPECT_EQ(steps, 3);
  }
}

// "numpy_input = np.ones([10], dtype=np.float32)". TensorFlow 2.0 prints it without a batch, which
// more than one replica can't share; 2.3 corrects that to batch(2).
TEST_F(InputOfAllPages, MakeNumpyDataset) {
  const Tensor numpy_input = torch::ones({10});
  for (const Strategy& strategy : {one(), two()}) {
    const auto dataset = compat::experimental_make_numpy_dataset(strategy, numpy_input);
    EXPECT_EQ(cat(dataset.element_spec()), "float32[]");
    EXPECT_EQ(strategy.distribute_dataset(dataset.batch(2)).cardinality(), 5);
  }
  const auto unbatched = two().distribute_dataset(two().make_numpy_dataset(numpy_input));
  EXPECT_FAILS(unbatched.iterator().get_next(), ValueError, "batch");
}

// "Note that lists of Numpy arrays are stacked, as that is normal tf.data.Dataset behavior."
TEST_F(InputOfAllPages, MakeNumpyDatasetStacksLists) {
  const std::vector arrays{torch::zeros({3}), torch::ones({3})};
  std::vector<double> sums;
  for (const Tensor& row : two().make_numpy_dataset(arrays)) sums.push_back(number(row.sum()));
  EXPECT_THAT(sums, ElementsAre(0, 3));
}

// tf.distribute.Strategy, TensorFlow 2.3: "You can also use the element_spec property … to query
// the tf.TypeSpec of the elements returned by the iterator".
TEST_F(InputOfAllPages, ElementSpecDescribesWhatAReplicaGets) {
  const auto batches = data::from_tensor_slices(torch::rand({8, 3})).batch(4);
  const auto dist_dataset = two().distribute_dataset(batches);
  EXPECT_EQ(cat(dist_dataset.element_spec()), "float32[?, 3]");
  for (const auto& x : dist_dataset) {
    EXPECT_THAT(x.values()[1].sizes().vec(), ElementsAre(2, 3));
  }
}

// "In short", with a dataset: the total of the numbers 0 to 7 in each of three epochs.
TEST_F(InputOfAllPages, InShort) {
  const Strategy my_strategy = two();
  const auto scope = my_strategy.scope();
  const auto distribute_train_epoch = [&](const DistributedDataset<Tensor>& dataset) {
    const auto replica_fn = [](const Tensor& input) { return input.sum(); };
    Tensor total_result = torch::zeros({}, torch::kLong);
    for (const auto& x : dataset) {
      const auto per_replica_result = my_strategy.run(replica_fn, x);
      total_result += my_strategy.reduce(ReduceOp::SUM, per_replica_result, std::nullopt);
    }
    return total_result;
  };
  const auto dist_dataset = my_strategy.distribute_dataset(data::range(8).batch(4));
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(number(distribute_train_epoch(dist_dataset)), 28);
  }
}

// "global batch size of 8 … the last partial batch" of reduce: the replicas' means of [0 … 13]
// weighted by their examples.
TEST_F(InputOfAllPages, ReduceOfTheLastPartialBatch) {
  const Strategy strategy = two();
  std::vector<double> means;
  for (const auto& x : strategy.distribute_dataset(data::range(14).batch(8))) {
    means.push_back(number(strategy.reduce(ReduceOp::MEAN, x, 0)));
  }
  EXPECT_THAT(means, ElementsAre(3.5, 10.5));
}

// tf.compat.v1.distribute.MirroredStrategy: make_input_fn_iterator and experimental_run.
TEST_F(InputOfAllPages, MakeInputFnIterator) {
  const int global_batch_size = 4;
  const auto input_fn = [&](const InputContext& input_context) {
    const auto batch_size = input_context.get_per_replica_batch_size(global_batch_size);
    const auto d = data::from_tensors(torch::tensor({{1.f}})).repeat().batch(batch_size);
    return d.shard(input_context.num_input_pipelines, input_context.input_pipeline_id);
  };
  const Strategy strategy = two();
  const auto scope = strategy.scope();
  auto iterator = compat::make_input_fn_iterator(strategy, input_fn);
  iterator.initialize();
  const auto replica_results = compat::experimental_run(
      strategy, [](const Tensor& own) { return own.sum(); }, iterator);
  EXPECT_EQ(number(strategy.reduce(ReduceOp::SUM, replica_results)), 4);
}

// tf.compat.v1.distribute.MirroredStrategy: make_dataset_iterator.
TEST_F(InputOfAllPages, MakeDatasetIterator) {
  const Strategy strategy = two();
  auto iterator = compat::make_dataset_iterator(strategy, data::range(4).batch(4));
  for (int pass = 0; pass < 2; ++pass) {
    iterator.initialize();
    EXPECT_THAT(numbers(iterator.get_next().values()[1]), ElementsAre(2, 3));
    EXPECT_THROW(iterator.get_next(), OutOfRange);
  }
}

// StrategyExtended.experimental_run_steps_on_iterator: "Run fn with input from iterator for
// iterations times", outputs of the last step by name.
TEST_F(InputOfAllPages, RunStepsOnIterator) {
  const Strategy strategy = two();
  auto iterator = compat::make_dataset_iterator(strategy, data::range(12).batch(4));
  const auto context = compat::experimental_run_steps_on_iterator(
      strategy,
      [&](compat::MultiStepContext& context, const PerReplica<Tensor>& inputs) {
        const auto sums = strategy.run([](const Tensor& own) { return own.sum(); }, inputs);
        context.set_last_step_output("sum", sums, ReduceOp::SUM);
      },
      iterator, 3);
  EXPECT_EQ(number(std::any_cast<Tensor>(context.last_step_outputs().at("sum"))), 38);
}

}  // namespace
}  // namespace cohort
