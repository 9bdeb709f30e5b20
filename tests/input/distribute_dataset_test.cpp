// How batches are cut for replicas, on one worker and on several. Rules 11.10 to 11.37.

#include <filesystem>

#include "cohort/io/tfrecord.h"
#include "tests/base/captured_log.h"
#include "tests/input/simulated_workers.h"

namespace cohort {
namespace {

using data::AutoShardPolicy;
using data::range;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ABatch, IsCutEvenlyInReplicaOrder) {
  EXPECT_THAT(steps_of(range(8).batch(8), 2), ElementsAre("0 1 2 3|4 5 6 7"));
  EXPECT_THAT(steps_of(range(7).batch(7), 4), ElementsAre("0 1|2 3|4 5|6"));
  EXPECT_THAT(steps_of(range(4).batch(4), 3), ElementsAre("0 1|2|3"));
}

TEST(AShortBatch, IsCutAtTheSamePointsAndLeavesTrailingReplicasWithout) {
  EXPECT_THAT(steps_of(range(14).batch(8), 2), ElementsAre("0 1 2 3|4 5 6 7", "8 9 10 11|12 13"));
  EXPECT_THAT(steps_of(range(13).batch(8), 2), ElementsAre("0 1 2 3|4 5 6 7", "8 9 10 11|12"));
  EXPECT_THAT(steps_of(range(11).batch(8), 2), ElementsAre("0 1 2 3|4 5 6 7", "8 9 10|"));
  EXPECT_THAT(steps_of(range(7).batch(4), 3), ElementsAre("0 1|2|3", "4 5|6|"));
}

TEST(ACut, NeverSpansTwoBatches) {
  EXPECT_THAT(steps_of(range(6).batch(4).repeat(2), 2, policy(AutoShardPolicy::OFF)),
              ElementsAre("0 1|2 3", "4 5|", "0 1|2 3", "4 5|"));
}

TEST(TheSizeOfABatch, IsFoundBehindStagesThatKeepIt) {
  const auto same = [](const at::Tensor& x) { return x; };
  const Steps expected = steps_of(range(6).batch(4), 2);
  EXPECT_THAT(expected, ElementsAre("0 1|2 3", "4 5|"));
  EXPECT_EQ(steps_of(range(6).batch(4).map(same), 2), expected);
  EXPECT_EQ(steps_of(range(6).batch(4).prefetch(1).take(9), 2), expected);
  EXPECT_EQ(steps_of(range(6).batch(4).filter([](const at::Tensor&) { return true; }).cache(), 2),
            expected);
}

TEST(TheSizeOfABatch, UnknownOrDifferentMeansEachIsCutByItsOwn) {
  EXPECT_THAT(steps_of(range(4).batch(4).concatenate(range(2).batch(2)), 2),
              ElementsAre("0 1|2 3", "0|1"));
  const auto made = range(1).flat_map([](std::int64_t) { return range(6).batch(4); });
  EXPECT_THAT(steps_of(made, 2), ElementsAre("0 1|2 3", "4|5"));
}

TEST(LeavesOfDifferentLength, AreCutEachByItsOwn) {
  const auto pairs = range(4).batch(4).map([](const at::Tensor& x) {
    return std::pair(x, torch::cat({x, x}));
  });
  EXPECT_THAT(steps_of(pairs, 2), ElementsAre("0 1;0 1 2 3|2 3;0 1 2 3"));
}

TEST(AnUnbatchedDataset, IsAnErrorThatSaysSo) {
  EXPECT_FAILS(steps_of(range(4), 2), ValueError, ".batch(global_batch_size)");
  EXPECT_FAILS(steps_of(data::from_tensor_slices(torch::arange(4)), 2), ValueError, "batch");
}

/// The warnings of distributing it to this many replicas, and whether explain() says the same.
template <class T>
std::pair<int, bool> says_unbatched(const data::Dataset<T>& dataset, int replicas = 2) {
  const CapturedLog log;
  const auto distributed = distribute_dataset(dataset, replicas_of(replicas), {});
  for (int pass = 0; pass < 2; ++pass) distributed.iterator().get_next();
  const std::string text = distributed.explain();
  return {log.count(log::Level::WARNING, "no stage of the dataset makes batches"),
          text.find("no stage makes batches: each element is cut along its first dimension") !=
              std::string::npos};
}

TEST(AnUnbatchedDatasetOfRows, IsCutAlongFeaturesAndSaysSo) {
  const std::pair<int, bool> said(1, true), nothing(0, false);
  const auto rows = data::from_tensor_slices(torch::arange(16).reshape({4, 4}));
  const auto pairs = data::from_tensor_slices(std::pair(torch::ones({4, 4}), torch::ones({4, 2})));
  const auto same = [](const at::Tensor& x) { return x; };
  EXPECT_THAT(steps_of(rows.take(1), 2), ElementsAre("0 1|2 3"));
  EXPECT_EQ(says_unbatched(rows), said);
  EXPECT_EQ(says_unbatched(pairs.shuffle(4).prefetch(1)), said);
  EXPECT_EQ(says_unbatched(rows.map(same)), said);
  EXPECT_EQ(says_unbatched(range(4).map([](std::int64_t) { return torch::ones({4}); })), said);
  EXPECT_EQ(says_unbatched(rows.batch(2).unbatch()), said);
  EXPECT_EQ(says_unbatched(data::zip(rows.batch(2), rows)), said);
  EXPECT_EQ(says_unbatched(rows, 1), nothing);
  EXPECT_EQ(says_unbatched(rows.batch(2)), nothing);
  EXPECT_EQ(says_unbatched(rows.batch(2).map(same).repeat(2)), nothing);
  EXPECT_EQ(says_unbatched(rows.batch(2).batch(2).unbatch()), nothing);
  EXPECT_EQ(says_unbatched(range(1).flat_map([&](std::int64_t) { return rows.batch(2); })),
            nothing);
}

TEST(OneReplica, GetsElementsAsTheyAre) {
  EXPECT_THAT(steps_of(range(3), 1), ElementsAre("0", "1", "2"));
  EXPECT_THAT(steps_of(range(3).batch(2), 1), ElementsAre("0 1", "2"));
}

TEST(Strings, AreCutToo) {
  const auto words = data::from_tensor_slices(std::vector<std::string>{"a", "b", "c"}).batch(3);
  EXPECT_THAT(steps_of(words, 2), ElementsAre("a b |c "));
}

TEST(SparseBatches, AreCutToo) {
  const auto sparse = range(3).batch(3).map([](const at::Tensor& x) { return x.to_sparse(); });
  const auto distributed = distribute_dataset(sparse, replicas_of(4), {});
  auto iterator = distributed.iterator();
  const auto step = iterator.get_next();
  EXPECT_EQ(step.values()[1].to_dense().item<int>(), 1);
  EXPECT_EQ(step.values()[3].size(0), 0);
}

TEST(SeveralWorkers, TakeTheirReplicasPiecesUnderData) {
  EXPECT_THAT(
      steps_of_workers(range(9).batch(2), 2, 1),
      ElementsAre(ElementsAre("0", "2", "4", "6", "8"), ElementsAre("1", "3", "5", "7", "")));
  EXPECT_THAT(steps_of_workers(range(15).batch(4), 2, 2),
              ElementsAre(ElementsAre("0|1", "4|5", "8|9", "12|13"),
                          ElementsAre("2|3", "6|7", "10|11", "14|")));
  EXPECT_THAT(steps_of_workers(range(8).batch(3), 2, 1),
              ElementsAre(ElementsAre("0 1", "3 4", "6 7"), ElementsAre("2", "5", "")));
}

TEST(SeveralWorkers, GetAllDataWhenShardingIsOff) {
  const Steps all{"0 1 2 3", "4 5 6 7", "8 9 10 11"};
  EXPECT_THAT(steps_of_workers(range(12).batch(8), 2, 1, policy(AutoShardPolicy::OFF)),
              ElementsAre(all, all));
}

TEST(SeveralWorkers, FollowAHint) {
  EXPECT_THAT(steps_of_workers(range(8).shard(data::SHARD_HINT).batch(4), 2, 1,
                               policy(AutoShardPolicy::HINT)),
              ElementsAre(ElementsAre("0 2", "4 6"), ElementsAre("1 3", "5 7")));
}

TEST(TheSameRows, MeetTheSameReplicaOnAnyNumberOfWorkers) {
  const auto pipelines = [](const auto& source) {
    return source.shuffle(20, {.seed = 3}).batch(12).prefetch(2).repeat(2);
  };
  const auto rows = pipelines(range(50));
  const auto stream = pipelines(range(50).map([](std::int64_t x) { return x; }, {.parallel = 2}));
  for (const int replicas : {12, 8, 5}) {
    const auto expected = by_replica(rows, {replicas, 1});
    for (const int workers : {2, 3, 4}) {
      EXPECT_EQ(by_replica(rows, {replicas, workers}), expected) << replicas << " on " << workers;
      EXPECT_EQ(by_replica(stream, {replicas, workers}), expected) << replicas << " on " << workers;
    }
  }
}

TEST(AWorkerOfSeveral, ReadsOnlyTheRowsOfItsReplicas) {
  struct Counting : data::Rows<at::Tensor> {
    explicit Counting(std::atomic<int>& reads) : reads(reads) {}
    std::int64_t size() const override { return 16; }
    at::Tensor at(std::int64_t row) const override { return torch::tensor(row); }
    at::Tensor gather(std::span<const std::int64_t> rows) const override {
      reads += static_cast<int>(rows.size());
      return torch::tensor(at::ArrayRef<std::int64_t>(rows.data(), rows.size()));
    }
    data::ElementSpec spec() const override { return {}; }
    std::atomic<int>& reads;
  };
  std::atomic<int> reads{0};
  const data::Dataset<at::Tensor> rows(
      std::make_shared<data::RowsNode<at::Tensor>>("counting", std::make_shared<Counting>(reads)));
  const auto steps = steps_of_workers(rows.batch(8).prefetch(1), 4, 2);
  EXPECT_THAT(steps[3], ElementsAre("6|7", "14|15"));
  EXPECT_EQ(reads, 16);
}

TEST(WorkersThatReadDifferentData, AreTold) {
  const auto failures = of_each_worker(2, [](const Worker& worker) {
    const auto own =
        range(300).filter([&](std::int64_t x) { return worker.is_chief() || x != 3; }).batch(2);
    return failure_of([&] { steps_of(distribute_dataset(own, replicas_of(1, worker), {})); });
  });
  EXPECT_THAT(failures, Each(HasSubstr("worker 1 (replica 1) cuts other batches than worker 0")));
}

TEST(AWorkerWhoseInputFails, IsNamedToAllOthers) {
  const auto failures = of_each_worker(3, [](const Worker& worker) {
    const auto own = range(12).batch(3).map([&](const at::Tensor& x) {
      if (worker.index() == 1 && x[0].item<int>() == 6) throw ValueError("my map", "six");
      return x;
    });
    return failure_of([&] { steps_of(distribute_dataset(own, replicas_of_job(5, worker), {})); });
  });
  EXPECT_THAT(failures[0], HasSubstr("Cancelled: [distribute_dataset] the input of worker 1 "
                                     "(replicas 2 and 3) has failed: [my map] six"));
  EXPECT_THAT(failures[1], HasSubstr("ValueError: [my map] six"));
  EXPECT_EQ(failures[2], failures[0]);
}

TEST(AWorkerThatIsGone, EndsTheInputOfTheOthers) {
  const auto failures = of_each_worker(3, [](const Worker& worker) {
    const auto replicas = replicas_of(1, worker);
    if (worker.index() == 2) return std::string("left");
    return failure_of([&] { steps_of(distribute_dataset(range(6).batch(3), replicas, {})); });
  });
  EXPECT_THAT(failures, ElementsAre(HasSubstr("Unavailable"), HasSubstr("Unavailable"), "left"));
  EXPECT_THAT(failures[0], HasSubstr("worker 2 (replica 2) is gone"));
}

/// What explain() says on each worker.
template <class T>
std::vector<std::string> explained(const data::Dataset<T>& dataset, const Job& job,
                                   const InputOptions& options = {}) {
  return of_each_worker(job.workers, [&](const Worker& worker) {
    return distribute_dataset(dataset, replicas_of_job(job.replicas, worker), options).explain();
  });
}

/// Files of two records each: 0 and 1, 2 and 3, …
class Files : public testing::Test {
 protected:
  Files() {
    std::filesystem::create_directories(folder_);
    for (int f = 0; f < 4; ++f) {
      io::TFRecordWriter writer(cat(folder_, "/", f, ".tfrecord"));
      for (int i = 0; i < 2; ++i) writer.write(std::to_string(2 * f + i));
      writer.close();
    }
  }
  ~Files() override { std::filesystem::remove_all(folder_); }

