// How batches are cut for replicas, on one worker and on several. Rules 11.10 to 11.37.

#include <atomic>
#include <filesystem>

#include "cohort/io/tfrecord.h"
#include "tests/base/captured_log.h"
#include "tests/input/input_layouts.h"

namespace cohort {
namespace {

using data::AutoShardPolicy;
using data::range;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// Cuts, on all layouts.
struct Cuts : InputOnLayouts {
  using InputOnLayouts::InputOnLayouts;

  /// A batch of 2n rows and one of n, cut where a full one is.
  Steps of_a_short_batch() const { return cut(3 * n, 2 * n); }
};
ON_ALL_INPUT_LAYOUTS(Cuts);

/// Expects these steps of all replicas, on any number of workers.
template <class T>
void expect_steps(const data::Dataset<T>& dataset, int replicas, const Steps& expected) {
  EXPECT_EQ(steps_of(dataset, replicas), expected);
  for (int workers = 2; workers <= std::min(replicas, 4); ++workers) {
    EXPECT_EQ(by_replica(dataset, {replicas, workers}), by_replica({expected})) << workers;
  }
}

TEST(WorkedExamples, BatchesAreCutEvenlyInReplicaOrder) {
  expect_steps(range(8).batch(8), 2, {"0 1 2 3|4 5 6 7"});
  expect_steps(range(7).batch(7), 4, {"0 1|2 3|4 5|6"});
  expect_steps(range(4).batch(4), 3, {"0 1|2|3"});
}

TEST(WorkedExamples, AShortBatchIsCutAtTheSamePointsAndLeavesTrailingReplicasWithout) {
  expect_steps(range(14).batch(8), 2, {"0 1 2 3|4 5 6 7", "8 9 10 11|12 13"});
  expect_steps(range(13).batch(8), 2, {"0 1 2 3|4 5 6 7", "8 9 10 11|12"});
  expect_steps(range(11).batch(8), 2, {"0 1 2 3|4 5 6 7", "8 9 10|"});
  expect_steps(range(7).batch(4), 3, {"0 1|2|3", "4 5|6|"});
}

TEST(WorkedExamples, ACutNeverSpansTwoBatches) {
  const Steps expected{"0 1|2 3", "4 5|", "0 1|2 3", "4 5|"};
  expect_steps(range(6).batch(4).repeat(2), 2, expected);
  EXPECT_EQ(steps_of(range(6).batch(4).repeat(2), 2, policy(AutoShardPolicy::OFF)), expected);
}

TEST(WorkedExamples, ABatchOfUnknownSizeIsCutByItsOwn) {
  const auto made = range(1).flat_map([](std::int64_t) { return range(6).batch(4); });
  expect_steps(made, 2, {"0 1|2 3", "4|5"});
  expect_steps(range(4).batch(4).concatenate(range(2).batch(2)), 2, {"0 1|2 3", "0|1"});
}

TEST_ON_EACH_WORKER(Cuts, AreEvenAndInReplicaOrder) {
  for (const int full : {n, n + 1, 2 * n, 3 * n - 1, 64}) {
    EXPECT_EQ(steps_of(range(3 * full).batch(full)), cut(3 * full, full)) << full;
  }
}

TEST_ON_EACH_WORKER(Cuts, OfAShortBatchAreAtTheSamePointsAndLeaveTrailingReplicasWithout) {
  const int full = 2 * n + 1;
  for (int rest = 1; rest < full; ++rest) {
    EXPECT_EQ(steps_of(range(full + rest).batch(full)), cut(full + rest, full)) << rest;
  }
}

TEST_ON_EACH_WORKER(Cuts, OfBatchesSmallerThanTheReplicasLeaveSomeWithout) {
  for (int full = 1; full < n; ++full) {
    EXPECT_EQ(steps_of(range(2 * full + 1).batch(full)), cut(2 * full + 1, full)) << full;
  }
}

TEST_ON_EACH_WORKER(Cuts, NeverSpanTwoBatches) {
  const Steps once = cut(3 * n, 2 * n);
  EXPECT_EQ(steps_of(range(3 * n).batch(2 * n).repeat(2)),
            Steps({once[0], once[1], once[0], once[1]}));
}

TEST_ON_EACH_WORKER(Cuts, OfNothingAreNoSteps) {
  EXPECT_THAT(steps_of(range(0).batch(n)), ElementsAre());
  EXPECT_THAT(steps_of(range(n - 1).batch(n, {.drop_remainder = true})), ElementsAre());
}

TEST_ON_EACH_WORKER(Cuts, DropTheRemainderBeforeReplicasGetAnyOfIt) {
  const int full = 2 * n + 1;
  const auto dropping = range(3 * full - 1).batch(full, {.drop_remainder = true});
  EXPECT_EQ(steps_of(dropping), cut(2 * full, full));
}

TEST_ON_EACH_WORKER(Cuts, FindTheSizeOfABatchBehindStagesThatKeepIt) {
  const auto same = [](const at::Tensor& x) { return x; };
  const auto batches = range(3 * n).batch(2 * n);
  EXPECT_EQ(steps_of(batches), of_a_short_batch());
  EXPECT_EQ(steps_of(batches.map(same)), of_a_short_batch());
  EXPECT_EQ(steps_of(batches.prefetch(1).take(9)), of_a_short_batch());
  EXPECT_EQ(steps_of(batches.filter([](const at::Tensor&) { return true; }).cache()),
            of_a_short_batch());
  EXPECT_EQ(steps_of(batches.shuffle(1).skip(1)), Steps{of_a_short_batch()[1]});
  EXPECT_EQ(steps_of(batches.concatenate(batches)).size(), 4U);
  if (n == 1) return;
  EXPECT_THAT(strategy.distribute_dataset(batches.map(same)).explain(),
              HasSubstr(cat("a batch of ", 2 * n, " is cut into 2, 2")));
}

TEST_ON_EACH_WORKER(Cuts, OfAnUnknownOrDifferentSizeAreEachByItsOwn) {
  const Steps expected{cut(2 * n, 2 * n)[0], cut(n, n)[0]};
  EXPECT_EQ(steps_of(range(2 * n).batch(2 * n).concatenate(range(n).batch(n))), expected);
  const int all = 2 * n, some = n;
  const auto made =
      range(2).flat_map([=](std::int64_t i) { return range(i == 0 ? all : some).batch(all); });
  EXPECT_EQ(steps_of(made), expected);
  if (n == 1) return;
  EXPECT_THAT(strategy.distribute_dataset(made).explain(),
              HasSubstr(cat("each batch is cut evenly by its own size into ", n, " pieces")));
}

TEST_ON_EACH_WORKER(Cuts, OfLeavesOfDifferentLengthAreEachByItsOwn) {
  const auto pairs = range(n).batch(n).map([](const at::Tensor& x) {
    return std::pair(x, torch::cat({x, x}));
  });
  std::string expected;
  for (const int i : ids_here()) {
    expected += cat(i > first_here ? "|" : "", i, ';', 2 * i % n, ' ', (2 * i + 1) % n);
  }
  EXPECT_THAT(steps_of(pairs), ElementsAre(expected));
}

TEST_ON_EACH_WORKER(Cuts, OfStrings) {
  const auto words = range(n).map([](std::int64_t x) { return cat('w', x); }).batch(n + 1);
  std::string expected;  // the first one has two, and the last one none
  for (const int i : ids_here()) {
    expected += i > first_here ? "|" : "";
    for (int w = i + (i > 0); w < std::min(i + 2, n); ++w) expected += cat('w', w, ' ');
  }
  EXPECT_THAT(steps_of(words), ElementsAre(expected));
}

TEST_ON_EACH_WORKER(Cuts, OfSparseBatches) {
  const auto sparse = range(n).batch(n + 1).map([](const at::Tensor& x) { return x.to_sparse(); });
  auto iterator = strategy.distribute_dataset(sparse).iterator();
  const auto step = iterator.get_next();
  std::vector<at::Tensor> dense;
  for (const at::Tensor& own : step.values()) {
    EXPECT_TRUE(own.is_sparse());
    dense.push_back(own.to_dense());
  }
  EXPECT_EQ(step_text(PerReplica<at::Tensor>(dense)), cut(n, n + 1)[0]);
}

TEST_ON_EACH_WORKER(Cuts, OfElementsWithoutRowsAreAnErrorThatSaysSo) {
  const auto tensors = data::from_tensor_slices(torch::arange(4));
  if (n == 1) {  // elements as they are
    EXPECT_THAT(steps_of(range(3)), ElementsAre("0", "1", "2"));
    EXPECT_THAT(steps_of(tensors), ElementsAre("0", "1", "2", "3"));
    return;
  }
  EXPECT_FAILS(steps_of(range(4)), ValueError, ".batch(global_batch_size)");
  EXPECT_FAILS(steps_of(tensors), ValueError, "batch");
}

TEST_P(CutsOnEachWorker, AlongTheFeaturesOfUnbatchedRowsAreSaidToBe) {
  const CapturedLog log;
  on_each_worker<Cuts>(GetParam(), [](Cuts& test) {
    const bool is_cut = test.n > 1;
    const auto expect_said = [&](const auto& dataset, bool expected) {
      const auto distributed = test.strategy.distribute_dataset(dataset);
      for (int pass = 0; pass < 2; ++pass) distributed.iterator().get_next();
      EXPECT_EQ(distributed.explain().find("no stage makes batches: each element is cut along its "
                                           "first dimension") != std::string::npos,
                expected);
    };
    const auto rows = data::from_tensor_slices(torch::arange(16).reshape({4, 4}));
    const auto pairs =
        data::from_tensor_slices(std::pair(torch::ones({4, 4}), torch::ones({4, 2})));
    const auto same = [](const at::Tensor& x) { return x; };
    EXPECT_EQ(test.steps_of(rows.take(1)), test.cut(4, 4));
    expect_said(rows, is_cut);
    expect_said(pairs.shuffle(4).prefetch(1), is_cut);
    expect_said(rows.map(same), is_cut);
    expect_said(range(4).map([](std::int64_t) { return torch::ones({4}); }), is_cut);
    expect_said(rows.batch(2).unbatch(), is_cut);
    expect_said(data::zip(rows.batch(2), rows), is_cut);
    expect_said(rows.batch(2), false);
    expect_said(rows.batch(2).map(same).repeat(2), false);
    expect_said(rows.batch(2).batch(2).unbatch(), false);
    expect_said(range(1).flat_map([&](std::int64_t) { return rows.batch(2); }), false);
  });
  const int on_each = GetParam().replicas > 1 ? 7 : 0;
  EXPECT_EQ(log.count(log::Level::WARNING, "no stage of the dataset makes batches"),
            on_each * std::max(GetParam().workers, 1));
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

/// What each policy gives, on all layouts.
struct Policies : InputOnLayouts {
  using InputOnLayouts::InputOnLayouts;
};
ON_ALL_INPUT_LAYOUTS(Policies);

TEST_ON_EACH_WORKER(Policies, OffGivesAllDataToEvenWorkers) {
  const auto batches = range(3 * n + 1).batch(2 * n);
  expect_for_even_workers_only(
      [&] {
        EXPECT_EQ(steps_of(batches, policy(AutoShardPolicy::OFF)),
                  cut_by_each([&](int) { return first_numbers(3 * n + 1); }, 2 * n));
      },
      "the policy OFF (as asked for)");
}

TEST_ON_EACH_WORKER(Policies, HintGivesEvenWorkersWhatTheStageLeaves) {
  const int rows = 7 * n + 3;
  const auto batches = range(rows).shard(data::SHARD_HINT).batch(2 * n);
  const auto of_worker = [&](int w) {
    Numbers own;
    for (int x = w; x < rows; x += workers) own.push_back(x);
    return own;
  };
  expect_for_even_workers_only(
      [&] {
        EXPECT_EQ(steps_of(batches, policy(AutoShardPolicy::HINT)), cut_by_each(of_worker, 2 * n));
      },
      "the policy HINT (as asked for)");
}

TEST_ON_EACH_WORKER(Policies, FileGivesEvenWorkersTheirFiles) {
  const auto batches = [&] { return FilesOfNumbers::numbers().batch(2 * n); };
  const auto of_worker = [&](int w) { return FilesOfNumbers::lines_of_reader(w, workers); };
  expect_for_even_workers_only(
      [&] { EXPECT_EQ(steps_of(batches()), cut_by_each(of_worker, 2 * n)); },
      "the policy FILE (AUTO: every source of the pipeline is files)");
  expect_for_even_workers_only(
      [&] {
        EXPECT_EQ(steps_of(batches(), policy(AutoShardPolicy::FILE)),
                  cut_by_each(of_worker, 2 * n));
      },
      "the policy FILE (as asked for)");
}

TEST_ON_EACH_WORKER(Policies, FileByReplicaGivesEachReplicaItsFilesAndItsShareOfABatch) {
  const int full = 3 * n - 1;  // the last replica's share is smaller
  std::vector<std::vector<std::string>> own;
  std::size_t most = 0;
  for (const int i : ids_here()) {
    own.emplace_back();
    const int share = full / n + (i < full % n ? 1 : 0);
    for (const Numbers& batch : batches_of(FilesOfNumbers::lines_of_reader(i, n), share)) {
      std::string text;
      for (const int x : batch) text += cat(text.empty() ? "" : " ", x);
      own.back().push_back(text);
    }
  }
  for (int i = 0; i < n; ++i) {
    const int share = full / n + (i < full % n ? 1 : 0);
    most = std::max(most, batches_of(FilesOfNumbers::lines_of_reader(i, n), share).size());
  }
  Steps expected(most);
  for (int i = 0; i < n_here; ++i) {
    own[i].resize(most);
    for (std::size_t step = 0; step < most; ++step) {
      expected[step] += (i > 0 ? "|" : "") + own[i][step];
    }
  }
  EXPECT_EQ(
      steps_of(FilesOfNumbers::numbers().batch(full), policy(AutoShardPolicy::FILE_BY_REPLICA)),
      expected);
}

TEST_ON_EACH_WORKER(Policies, FileByReplicaDropsTheRemaindersOfReplicas) {
  expect_as_on_one_process([](const Strategy& on) {
    const int full = 2 * on.num_replicas_in_sync();
    return on.distribute_dataset(FilesOfNumbers::numbers().batch(full, {.drop_remainder = true}),
                                 policy(AutoShardPolicy::FILE_BY_REPLICA));
  });
}

TEST_ON_EACH_WORKER(Policies, FileByReplicaNeedsAFileForEachReplica) {
  if (n == 1) return;
  const auto few = range(n - 1).map([](std::int64_t x) { return cat("unread-", x); });
  EXPECT_FAILS(steps_of(data::text_lines(few).batch(n), policy(AutoShardPolicy::FILE_BY_REPLICA)),
               InvalidArgument, cat("fewer files than replicas: expected at least ", n));
}

TEST_ON_EACH_WORKER(Policies, OfTheCallWinOverThoseOfTheDataset) {
  const auto off = range(4 * n).batch(2 * n).options({.auto_shard = AutoShardPolicy::OFF});
  expect_for_even_workers_only(
      [&] { EXPECT_THAT(strategy.distribute_dataset(off).explain(), HasSubstr("policy OFF")); },
      "the policy OFF (as asked for)");
  EXPECT_THAT(strategy.distribute_dataset(off, policy(AutoShardPolicy::DATA)).explain(),
              HasSubstr("policy DATA (as asked for)"));
  EXPECT_EQ(steps_of(off, policy(AutoShardPolicy::DATA)), cut(4 * n, 2 * n));
}

TEST_ON_EACH_WORKER(Policies, AutoIsDataWhereNotEverySourceIsFiles) {
  const auto beside = [](const Strategy& on) {
    const auto pairs = data::zip(FilesOfNumbers::numbers(), range(30));
    return on.distribute_dataset(pairs.batch(2 * on.num_replicas_in_sync() + 1));
  };
  EXPECT_THAT(beside(strategy).explain(),
              HasSubstr("policy DATA (AUTO: not every source of the pipeline is files)"));
  expect_as_on_one_process(beside);
}

TEST_ON_EACH_WORKER(Policies, AutoIsDataWhereAStageCountsThroughAllFiles) {
  const auto numbered = [](const Strategy& on) {
    return on.distribute_dataset(
        FilesOfNumbers::numbers().enumerate().batch(2 * on.num_replicas_in_sync() + 1));
  };
  EXPECT_THAT(numbered(strategy).explain(),
              HasSubstr("policy DATA (AUTO: enumerate depends on the elements of all files)"));
  expect_as_on_one_process(numbered);
  const auto scanned = [](const Strategy& on) {
    const auto sums = FilesOfNumbers::numbers().scan(
        std::int64_t{0},
        [](std::int64_t sum, std::int64_t x) { return std::pair(sum + x, sum + x); });
    return on.distribute_dataset(sums.batch(2 * on.num_replicas_in_sync() + 1));
  };
  EXPECT_THAT(scanned(strategy).explain(), HasSubstr("policy DATA (AUTO: scan"));
  expect_as_on_one_process(scanned);
}

TEST_ON_EACH_WORKER(Policies, FileIsRefusedWhereNotEverySourceIsFiles) {
  if (workers == 1) return;
  const auto pairs = data::zip(FilesOfNumbers::numbers(), range(30)).batch(2 * n);
  if (!is_even()) {
    EXPECT_FAILS(steps_of(pairs, policy(AutoShardPolicy::FILE)), ValueError, "the policy FILE");
    return;
  }
  EXPECT_FAILS(steps_of(pairs, policy(AutoShardPolicy::FILE)), NotFound, "range");
}

TEST_ON_EACH_WORKER(Policies, ThatGiveEachReplicaTheSameGiveItOnAnyNumberOfWorkers) {
  for (const InputWay& way : ways_for_any_workers()) {
    SCOPED_TRACE(way.name);
    expect_as_on_one_process(way);
  }
}

TEST_ON_EACH_WORKER(Policies, ThatGiveEachReplicaTheSameReshuffleAlike) {
  for (const InputWay& way : ways_for_any_workers()) {
    SCOPED_TRACE(way.name);
    expect_as_on_one_process(way, [](const auto& distributed) {
      Steps passes = cohort::steps_of(distributed);
      for (int pass = 0; pass < 2; ++pass) {
        for (std::string& step : cohort::steps_of(distributed)) passes.push_back(std::move(step));
      }
      return passes;
    });
  }
}

TEST_ON_EACH_WORKER(Policies, DoNotDependOnHowManyStepsAreMadeAhead) {
  for (const InputWay& way : ways_for_any_workers()) {
    SCOPED_TRACE(way.name);
    const Steps expected = here(cohort::steps_of(way(one_process())));
    for (const int buffer : {0, 1, 7}) {
      EXPECT_EQ(cohort::steps_of(way(strategy, {.per_replica_buffer_size = buffer})), expected);
    }
  }
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

TEST_ON_EACH_WORKER(Policies, DataReadsOnlyTheRowsOfAWorkersReplicas) {
  struct Counting : data::Rows<at::Tensor> {
    Counting(std::int64_t rows, std::atomic<int>& reads) : rows(rows), reads(reads) {}
    std::int64_t size() const override { return rows; }
    at::Tensor at(std::int64_t row) const override { return torch::tensor(row); }
    at::Tensor gather(std::span<const std::int64_t> rows) const override {
      reads += static_cast<int>(rows.size());
      return torch::tensor(at::ArrayRef<std::int64_t>(rows.data(), rows.size()));
    }
    data::ElementSpec spec() const override { return {}; }
    const std::int64_t rows;
    std::atomic<int>& reads;
  };
  std::atomic<int> reads{0};
  const int count = 3 * n;
  const data::Dataset<at::Tensor> rows(std::make_shared<data::RowsNode<at::Tensor>>(
      "counting", std::make_shared<Counting>(count, reads)));
  EXPECT_EQ(steps_of(rows.batch(2 * n).prefetch(1)), cut(count, 2 * n));
  int own = 0;
  for (const int i : ids_here()) {
    own += 2 + std::clamp(n - 2 * i, 0, 2);  // of the full batch, and of the short one
  }
  EXPECT_EQ(reads, own);
}

/// What happens to all workers when the input of one is not as it should be.
struct FailingInput : InputOnLayouts {
  using InputOnLayouts::InputOnLayouts;
};
ON_ALL_INPUT_LAYOUTS(FailingInput);

TEST_ON_EACH_WORKER(FailingInput, WorkersThatReadDifferentDataAreTold) {
  if (workers == 1) return;
  for (const int left_out : {0, 3 * n}) {  // in the first step, and before one that is looked at
    const auto own =
        range(60 * n).filter([&](std::int64_t x) { return !is_last_worker() || x != left_out; });
    EXPECT_FAILS(steps_of(own.batch(n)), InvalidArgument,
                 cat(name_of_last_worker(), " cuts other batches than ", world().name(0)));
  }
  EXPECT_EQ(steps_of(range(3 * n).batch(2 * n)), cut(3 * n, 2 * n));
}

TEST_ON_EACH_WORKER(FailingInput, IsNamedToAllOtherWorkers) {
  const auto own = range(6 * n).batch(n).map([&](const at::Tensor& x) {
    if (is_last_worker() && x[0].item<int>() == 2 * n) throw ValueError("my map", "two");
    return x;
  });
  const std::string others =
      cat("[distribute_dataset] the input of ", name_of_last_worker(), " has failed: [my map] two");
  for (int pass = 0; pass < 2; ++pass) {
    Steps steps;
    EXPECT_REPLICA_FAILS(last,
                         for (const auto& step
                              : strategy.distribute_dataset(own)) steps.push_back(step_text(step)),
                         ValueError, is_last_worker() ? "[my map] two" : others);
    const Steps all = cut(6 * n, n);
    EXPECT_EQ(steps, Steps(all.begin(), all.begin() + 2)) << "what comes before the error";
  }
}

/// An exception that is not Cohort's.
struct Unreadable : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct WithoutText : std::exception {
  const char* what() const noexcept override { return ""; }
};

TEST_ON_EACH_WORKER(FailingInput, KeepsItsTypeOnItsOwnWorker) {
  const auto thrown_in = [&](const auto& thrown) {
    return range(4 * n).batch(n).map([&, thrown](const at::Tensor& x) {
      if (is_last_worker()) throw thrown;
      return x;
    });
  };
  EXPECT_REPLICA_THROWS(last, steps_of(thrown_in(Unreadable("bad sector"))), Unreadable);
  EXPECT_REPLICA_THROWS(last, steps_of(thrown_in(WithoutText())), WithoutText);
  EXPECT_REPLICA_THROWS(last, steps_of(thrown_in(42)), int);
}

TEST_ON_EACH_WORKER(FailingInput, OfTheFilesOfOneReplicaIsNamedToAllWorkers) {
  const Numbers own = FilesOfNumbers::lines_of_reader(last_of_chief, n);
  if (own.size() < 2) return;
  const auto numbers = FilesOfNumbers::numbers().map([bad = own[1]](std::int64_t x) {
    return x == bad ? throw ValueError("my map", "one line") : x;
  });
  const auto distributed =
      strategy.distribute_dataset(numbers.batch(2 * n), policy(AutoShardPolicy::FILE_BY_REPLICA));
  EXPECT_REPLICA_FAILS(last_of_chief, cohort::steps_of(distributed), ValueError,
                       is_here(last_of_chief)
                           ? std::string("[my map] one line")
                           : cat("the input of ", world().name(0), " has failed: [my map]"));
}

TEST_ON_EACH_WORKER(FailingInput, ThatCantEvenBeginIsNamedToAllWorkers) {
  const auto missing = [&](const InputContext& input) {
    const std::string name = cat(testing::TempDir(), "cohort_is_not_there");
    return input.input_pipeline_id == last ? data::text_lines(name)
                                           : data::from_tensor_slices(Steps{"a", "b"});
  };
  const auto distributed = strategy.distribute_datasets_from_function(missing, kPerReplica);
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_REPLICA_FAILS(last, cohort::steps_of(distributed), NotFound, "cohort_is_not_there");
  }
}

TEST_ON_EACH_WORKER(FailingInput, OfAllWorkersIsEachOnesOwn) {
  const auto broken = range(8 * n).batch(2 * n).map([this](const at::Tensor& x) {
    if (x[0].item<int>() == 4 * n) throw ValueError("my map", "four");
    return x;
  });
  const auto distributed = strategy.distribute_dataset(broken);
  for (int pass = 0; pass < 2; ++pass) {
    auto iterator = distributed.iterator();
    iterator.get_next();
    iterator.get_next();
    EXPECT_FAILS(iterator.get_next(), ValueError, "four");
  }
}

TEST_ON_EACH_WORKER(FailingInput, CostsAllReplicasTheSameBatch) {
  const auto broken = [this](bool everywhere) {
    return strategy.distribute_dataset(
        range(8 * n).batch(2 * n).map([=, this](const at::Tensor& x) {
          const bool is_bad = x[0].item<int>() == 4 * n && (everywhere || is_last_worker());
          return is_bad ? throw ValueError("my map", "four") : x;
        }));
  };
  Steps expected = cut(8 * n, 2 * n);
  expected[2] = "error";
  EXPECT_EQ(steps_and_errors(broken(true)), expected);
  EXPECT_EQ(steps_and_errors(broken(false)), expected);
}

TEST_ON_EACH_WORKER(FailingInput, ThatMovesTheBatchesOfOneWorkerIsFoundInTheNextStep) {
  if (workers == 1) return;
  const auto numbers = range(40 * n).map([&](std::int64_t x) {
    return x == 3 * n && is_last_worker() ? throw ValueError("my map", "lost") : x;
  });
  auto iterator = strategy.distribute_dataset(numbers.batch(n)).iterator();
  for (int step = 0; step < 3; ++step) iterator.get_next();
  EXPECT_REPLICA_FAILS(last, iterator.get_next(), ValueError, "[my map] lost");
  EXPECT_FAILS(iterator.get_next(), InvalidArgument,
               cat(name_of_last_worker(), " cuts other batches than ", world().name(0)));
}

TEST_ON_EACH_WORKER(FailingInput, LeavesAPositionWhereNoReplicaHasLostAnything) {
  const auto distributed = strategy.distribute_datasets_from_function(
      [this](const InputContext& input) {
        return range(4).map([=, this](std::int64_t x) {
          const bool is_bad = input.input_pipeline_id == last && x == 2;
          return is_bad ? throw ValueError("my map", "two") : torch::full({1}, x);
        });
      },
      kPerReplica);
  auto iterator = distributed.iterator();
  iterator.get_next();
  iterator.get_next();
  EXPECT_REPLICA_FAILS(last, iterator.get_next(), ValueError, "[my map] two");
  auto resumed = distributed.iterator();
  resumed.restore(iterator.position());
  for (auto* const each : {&iterator, &resumed}) {
    Steps rest;
    while (const auto step = each->get_next_as_optional()) rest.push_back(step_text(*step));
    Steps expected(2);
    for (const int i : ids_here()) {
      const char* const bar = i > first_here ? "|" : "";
      expected[0] += cat(bar, i == last ? "3" : "2");
      expected[1] += cat(bar, i == last ? "" : "3");
    }
    if (n == 1) expected.pop_back();
    EXPECT_EQ(rest, expected);
  }
}

TEST_ON_EACH_WORKER(FailingInput, OfABatchThatCantBeCutCostsThatBatch) {
  const auto uneven = range(3).map([this](std::int64_t x) {
    const std::vector<std::int64_t> shape{n};
    return torch::full({}, x).expand(x == 1 ? std::vector<std::int64_t>{} : shape);
  });
  const auto same = [this](int x) { return cut(Numbers(n, x), n)[0]; };
  EXPECT_THAT(steps_and_errors(strategy.distribute_dataset(uneven)),
              ElementsAre(same(0), n == 1 ? "1" : "error", same(2)));
}

const auto not_three = [](std::int64_t x) {
  return x == 3 ? throw ValueError("my map", "three") : torch::full({1}, x);
};

TEST_ON_EACH_WORKER(FailingInput, OfOneReplicaCostsNoReplicaWhatOthersGot) {
  for (const int buffer : {0, 2}) {
    InputOptions options = kPerReplica;
    options.per_replica_buffer_size = buffer;
    expect_as_on_one_process(
        [&](const Strategy& on) {
          return on.distribute_datasets_from_function(
              [](const InputContext& input) {
                const int first = 2 * input.input_pipeline_id;  // the first two replicas fail
                return range(first, first + 5 - input.input_pipeline_id % 2).map(not_three);
              },
              options);
        },
        [](const auto& distributed) { return steps_and_errors(distributed); });
  }
}

TEST_ON_EACH_WORKER(FailingInput, OfOneWorkersFunctionCostsNoReplicaWhatOthersGot) {
  if (!is_even()) return;
  const auto distributed =
      strategy.distribute_datasets_from_function([this](const InputContext& input) {
        const bool is_last = input.input_pipeline_id == workers - 1;
        return range(3 * n_here).map([=, this](std::int64_t x) {
          return is_last && x == n_here ? throw ValueError("my map", "bad") : torch::full({1}, x);
        });
      });
  const auto dealt = [this](int from) {
    std::string step;
    for (int i = 0; i < n_here; ++i) {
      if (i > 0) step += '|';
      if (from + i < 3 * n_here) step += cat(from + i);
    }
    return step;
  };
  const int lost = is_last_worker() ? 1 : 0;
  Steps expected{dealt(0), "error", dealt(n_here + lost), dealt(2 * n_here + lost)};
  if (n == 1) expected.pop_back();  // nobody has any more
  EXPECT_EQ(steps_and_errors(distributed), expected);
}

TEST_ON_EACH_WORKER(FailingInput, ThatIsIgnoredLeavesStepsThatCanBeTakenUpAgain) {
  const auto dataset =
      range(12 * n).map(not_three).shuffle(6, {.seed = 1}).unbatch().batch(2 * n).ignore_errors();
  const auto distributed = strategy.distribute_dataset(dataset);
  const Steps all = cohort::steps_of(distributed);
  EXPECT_EQ(all.size(), 6U);
  auto first = distributed.iterator();
  for (std::size_t stop = 0; stop < all.size(); ++stop) {
    auto resumed = distributed.iterator();
    resumed.restore(first.position());
    const auto next = resumed.get_next();
    EXPECT_EQ(step_text(next), step_text(first.get_next()));
  }
}

TEST(AWorkerThatIsGone, EndsTheInputOfTheOthers) {
  const auto failures = of_each_worker(3, [](const Worker& worker) {
    const auto replicas = replicas_of(1, worker);
    if (worker.index() == 2) return std::string("left");
    return failure_of([&] { steps_of(distribute_dataset(range(6).batch(3), replicas, {})); });
  });
  EXPECT_THAT(failures, ElementsAre(HasSubstr("Unavailable"), HasSubstr("Unavailable"), "left"));
  EXPECT_THAT(failures[0],
              HasSubstr("worker 2 (replica 2) has ended its strategy, optimizer or dataset"));
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
  const auto options = policy(AutoShardPolicy::FILE_BY_REPLICA);
  const auto of_replicas = by_replica(records().batch(4), {4, 1}, options);
  for (const int workers : {1, 2, 3, 4}) {
    EXPECT_EQ(by_replica(names.flat_map(read).batch(4), {4, workers}, options), of_replicas);
  }
}

TEST_F(Files, OfAReplicaDoNotDependOnTheWorkers) {
  const auto options = policy(AutoShardPolicy::FILE_BY_REPLICA);
  const auto expected = by_replica(records().batch(4), {4, 1}, options);
  EXPECT_THAT(expected[1], ElementsAre("2 ", "3 "));
  for (const int workers : {2, 3, 4}) {
    EXPECT_EQ(by_replica(records().batch(4), {4, workers}, options), expected) << workers;
  }
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

/// Distributed datasets and their iterators, on all layouts.
struct DistributedDatasets : InputOnLayouts {
  using InputOnLayouts::InputOnLayouts;

  /// What a position leaves of a pass.
  template <class T>
  static Steps behind(const DistributedDataset<T>& distributed, const data::Position& position) {
    auto iterator = distributed.iterator();
    iterator.restore(position);
    return rest_of(iterator);
  }
  template <class T>
  static Steps rest_of(DistributedIterator<T>& iterator) {
    Steps rest;
    while (const auto step = iterator.get_next_as_optional()) rest.push_back(step_text(*step));
    return rest;
  }
  template <class T>
  static data::Position behind_two_steps(const DistributedDataset<T>& distributed) {
    auto iterator = distributed.iterator();
    iterator.get_next();
    iterator.get_next();
    return iterator.position();
  }
  auto distributed(const auto& dataset, const InputOptions& options = {}) const {
    return strategy.distribute_dataset(dataset, options);
  }
};
ON_ALL_INPUT_LAYOUTS(DistributedDatasets);

TEST_ON_EACH_WORKER(DistributedDatasets, ExplainWhatHappensInMemory) {
  const std::string text = distributed(range(9 * n).batch(2 * n + 1)).explain();
  const std::string here = workers == 1 ? "worker 0" : world().name(world().index());
  EXPECT_THAT(text, StartsWith(cat("input for ", n, " replicas on ", workers,
                                   workers == 1 ? " worker" : " workers", ", this is ", here,
                                   "\n  policy DATA (AUTO: not every source of the pipeline is "
                                   "files)\n")));
  if (n > 1) {
    EXPECT_THAT(text, HasSubstr(cat("a batch of ", 2 * n + 1, " is cut into 3, 2")));
    EXPECT_THAT(text, HasSubstr(cat("2 for replicas 0 to ", last, '\n')));
  }
  EXPECT_THAT(text, HasSubstr("2 steps are made ahead"));
  EXPECT_THAT(text, HasSubstr("the data does not depend on the number of workers"));
  const auto reads_part = HasSubstr("every worker reads the rows of its own replicas only");
  const auto reads_all = HasSubstr("every worker reads everything");
  const auto stream = range(9 * n).map([](std::int64_t x) { return x; }).batch(2 * n);
  if (workers > 1) {
    EXPECT_THAT(text, reads_part);
    EXPECT_THAT(distributed(stream).explain(), reads_all);
  } else {
    EXPECT_THAT(text, testing::Not(testing::AnyOf(reads_part, reads_all)));
  }
}

TEST_ON_EACH_WORKER(DistributedDatasets, ExplainWhoReadsWhichFile) {
  const auto batches = FilesOfNumbers::numbers().batch(2 * n);
  const std::string by_replica =
      distributed(batches, policy(AutoShardPolicy::FILE_BY_REPLICA)).explain();
  for (int i = 0; i < n; ++i) {
    EXPECT_THAT(by_replica, HasSubstr(cat("  replica ", i, " reads /")));
    EXPECT_THAT(by_replica,
                testing::ContainsRegex(cat("replica ", i, " reads [^ ]*/", 10 + i, "\\.txt")));
  }
  EXPECT_THAT(by_replica, HasSubstr("the data does not depend on the number of workers"));
  if (workers == 1 || !is_even()) return;
  const std::string by_worker = distributed(batches).explain();
  for (int w = 0; w < workers; ++w) {
    EXPECT_THAT(by_worker,
                testing::ContainsRegex(cat("worker ", w, " reads [^ ]*/", 10 + w, "\\.txt [^ ]*/",
                                           10 + w + workers, "\\.txt")));
  }
  EXPECT_THAT(by_worker, HasSubstr("the data depends on the number of workers"));
}

TEST_ON_EACH_WORKER(DistributedDatasets, KnowTheirSpecAndSteps) {
  const auto spec = [&](const auto& dataset) { return cat(distributed(dataset).element_spec()); };
  EXPECT_EQ(spec(range(8 * n).batch(4 * n)), "int64[?]");
  EXPECT_EQ(spec(range(8 * n).batch(4 * n, {.drop_remainder = true})), "int64[4]");
  EXPECT_EQ(spec(range(8 * n).batch(3 * n + 1, {.drop_remainder = true})),
            n == 1 ? "int64[4]" : "int64[?]");
  if (n == 1) {
    EXPECT_EQ(spec(range(8)), "int64[]");
  }
  const auto steps = [&](const auto& dataset) { return distributed(dataset).cardinality(); };
  EXPECT_EQ(steps(range(8 * n + 1).batch(4 * n)), 3);
  EXPECT_EQ(steps(range(9).batch(4 * n).repeat()), data::kInfinite);
  EXPECT_EQ(steps(range(9).filter([](std::int64_t) { return true; }).batch(n)),
            data::kUnknownCardinality);
}

TEST_ON_EACH_WORKER(DistributedDatasets, CanBeIteratedAgainAndReshuffle) {
  const auto shuffled = distributed(range(20 * n).shuffle(20 * n, {.seed = 1}).batch(4 * n));
  const Steps first = cohort::steps_of(shuffled), second = cohort::steps_of(shuffled);
  EXPECT_EQ(first.size(), 5U);
  EXPECT_EQ(second.size(), 5U);
  EXPECT_NE(first, second);
}

TEST_ON_EACH_WORKER(DistributedDatasets, CanBeLeftInTheMiddleOfAPass) {
  for (const InputWay& way : ways_for_any_workers()) {
    SCOPED_TRACE(way.name);
    expect_as_on_one_process(way, [](const auto& distributed) {
      Steps first_of_two_passes;
      for (int pass = 0; pass < 2; ++pass) {
        for (const auto& step : distributed) {
          first_of_two_passes.push_back(step_text(step));
          break;
        }
      }
      return first_of_two_passes;
    });
  }
}

TEST_ON_EACH_WORKER(DistributedDatasets, EndWithOutOfRangeOrWithNothing) {
  auto iterator = distributed(range(n).batch(n)).iterator();
  EXPECT_EQ(step_text(iterator.get_next()), cut(n, n)[0]);
  EXPECT_FAILS(iterator.get_next(), OutOfRange, "end of the dataset");
  EXPECT_FALSE(iterator.get_next_as_optional());
  EXPECT_FAILS(iterator.get_next(), OutOfRange, "end of the dataset");
  EXPECT_GE(iterator.waited().count(), 0);
}

TEST_ON_EACH_WORKER(DistributedDatasets, CanBeIteratedInTurn) {
  const auto first = distributed(range(6 * n).batch(2 * n));
  const auto second = distributed(range(3 * n).batch(n));
  auto one = first.iterator(), two = second.iterator(), three = first.iterator();
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(step_text(one.get_next()), cut(6 * n, 2 * n)[step]);
    EXPECT_EQ(step_text(two.get_next()), cut(3 * n, n)[step]);
    EXPECT_EQ(step_text(three.get_next()), cut(6 * n, 2 * n)[step]);
  }
}

TEST_ON_EACH_WORKER(DistributedDatasets, ResumeBehindAnyStep) {
  const auto stream = range(5 * n + 1).filter([](std::int64_t) { return true; });
  const auto dataset = stream.shuffle(6, {.seed = 1}).batch(2 * n).repeat(2);
  auto ways = ways_for_any_workers();
  for (const auto chosen : {AutoShardPolicy::DATA, AutoShardPolicy::OFF}) {
    if (chosen == AutoShardPolicy::OFF && !is_even()) continue;
    ways.push_back({policy_name(chosen), [=](const Strategy& on, InputOptions options) {
                      options.auto_shard = chosen;
                      return on.distribute_dataset(dataset, options);
                    }});
  }
  for (const InputWay& way : ways) {
    SCOPED_TRACE(way.name);
    const auto distributed = way(strategy);
    auto whole = distributed.iterator();
    const data::Position start = whole.position();
    const Steps all = rest_of(whole);
    EXPECT_THAT(behind(distributed, whole.position()), ElementsAre()) << "behind the end";
    for (std::size_t stop = 0; stop <= all.size(); ++stop) {
      auto first = distributed.iterator();
      first.restore(start);
      for (std::size_t i = 0; i < stop; ++i) first.get_next();
      const auto position = data::Position::from_bytes(first.position().bytes());
      EXPECT_EQ(behind(distributed, position), Steps(all.begin() + stop, all.end()))
          << "stopped at " << stop;
    }
  }
}

TEST_ON_EACH_WORKER(DistributedDatasets, ResumeWithOtherNumbersOfStepsMadeAhead) {
  for (const InputWay& way : ways_for_any_workers()) {
    SCOPED_TRACE(way.name);
    auto saved = way(strategy).iterator();
    saved.get_next();
    const data::Position position = saved.position();
    const Steps rest = rest_of(saved);
    for (const int buffer : {0, 1}) {
      EXPECT_EQ(behind(way(strategy, {.per_replica_buffer_size = buffer}), position), rest);
    }
  }
}

TEST_ON_EACH_WORKER(DistributedDatasets, RefuseThePositionOfAnotherPipeline) {
  const auto dataset = range(20 * n).batch(4 * n);
  const auto distributed = strategy.distribute_dataset(dataset);
  const auto position_of = [&](const auto& other) {
    return behind_two_steps(strategy.distribute_dataset(other));
  };
  EXPECT_FAILS(behind(distributed, position_of(range(20 * n).batch(5 * n))), InvalidArgument,
               cat("other stages: expected one that was saved from an iterator of range[", 20 * n,
                   "].batch(", 4 * n, ")"));
  EXPECT_FAILS(behind(distributed, position_of(dataset.repeat(2))), InvalidArgument,
               "other stages");
  auto of_dataset = dataset.iterator();
  of_dataset.next();
  EXPECT_FAILS(behind(distributed, of_dataset.position()), InvalidArgument,
               cat("range[", 20 * n, "].batch(", 4 * n, ").distribute_dataset"));
}

TEST_ON_EACH_WORKER(DistributedDatasets, RefuseThePositionOfOtherReplicasWhereEachReadsItsOwn) {
  if (n == 1) return;
  const auto files = [](const Strategy& on) {
    return on.distribute_dataset(FilesOfNumbers::numbers().batch(16),
                                 policy(AutoShardPolicy::FILE_BY_REPLICA));
  };
  const std::vector<Device> devices{Device("cpu:0")};
  const MirroredStrategy others({.devices = devices, .replicas = n + 1});
  EXPECT_FAILS(behind(files(strategy), files(others).iterator().position()), InvalidArgument,
               cat("another number of pipelines: expected ", n, ", got ", n + 1));
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

TEST(ADistributedIterator, GoesOnWithOtherReplicasWorkersAndBuffers) {
  const auto dataset = range(40).shuffle(40, {.seed = 1}).batch(4);
  const auto position = behind_two(distribute_dataset(dataset, replicas_of(2), {}));
  const std::string third = rows_behind(distribute_dataset(dataset, replicas_of(2), {}), position);
  EXPECT_EQ(rows_behind(distribute_dataset(dataset, replicas_of(1), {}), position), third);
  EXPECT_EQ(rows_behind(distribute_dataset(dataset, replicas_of(4), {}), position), third);
  const InputOptions unbuffered{.per_replica_buffer_size = 0};
  EXPECT_EQ(rows_behind(distribute_dataset(dataset, replicas_of(2), unbuffered), position), third);
  for (const Job& job : {Job{2, 2}, Job{4, 2}, Job{4, 3}, Job{3, 3}}) {
    const auto of_workers = of_each_worker(job.workers, [&](const Worker& worker) {
      const auto replicas = replicas_of_job(job.replicas, worker);
      return rows_behind(distribute_dataset(dataset, replicas, {}), position);
    });
    std::string all;
    for (const std::string& rows : of_workers) all += (all.empty() ? "" : " ") + rows;
    EXPECT_EQ(all, third) << testing::PrintToString(job);
  }
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

TEST_ON_EACH_WORKER(DistributedDatasets, TakeAnUnorderedMap) {
  const auto unordered =
      range(8 * n).map([](std::int64_t x) { return x; }, {.parallel = 2, .ordered = false});
  const Steps steps = steps_of(unordered.batch(4 * n));
  EXPECT_EQ(steps.size(), 2U);
  if (is_even()) {
    const auto shuffled = unordered.shuffle(3).batch(4 * n);
    EXPECT_EQ(steps_of(shuffled, policy(AutoShardPolicy::OFF)).size(), 2U * workers);
  }
  auto iterator = distributed(unordered.batch(4 * n)).iterator();
  iterator.get_next();
  if (workers > 1) {  // all of them make the same batches, and so in order
    EXPECT_EQ(steps, cut(8 * n, 4 * n));
    EXPECT_EQ(behind(distributed(unordered.batch(4 * n)), iterator.position()), Steps{steps[1]});
  } else {
    EXPECT_FAILS(iterator.position(), ValueError, "{.ordered = true}");
  }
}

TEST_ON_EACH_WORKER(DistributedDatasets, HaveNoPositionOnAnyWorkerWhereOneHasNone) {
  const auto unordered_for_last = [this](const InputContext& input) {
    const bool is_ordered = input.input_pipeline_id != last;
    return range(4).map([](std::int64_t x) { return x; }, {.parallel = 2, .ordered = is_ordered});
  };
  auto iterator =
      strategy.distribute_datasets_from_function(unordered_for_last, kPerReplica).iterator();
  iterator.get_next();
  EXPECT_REPLICA_FAILS(last, iterator.position(), ValueError, "{.ordered = true}");
  EXPECT_EQ(rest_of(iterator).size(), 3U) << "the pass goes on";
}

TEST_P(DistributedDatasetsOnEachWorker, SayOnceThatUnorderedStagesRunInOrder) {
  const CapturedLog log;
  on_each_worker<DistributedDatasets>(GetParam(), [](DistributedDatasets& test) {
    const auto unordered =
        range(8).map([](std::int64_t x) { return x; }, {.parallel = 2, .ordered = false});
    for (int i = 0; i < 2; ++i) test.distributed(unordered.batch(test.n));
  });
  EXPECT_LE(log.count(log::Level::WARNING, "unordered stages run in order"), 1);
}

TEST_ON_EACH_WORKER(DistributedDatasets, PutElementsOnTheirReplicasDevicesOrOnTheHost) {
  const auto& devices = *strategy.extended().layout().replica_devices();
  const auto of = [](const auto& distributed) {
    return *distributed.iterator().get_next().devices();
  };
  const auto host = testing::AllOf(
      testing::SizeIs(n_here), Each(Device("cpu:0").on_task(devices[0].job(), devices[0].task())));
  for (const InputWay& way : ways_for_any_workers()) {
    SCOPED_TRACE(way.name);
    EXPECT_EQ(of(way(strategy)), devices);
    EXPECT_THAT(of(way(strategy, {.fetch_to_device = false})), host);
    expect_as_on_one_process(
        [&](const Strategy& on) { return way(on, {.fetch_to_device = false}); });
  }
}

TEST(AnElement, OfATaskIsOnItsHost) {
  const InputReplicas of_task(std::vector<Device>{Device("cpu:1").on_task("worker", 3)});
  EXPECT_THAT(*distribute_dataset(range(4), of_task, {.fetch_to_device = false})
                   .iterator()
                   .get_next()
                   .devices(),
              ElementsAre(Device("cpu:0").on_task("worker", 3)));
}

TEST_ON_EACH_WORKER(DistributedDatasets, RefuseOptionsThatDoNotGoTogether) {
  const auto with = [&](const InputOptions& options) { distributed(range(4).batch(2), options); };
  EXPECT_FAILS(with({.replication_mode = InputReplicationMode::PER_REPLICA}), NotImplementedError,
               "distribute_datasets_from_function");
  EXPECT_FAILS(with({.place_dataset_on_device = true}), ValueError, "PER_REPLICA");
  EXPECT_FAILS(with({.per_replica_buffer_size = -1}), ValueError, "per_replica_buffer_size");
  EXPECT_EQ(steps_of(range(3 * n).batch(2 * n)), cut(3 * n, 2 * n)) << "afterwards";
}

}  // namespace
}  // namespace cohort