  data::Dataset<std::string> records() const {
    return data::tf_records(data::list_files(folder_ + "/*.tfrecord"));
  }
  /// What data::auto_shard gives the second of two workers.
  static Steps elements_of_shard(const data::Dataset<at::Tensor>& dataset) {
    Steps all;
    for (const at::Tensor& element : data::auto_shard(dataset, 2, 1)) {
      all.push_back(numbers_of(element));
    }
    return all;
  }
  const std::string folder_ = cat(testing::TempDir(), "cohort_input_", getpid());
};

TEST_F(Files, AreDealtToTheWorkersByDefault) {
  EXPECT_THAT(
      steps_of_workers(records().batch(2), 2, 1),
      ElementsAre(ElementsAre("0 ", "1 ", "4 ", "5 "), ElementsAre("2 ", "3 ", "6 ", "7 ")));
}

TEST_F(Files, CanBeReadThroughInterleaveAndFlatMap) {
  const auto names = data::list_files(folder_ + "/*.tfrecord");
  const auto read = [](const std::string& name) { return data::tf_records(name); };
  const auto expected = steps_of_workers(records().batch(2), 2, 1);
  EXPECT_EQ(steps_of_workers(names.flat_map(read).batch(2), 2, 1), expected);
  EXPECT_EQ(steps_of_workers(names.interleave(read, {.cycle_length = 1}).batch(2), 2, 1), expected);
}

TEST_F(Files, OfAReplicaDoNotDependOnTheWorkers) {
  const auto options = policy(AutoShardPolicy::FILE_BY_REPLICA);
  const auto expected = by_replica(records().batch(4), {4, 1}, options);
  EXPECT_THAT(expected[1], ElementsAre("2 ", "3 "));
  for (const int workers : {2, 3, 4}) {
    EXPECT_EQ(by_replica(records().batch(4), {4, workers}, options), expected) << workers;
  }
  EXPECT_FAILS(steps_of(records().batch(5), 5, options), InvalidArgument, "fewer files");
}

TEST_F(Files, FewerThanWorkersAreAnErrorThatNamesOtherPolicies) {
  const auto one = data::tf_records(folder_ + "/0.tfrecord").batch(2);
  const auto failures = of_each_worker(2, [&](const Worker& worker) {
    return failure_of([&] { steps_of(distribute_dataset(one, replicas_of(1, worker), {})); });
  });
  EXPECT_THAT(failures[0], AllOf(StartsWith("InvalidArgument"), HasSubstr("AutoShardPolicy")));
  EXPECT_THAT(failures[1], StartsWith("Cancelled: [distribute_dataset] the input of worker 0"));
}

TEST_F(Files, BesideSomethingElseAreNotDealt) {
  const auto pairs = data::zip(records(), range(8)).batch(2);
  const auto steps = steps_of_workers(pairs, 2, 1);
  EXPECT_THAT(steps[0], ElementsAre("0 ;0", "2 ;2", "4 ;4", "6 ;6"));
  EXPECT_THAT(steps[1], ElementsAre("1 ;1", "3 ;3", "5 ;5", "7 ;7"));
  EXPECT_FAILS(steps_of_workers(pairs, 2, 1, policy(AutoShardPolicy::FILE)), NotFound, "range");
}

TEST_F(Files, ThatAreCountedThroughAreNotDealt) {
  const auto numbered = records().enumerate().batch(2);
  const std::vector<Steps> expected{{"0;0 ", "2;2 ", "4;4 ", "6;6 "},
                                    {"1;1 ", "3;3 ", "5;5 ", "7;7 "}};
  EXPECT_EQ(steps_of_workers(numbered, 2, 1), expected);
  const auto scanned = records()
                           .scan(std::int64_t{0},
                                 [](std::int64_t seen, const std::string& record) {
                                   return std::pair(seen + 1, std::pair(seen, record));
                                 })
                           .batch(2);
  EXPECT_EQ(steps_of_workers(scanned, 2, 1), expected);
  EXPECT_THAT(explained(numbered, {2, 2})[0],
              HasSubstr("policy DATA (AUTO: enumerate depends on the elements of all files)"));
  EXPECT_FAILS(steps_of_workers(numbered, 2, 1, policy(AutoShardPolicy::FILE)), NotFound,
               "enumerate");
  EXPECT_THAT(elements_of_shard(numbered.map(
                  [](const at::Tensor& numbers, const data::Strings&) { return numbers; })),
              ElementsAre("2 3", "6 7"));
}

TEST_F(Files, AreLookedForWithoutAWord) {
  const CapturedLog log;
  const auto checked = records().assert_cardinality(8).batch(2);
  EXPECT_EQ(steps_of(checked, 2).size(), 4u);
  const auto mixed = data::zip(records().assert_cardinality(8), range(8)).batch(2);
  EXPECT_EQ(steps_of_workers(mixed, 2, 1)[0].size(), 4u);
  EXPECT_EQ(log.count(log::Level::WARNING, "assert_cardinality"), 0);
}

TEST_F(Files, AreNamedByExplain) {
  const std::string text = explained(records().batch(4), {4, 2})[1];
  EXPECT_THAT(text, HasSubstr("4 replicas on 2 workers, this is worker 1 (replicas 2 and 3)\n"));
  EXPECT_THAT(text, HasSubstr("policy FILE (AUTO: every source of the pipeline is files)"));
  EXPECT_THAT(text,
              HasSubstr(cat("worker 0 reads ", folder_, "/0.tfrecord ", folder_, "/2.tfrecord\n")));
  EXPECT_THAT(text, HasSubstr("a batch of 4 is cut into 1, 1, 1, 1 for replicas 0 to 3"));
  EXPECT_THAT(text, HasSubstr("depends on the number of workers"));
}

TEST(Explain, SaysWhatHappensInMemory) {
  const auto text = distribute_dataset(range(9).batch(5), replicas_of(2), {}).explain();
  EXPECT_THAT(text, HasSubstr("policy DATA (AUTO: not every source of the pipeline is files)"));
  EXPECT_THAT(text, HasSubstr("cut into 3, 2"));
  EXPECT_THAT(text, HasSubstr("does not depend on the number of workers"));
}

TEST(ADistributedDataset, KnowsItsSpecAndSteps) {
  const auto spec = [](const auto& dataset, int replicas) {
    return cat(distribute_dataset(dataset, replicas_of(replicas), {}).element_spec());
  };
  EXPECT_EQ(spec(range(8).batch(4), 2), "int64[?]");
  EXPECT_EQ(spec(range(8).batch(4, {.drop_remainder = true}), 2), "int64[2]");
  EXPECT_EQ(spec(range(8).batch(3, {.drop_remainder = true}), 2), "int64[?]");
  EXPECT_EQ(spec(range(8), 1), "int64[]");
  EXPECT_EQ(distribute_dataset(range(9).batch(4), replicas_of(2), {}).cardinality(), 3);
  EXPECT_EQ(distribute_dataset(range(9).batch(4).repeat(), replicas_of(2), {}).cardinality(),
            data::kInfinite);
}

TEST(ADistributedDataset, CanBeIteratedAgainAndReshuffles) {
  const auto distributed =
      distribute_dataset(range(20).shuffle(20, {.seed = 1}).batch(4), replicas_of(2), {});
  const Steps first = steps_of(distributed), second = steps_of(distributed);
  EXPECT_EQ(first.size(), 5u);
  EXPECT_EQ(second.size(), 5u);
  EXPECT_NE(first, second);
}

TEST(ADistributedIterator, EndsWithOutOfRangeOrWithNothing) {
  auto iterator = distribute_dataset(range(2).batch(2), replicas_of(2), {}).iterator();
  EXPECT_EQ(step_text(iterator.get_next()), "0|1");
  EXPECT_FAILS(iterator.get_next(), OutOfRange, "end of the dataset");
  EXPECT_FALSE(iterator.get_next_as_optional());
  EXPECT_GE(iterator.waited().count(), 0);
}

TEST(ADistributedIterator, ResumesBehindAnyStep) {
  const auto stream = range(21).filter([](std::int64_t) { return true; });
  const auto dataset = stream.shuffle(6, {.seed = 1}).batch(4).repeat(2);
  for (const auto chosen : {AutoShardPolicy::DATA, AutoShardPolicy::OFF}) {
    const auto distributed = distribute_dataset(dataset, replicas_of(3), policy(chosen));
    auto whole = distributed.iterator();
    const data::Position start = whole.position();
    Steps all;
    while (const auto step = whole.get_next_as_optional()) all.push_back(step_text(*step));
    for (std::size_t stop = 0; stop <= all.size(); ++stop) {
      auto first = distributed.iterator();
      first.restore(start);
      for (std::size_t i = 0; i < stop; ++i) first.get_next();
      auto second = distributed.iterator();
      second.restore(data::Position::from_bytes(first.position().bytes()));
      Steps rest;
      while (const auto step = second.get_next_as_optional()) rest.push_back(step_text(*step));
      EXPECT_EQ(rest, Steps(all.begin() + stop, all.end())) << "stopped at " << stop;
    }
  }
}

/// The position behind the second step.
template <class T>
data::Position behind_two(const DistributedDataset<T>& distributed) {
  auto iterator = distributed.iterator();
  iterator.get_next();
  iterator.get_next();
  return iterator.position();
}

/// The rows of the next step, of all replicas.
template <class T>
std::string rows_behind(const DistributedDataset<T>& distributed, const data::Position& position) {
  auto iterator = distributed.iterator();
  iterator.restore(position);
  std::string rows = step_text(iterator.get_next());
  std::replace(rows.begin(), rows.end(), '|', ' ');
  return rows;
}

TEST(ADistributedIterator, RefusesThePositionOfAnotherPipeline) {
  const auto distributed = distribute_dataset(range(20).batch(4), replicas_of(2), {});
  const auto other = [](const auto& dataset) {
    return behind_two(distribute_dataset(dataset, replicas_of(2), {}));
  };
  EXPECT_FAILS(rows_behind(distributed, other(range(20).batch(5))), InvalidArgument,
               "other stages: expected one that was saved from an iterator of range[20].batch(4)");
  EXPECT_FAILS(rows_behind(distributed, other(range(20).batch(4).repeat(2))), InvalidArgument,
               "other stages");
  auto of_dataset = range(20).batch(4).iterator();
  of_dataset.next();
  EXPECT_FAILS(rows_behind(distributed, of_dataset.position()), InvalidArgument,
               "range[20].batch(4).distribute_dataset");
}

TEST(ADistributedIterator, GoesOnWithOtherReplicasWorkersAndBuffers) {
  const auto dataset = range(40).shuffle(40, {.seed = 1}).batch(4);
  const auto position = behind_two(distribute_dataset(dataset, replicas_of(2), {}));
  const std::string third = rows_behind(distribute_dataset(dataset, replicas_of(2), {}), position);
  EXPECT_EQ(rows_behind(distribute_dataset(dataset, replicas_of(1), {}), position), third);
  EXPECT_EQ(rows_behind(distribute_dataset(dataset, replicas_of(4), {}), position), third);
  const InputOptions unbuffered{.per_replica_buffer_size = 0};
  EXPECT_EQ(rows_behind(distribute_dataset(dataset, replicas_of(2), unbuffered), position), third);
  const auto of_workers = of_each_worker(2, [&](const Worker& worker) {
    return rows_behind(distribute_dataset(dataset, replicas_of(1, worker), {}), position);
  });
  EXPECT_EQ(of_workers[0] + ' ' + of_workers[1], third);
}

TEST(ADistributedIterator, InsideOfABatchGoesOnWithTheSameReplicasOnly) {
  const auto off = policy(AutoShardPolicy::OFF);
  const auto dataset = range(8).batch(8);
  const auto positions = of_each_worker(2, [&](const Worker& worker) {
    auto iterator = distribute_dataset(dataset, replicas_of(1, worker), off).iterator();
    iterator.get_next();
    return iterator.position();
  });
  EXPECT_EQ(positions[0], positions[1]);
  const auto behind = [&](int local) {
    return of_each_worker(2, [&](const Worker& worker) {
      std::string rows;
      const std::string failure = failure_of([&] {
        rows =
            rows_behind(distribute_dataset(dataset, replicas_of(local, worker), off), positions[0]);
      });
      return rows.empty() ? failure : rows;
    });
  };
  EXPECT_THAT(behind(1), Each("4 5 6 7"));
  EXPECT_THAT(behind(2), Each(AllOf(StartsWith("InvalidArgument"),
                                    HasSubstr("cut into 2 pieces: expected 4"))));
}

TEST_F(Files, OfReplicasHaveAPositionForTheirNumberOnly) {
  const auto options = policy(AutoShardPolicy::FILE_BY_REPLICA);
  auto iterator = distribute_dataset(records().batch(4), replicas_of(4), options).iterator();
  EXPECT_FAILS(rows_behind(distribute_dataset(records().batch(4), replicas_of(2), options),
                           iterator.position()),
               InvalidArgument, "another number of pipelines: expected 2, got 4");
}

TEST(AnUnorderedMap, CanBeDistributed) {
  const auto unordered =
      range(8).map([](std::int64_t x) { return x; }, {.parallel = 2, .ordered = false});
  EXPECT_EQ(steps_of(unordered.batch(4), 2).size(), 2u);
  EXPECT_EQ(steps_of(unordered.shuffle(3).batch(4), 2, policy(AutoShardPolicy::OFF)).size(), 2u);
  auto iterator = distribute_dataset(unordered.batch(4), replicas_of(2), {}).iterator();
  iterator.get_next();
  EXPECT_FAILS(iterator.position(), ValueError, "{.ordered = true}");
}

TEST(AnElement, IsOnItsReplicasDeviceOrOnTheHost) {
  const InputReplicas replicas(std::vector<Device>{"cpu:1", "cpu:2"});
  const auto devices = [&](const InputOptions& options) {
    return *distribute_dataset(range(4).batch(4), replicas, options)
                .iterator()
                .get_next()
                .devices();
  };
  EXPECT_THAT(devices({}), ElementsAre(Device("cpu:1"), Device("cpu:2")));
  EXPECT_THAT(devices({.fetch_to_device = false}), ElementsAre(Device("cpu:0"), Device("cpu:0")));

  const InputReplicas of_task(std::vector<Device>{Device("cpu:1").on_task("worker", 3)});
  EXPECT_THAT(*distribute_dataset(range(4), of_task, {.fetch_to_device = false})
                   .iterator()
                   .get_next()
                   .devices(),
              ElementsAre(Device("cpu:0").on_task("worker", 3)));
}

TEST(OptionsThatDoNotGoTogether, AreRefused) {
  const auto dataset = range(4).batch(2);
  const auto with = [&](const InputOptions& options) {
    distribute_dataset(dataset, replicas_of(2), options);
  };
  EXPECT_FAILS(with({.replication_mode = InputReplicationMode::PER_REPLICA}), NotImplementedError,
               "distribute_datasets_from_function");
  EXPECT_FAILS(with({.place_dataset_on_device = true}), ValueError, "PER_REPLICA");
  EXPECT_FAILS(with({.per_replica_buffer_size = -1}), ValueError, "per_replica_buffer_size");
}

/// The steps of a pass, and "error" where one was thrown.
template <class T>
Steps steps_and_errors(const DistributedDataset<T>& dataset) {
  Steps steps;
  auto iterator = dataset.iterator();
  for (;;) {
    try {
      const auto step = iterator.get_next_as_optional();
      if (!step) return steps;
      steps.push_back(step_text(*step));
    } catch (const ValueError&) {
      steps.push_back("error");
    }
  }
}

const auto not_three = [](std::int64_t x) {
  return x == 3 ? throw ValueError("my map", "three") : torch::full({1}, x);
};

TEST(AnError, CostsNoReplicaWhatTheOthersGot) {
  for (const int buffer : {0, 2}) {
    const auto replicas = replicas_of(2);
    const InputOptions options{.per_replica_buffer_size = buffer};
    InputPlan dealt;
    dealt.pipelines = {range(7).map(not_three).node()};
    EXPECT_THAT(steps_and_errors(DistributedDataset<at::Tensor>(nullptr, dealt, replicas, options)),
                ElementsAre("0|1", "error", "2|4", "5|6"));
    InputPlan own;
    own.how = InputPlan::How::OWN;
    own.pipelines = {range(4).map(not_three).node(), range(2, 7).map(not_three).node()};
    EXPECT_THAT(steps_and_errors(DistributedDataset<at::Tensor>(nullptr, own, replicas, options)),
                ElementsAre("0|2", "error", "1|4", "2|5", "error", "|6"));
  }
}

TEST(AnError, OfABatchThatCantBeCutCostsThatBatch) {
  const auto uneven = range(3).map([](std::int64_t x) {
    return torch::full({}, x).expand(x == 1 ? std::vector<std::int64_t>{}
                                            : std::vector<std::int64_t>{2});
  });
  EXPECT_THAT(steps_and_errors(distribute_dataset(uneven, replicas_of(2), {})),
              ElementsAre("0|0", "error", "2|2"));
}

TEST(AnIgnoredError, LeavesStepsThatCanBeTakenUpAgain) {
  const auto dataset =
      range(20).map(not_three).shuffle(6, {.seed = 1}).unbatch().batch(4).ignore_errors();
  const auto distributed = distribute_dataset(dataset, replicas_of(2), {});
  const Steps all = steps_of(distributed);
  EXPECT_EQ(all.size(), 5u);
  auto first = distributed.iterator();
  for (std::size_t stop = 0; stop < all.size(); ++stop) {
    auto resumed = distributed.iterator();
    resumed.restore(first.position());
    const auto next = resumed.get_next();
    EXPECT_EQ(step_text(next), step_text(first.get_next()));
  }
}

TEST(AnError, InThePipelineReachesTheConsumer) {
  const auto broken = range(8).batch(2).map([](const at::Tensor& x) {
    if (x[0].item<int>() == 4) throw ValueError("my map", "four");
    return x;
  });
  const auto distributed = distribute_dataset(broken, replicas_of(2), {});
  for (int pass = 0; pass < 2; ++pass) {
    auto iterator = distributed.iterator();
    iterator.get_next();
    iterator.get_next();
    EXPECT_FAILS(iterator.get_next(), ValueError, "four");
  }
}

}  // namespace
}  // namespace cohort
