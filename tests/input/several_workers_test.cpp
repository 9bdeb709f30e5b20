// Input of whole jobs: uneven workers, positions on other numbers of workers, training.

#include <atomic>
#include <filesystem>
#include <thread>

#include "cohort/cohort.h"
#include "cohort/io/tfrecord.h"
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

/// What fn(strategy) returns on each worker of a job.
template <class F>
auto of_each_strategy(const Job& job, const F& fn) {
  configure({.cpu_devices = 2});
  torch::manual_seed(3);
  return of_each_worker(job.workers, [&](const Worker& worker) {
    return fn(MultiWorkerMirroredStrategy(
        {.worker = worker, .replicas = job.replicas, .timeout = std::chrono::seconds(60)}));
  });
}

/// Eight files of three records each: 0 to 2, 3 to 5, …
class FilesOfAJob : public testing::Test {
 protected:
  FilesOfAJob() {
    std::filesystem::create_directories(folder_);
    for (int f = 0; f < 8; ++f) {
      io::TFRecordWriter writer(cat(folder_, '/', f, ".tfrecord"));
      for (int i = 0; i < 3; ++i) writer.write(std::to_string(3 * f + i));
      writer.close();
    }
  }
  ~FilesOfAJob() override { std::filesystem::remove_all(folder_); }

  data::Dataset<data::Strings> batches(int size) const {
    return data::tf_records(data::list_files(folder_ + "/*.tfrecord")).batch(size);
  }

  const std::string folder_ = cat(testing::TempDir(), "cohort_job_input_", getpid());
};

// Uneven workers.

TEST(UnevenWorkers, TakeTheirReplicasPiecesUnderData) {
  EXPECT_THAT(steps_of_job(range(15).batch(10), {5, 3}),
              ElementsAre(ElementsAre("0 1|2 3", "10 11|12 13"), ElementsAre("4 5|6 7", "14|"),
                          ElementsAre("8 9", "")));
}

TEST_F(FilesOfAJob, AreForReplicasOnUnevenWorkersToo) {
  const auto options = policy(AutoShardPolicy::FILE_BY_REPLICA);
  const auto expected = by_replica(batches(8), {8, 1}, options);
  EXPECT_THAT(expected[7], ElementsAre("21 ", "22 ", "23 "));
  for (const int workers : {2, 3, 5}) {
    EXPECT_EQ(by_replica(batches(8), {8, workers}, options), expected) << workers;
  }
}

TEST(AFunctionPerReplica, IsCalledForTheGlobalIdsOnUnevenWorkersToo) {
  const auto shard = [](const InputContext& input) {
    EXPECT_EQ(input.num_input_pipelines, 5);
    return range(11).shard(input.num_input_pipelines, input.input_pipeline_id).batch(1);
  };
  const auto of_job = [&](int workers) {
    return by_replica(of_each_strategy({5, workers}, [&](const Strategy& strategy) {
      return steps_of(strategy.distribute_datasets_from_function(shard, kPerReplica));
    }));
  };
  EXPECT_THAT(of_job(1), ElementsAre(ElementsAre("0", "5", "10"), ElementsAre("1", "6", ""),
                                     ElementsAre("2", "7", ""), ElementsAre("3", "8", ""),
                                     ElementsAre("4", "9", "")));
  EXPECT_EQ(of_job(3), of_job(1));
}

/// What distribute_dataset throws on each of three workers with eight replicas.
template <class T>
std::vector<std::string> refusals(const data::Dataset<T>& dataset, const InputOptions& options) {
  return of_each_worker(3, [&](const Worker& worker) {
    return failure_of([&] { distribute_dataset(dataset, replicas_of_job(8, worker), options); });
  });
}

TEST(UnevenWorkers, AreRefusedWhereDataDependsOnThem) {
  const auto refused = [](const char* what) {
    return Each(AllOf(
        StartsWith(cat("ValueError: [distribute_dataset] the policy ", what,
                       " needs every worker to have the same number of replicas: expected 3 on "
                       "each of 3 workers, got 3, 3, 2")),
        HasSubstr("the policy DATA or FILE_BY_REPLICA, or a function with PER_REPLICA")));
  };
  EXPECT_THAT(refusals(range(8).batch(8), policy(AutoShardPolicy::OFF)),
              refused("OFF (as asked for)"));
  EXPECT_THAT(refusals(range(8).batch(8), policy(AutoShardPolicy::HINT)),
              refused("HINT (as asked for)"));
  const auto per_worker = of_each_strategy({5, 3}, [](const Strategy& strategy) {
    return failure_of([&] {
      strategy.distribute_datasets_from_function([](const InputContext&) { return range(3); });
    });
  });
  EXPECT_THAT(per_worker, Each(AllOf(StartsWith("ValueError"), HasSubstr("with PER_WORKER"),
                                     HasSubstr("every worker to have the same number"))));
}

TEST_F(FilesOfAJob, AreNotDealtToUnevenWorkers) {
  const auto refused = AllOf(StartsWith("ValueError"), HasSubstr("FILE"),
                             HasSubstr("every worker to have the same number of replicas"));
  EXPECT_THAT(refusals(batches(8), {}), Each(AllOf(refused, HasSubstr("AUTO: every source"))));
  EXPECT_THAT(refusals(batches(8), policy(AutoShardPolicy::FILE)), Each(refused));
}

TEST_F(FilesOfAJob, AreExplainedForUnevenWorkers) {
  const auto explained = [](const auto& dataset, const InputOptions& options) {
    return of_each_worker(3, [&](const Worker& worker) {
      return distribute_dataset(dataset, replicas_of_job(8, worker), options).explain();
    });
  };
  const auto in_memory = explained(range(16).batch(10), {});
  EXPECT_THAT(in_memory[1], HasSubstr("input for 8 replicas on 3 workers, this is worker 1 "
                                      "(replicas 3 to 5)\n"));
  EXPECT_THAT(in_memory[2], HasSubstr("this is worker 2 (replicas 6 and 7)\n"));
  EXPECT_THAT(in_memory, Each(AllOf(HasSubstr("reads the rows of its own replicas only"),
                                    HasSubstr("a batch of 10 is cut into 2, 2, 1, 1, 1, 1, 1, 1 "
                                              "for replicas 0 to 7"),
                                    HasSubstr("does not depend on the number of workers"))));
  EXPECT_THAT(explained(batches(8), policy(AutoShardPolicy::FILE_BY_REPLICA)),
              Each(AllOf(HasSubstr(cat("replica 7 reads ", folder_, "/7.tfrecord\n")),
                         HasSubstr("does not depend on the number of workers"))));
}

// What is known before the first step.

TEST(SeveralWorkers, KnowTheStepsOnlyWhereAllMakeTheSame) {
  const auto known = [](AutoShardPolicy chosen) {
    return of_each_worker(2, [&](const Worker& worker) {
      const auto distributed = distribute_dataset(range(9).batch(4, {.drop_remainder = true}),
                                                  replicas_of(1, worker), policy(chosen));
      return cat(distributed.cardinality(), ' ', distributed.element_spec());
    });
  };
  EXPECT_THAT(known(AutoShardPolicy::DATA), Each("2 int64[2]"));
  EXPECT_THAT(known(AutoShardPolicy::OFF), Each(cat(data::kUnknownCardinality, " int64[?]")));
}

// Positions.

/// How a strategy's replicas get their data.
template <class F>
class InputOfJobs {
 public:
  explicit InputOfJobs(F make) : make_(std::move(make)) {}

  /// The position behind so many steps, which must be the same on all workers.
  std::string saved_by(const Job& job, int steps) const {
    const auto positions = of_each_strategy(job, [&](const Strategy& strategy) {
      auto iterator = make_(strategy).iterator();
      for (int i = 0; i < steps; ++i) iterator.get_next();
      return iterator.position().bytes();
    });
    EXPECT_THAT(positions, Each(positions[0]));
    return positions[0];
  }

  std::string saved_by_one_process(int replicas, int steps) const {
    torch::manual_seed(3);
    auto iterator = make_(mirrored(1, replicas)).iterator();
    for (int i = 0; i < steps; ++i) iterator.get_next();
    return iterator.position().bytes();
  }

  /// What each worker gets behind a position, or why it gets nothing.
  std::vector<Steps> behind(const std::string& position, const Job& job) const {
    return of_each_strategy(
        job, [&](const Strategy& strategy) { return steps_behind(position, strategy); });
  }
  Steps behind_on_one_process(const std::string& position, int replicas) const {
    torch::manual_seed(3);
    return steps_behind(position, mirrored(1, replicas));
  }

  /// A job goes on where any other has stopped, its own kind and a process without one included.
  void expect_any_workers_go_on(int replicas, std::initializer_list<int> workers) const {
    for (const int steps : {0, 2}) {
      const std::string position = saved_by_one_process(replicas, steps);
      const auto expected = by_replica({behind_on_one_process(position, replicas)});
      EXPECT_GE(expected[0].size(), 2U);
      for (const int each : workers) {
        EXPECT_EQ(saved_by({replicas, each}, steps), position) << each << ", " << steps;
        EXPECT_EQ(by_replica(behind(position, {replicas, each})), expected)
            << each << ", " << steps;
      }
    }
  }

 private:
  Steps steps_behind(const std::string& position, const Strategy& strategy) const {
    Steps steps;
    const std::string failure = failure_of([&] {
      auto iterator = make_(strategy).iterator();
      iterator.restore(data::Position::from_bytes(position));
      while (const auto step = iterator.get_next_as_optional()) steps.push_back(step_text(*step));
    });
    return failure == "nothing" ? steps : Steps{failure};
  }

  F make_;
};

#if defined(__SANITIZE_THREAD__)
constexpr std::initializer_list<int> kWorkers{2, 3};
#else
constexpr std::initializer_list<int> kWorkers{1, 2, 3, 4};
#endif

TEST(APositionUnderData, HoldsForAnyNumberOfWorkers) {
  InputOfJobs([](const Strategy& strategy) {
    return strategy.distribute_dataset(range(60).shuffle(60).batch(12));
  }).expect_any_workers_go_on(5, kWorkers);
}

TEST_F(FilesOfAJob, HavePositionsByReplicaThatHoldForAnyNumberOfWorkers) {
  InputOfJobs([this](const Strategy& strategy) {
    return strategy.distribute_dataset(batches(5).repeat(2),
                                       policy(AutoShardPolicy::FILE_BY_REPLICA));
  }).expect_any_workers_go_on(5, kWorkers);
}

TEST(APositionOfFunctionsPerReplica, HoldsForAnyNumberOfWorkers) {
  InputOfJobs([](const Strategy& strategy) {
    return strategy.distribute_datasets_from_function(
        [](const InputContext& input) {
          return range(60)
              .shard(input.num_input_pipelines, input.input_pipeline_id)
              .shuffle(9)
              .batch(3);
        },
        kPerReplica);
  }).expect_any_workers_go_on(5, kWorkers);
}

/// The input goes on with as many workers, and is refused with others.
template <class F>
void expect_same_workers_go_on(const F& make) {
  const InputOfJobs input(make);
  const std::string of_one = input.saved_by({4, 1}, 1), of_two = input.saved_by({4, 2}, 1);
  const auto whole = input.behind(input.saved_by({4, 2}, 0), {4, 2});
  const auto rest = input.behind(of_two, {4, 2});
  for (int w = 0; w < 2; ++w) {
    EXPECT_EQ(rest[w], Steps(whole[w].begin() + 1, whole[w].end())) << w;
  }
  const auto refused = [](const char* expected, const char* got) {
    return Each(ElementsAre(AllOf(StartsWith("InvalidArgument: [iterator.restore]"),
                                  HasSubstr(cat("expected one ", expected)),
                                  HasSubstr(cat("got one ", got)),
                                  HasSubstr("the number of workers that it was saved with"))));
  };
  const char *const two = "of 2 workers that read data of their own", *const one = "of one worker";
  EXPECT_THAT(input.behind(of_two, {4, 1}), refused(one, two));
  EXPECT_THAT(input.behind(of_one, {4, 2}), refused(two, one));
  EXPECT_THAT(input.behind(of_two, {4, 4}), refused("of 4 workers", two));
}

TEST_F(FilesOfAJob, OfWorkersHavePositionsForTheirNumberOnly) {
  expect_same_workers_go_on([this](const Strategy& strategy) {
    return strategy.distribute_dataset(batches(6), policy(AutoShardPolicy::FILE));
  });
}

TEST(APositionUnderOff, HoldsForItsNumberOfWorkersOnly) {
  expect_same_workers_go_on([](const Strategy& strategy) {
    return strategy.distribute_dataset(range(16).batch(8), policy(AutoShardPolicy::OFF));
  });
}

TEST(APositionOfFunctionsPerWorker, HoldsForItsNumberOfWorkersOnly) {
  expect_same_workers_go_on([](const Strategy& strategy) {
    return strategy.distribute_datasets_from_function(
        [](const InputContext& input) { return range(9 + input.input_pipeline_id).batch(1); });
  });
}

// Beside runs.

TEST(SeveralWorkers, ReadTwoDatasetsAtTheSameTime) {
  const auto sums = of_each_strategy({5, 3}, [](const Strategy& strategy) {
    const auto first = strategy.distribute_dataset(range(100).batch(5));
    const auto second = strategy.distribute_dataset(range(50).batch(5));
    Steps of_second;
    std::thread other([&] { of_second = steps_of(second); });
    const Steps of_first = steps_of(first);
    other.join();
    return std::pair(of_first.size(), of_second.size());
  });
  EXPECT_THAT(sums, Each(std::pair<std::size_t, std::size_t>(20, 10)));
}

TEST(SeveralWorkers, ReadOnAThreadOfTheirOwnWhileReplicasRun) {
  const auto steps = of_each_strategy({4, 2}, [](const Strategy& strategy) {
    const auto distributed = strategy.distribute_dataset(range(400).batch(4));
    std::atomic<bool> done{false};
    Steps steps;
    std::thread reader([&] {
      steps = steps_of(distributed);
      done = true;
    });
    for (int run = 0; run < 50; ++run) {
      strategy.run([] { get_replica_context().all_reduce("SUM", at::ones({1})); });
    }
    reader.join();
    EXPECT_TRUE(done);
    return steps.size();
  });
  EXPECT_THAT(steps, Each(100U));
}

// Training.

struct DigitsImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return last(torch::relu(first(x))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 16));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(16, 4));
};

/// Rows with labels, the last batch a short one.
data::Dataset<std::pair<at::Tensor, at::Tensor>> digits() {
  const at::Tensor rows = at::arange(58 * 6).remainder(17).reshape({58, 6}).to(at::kFloat) / 17;
  return data::from_tensor_slices(std::pair(rows, at::arange(58).remainder(4)))
      .shuffle(58)
      .map([](const at::Tensor& x, const at::Tensor& y, at::Generator generator) {
        return std::pair(x + 0.1 * at::rand({6}, generator), y);
      })
      .batch(16)
      .repeat(2);
}

std::string trained_on_digits(const Strategy& strategy) {
  using torch::nn::functional::cross_entropy;
  const auto options = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone);
  const auto scope = strategy.scope();
  Model<DigitsImpl> model;
  Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(0.1).momentum(0.9));
  for (const auto& [x, y] : strategy.distribute_dataset(digits())) {
    strategy.run(
        [&](const at::Tensor& rows, const at::Tensor& labels) {
          optimizer.zero_grad();
          average_loss(cross_entropy(model(rows), labels, options), 16).backward();
          optimizer.step();
        },
        x, y);
  }
  return fingerprint(model);
}

struct Jobs : InputOnLayouts {
  using InputOnLayouts::InputOnLayouts;
};
ON_ALL_INPUT_LAYOUTS(Jobs);

TEST_P(JobsOnEachWorker, TrainToTheBitsOfOneProcess) {
  torch::manual_seed(3);
  const std::string expected = trained_on_digits(mirrored(1, GetParam().replicas));
  torch::manual_seed(3);
  on_each_worker<Jobs>(
      GetParam(), [&](const Jobs& job) { EXPECT_EQ(trained_on_digits(job.strategy), expected); });
}

// Ends.

TEST_ON_EACH_WORKER(Jobs, EndWhenTheLastWorkersDataDoes) {
  for (const bool last_is_longest : {true, false}) {
    const auto lengths = [&](const InputContext& input) {
      const int id = input.input_pipeline_id;
      return range(2 * (last_is_longest ? id : last - id)).batch(1);  // one has none at all
    };
    Steps expected(2 * last);
    for (int step = 0; step < 2 * last; ++step) {
      for (const int i : ids_here()) {
        const bool has_data = step < 2 * (last_is_longest ? i : last - i);
        expected[step] += (i > first_here ? "|" : "") + (has_data ? cat(step) : std::string());
      }
    }
    const auto distributed = strategy.distribute_datasets_from_function(lengths, kPerReplica);
    EXPECT_EQ(cohort::steps_of(distributed), expected) << "in a loop";

    auto iterator = distributed.iterator();
    for (const std::string& step : expected) EXPECT_EQ(step_text(iterator.get_next()), step);
    for (int i = 0; i < 2; ++i) EXPECT_FAILS(iterator.get_next(), OutOfRange, "end of the dataset");
    EXPECT_FALSE(iterator.get_next_as_optional());
  }
}

TEST_ON_EACH_WORKER(Jobs, EndWhenTheLastFileDoes) {
  if (!is_even()) return;
  int rows = 0, steps = 0;
  for (const auto& batch : strategy.distribute_dataset(FilesOfNumbers::numbers().batch(n))) {
    ++steps;
    const auto own = strategy.run([](const at::Tensor& x) { return x.size(0); }, batch);
    rows += strategy.reduce("SUM", own).item<int>();
  }
  const int all = static_cast<int>(FilesOfNumbers::lines_of_reader(0, 1).size());
  EXPECT_EQ(rows, all) << "in " << steps << " steps";
}

TEST_ON_EACH_WORKER(Jobs, GoOnWithoutAnEndWhereOneWorkerHasNone) {
  const auto function = [&](const InputContext& input) {
    const auto few = range(2).batch(1);
    return input.input_pipeline_id == last ? few.repeat() : few;
  };
  auto iterator = strategy.distribute_datasets_from_function(function, kPerReplica).iterator();
  for (int step = 0; step < 20; ++step) {
    const auto values = iterator.get_next();
    for (int i = 0; i < n_here; ++i) {
      const bool has_data = step < 2 || first_here + i == last;
      EXPECT_EQ(numbers_of(values.values()[i]), has_data ? cat(step % 2) : "");
    }
  }
}

/// What elements look like, in dtypes and shapes.
template <class T>
Steps looks_of(const DistributedDataset<T>& distributed) {
  Steps looks;
  for (const auto& step : distributed) {
    std::string text;
    for (std::size_t r = 0; r < step.size(); ++r) {
      const T own = step.values()[r];
      text += cat(r ? "|" : "", data::spec_of(own));
      nest::visit(
          [&]<class Leaf>(const Leaf& leaf) {
            if constexpr (std::is_same_v<Leaf, at::Tensor>) {
              text += cat(' ', leaf.layout(), leaf.is_sparse() ? cat(leaf.sparse_dim()) : "");
            }
          },
          own);
    }
    looks.push_back(text);
  }
  return looks;
}

/// Expects that what replicas without data get looks as on one process, also on a worker that has
/// never had any: only the last replica has data.
template <class Make>
void expect_empty_as_on_one_process(const InputOnLayouts& test, const Make& make) {
  test.expect_as_on_one_process(
      [&](const Strategy& on) {
        return on.distribute_datasets_from_function(
            [&](const InputContext& input) {
              return make().take(input.input_pipeline_id == test.last ? 2 : 0);
            },
            kPerReplica);
      },
      [](const auto& distributed) { return looks_of(distributed); });
}

TEST_ON_EACH_WORKER(Jobs, GiveWorkersThatNeverHadDataWhatLooksLikeData) {
  const auto halves = data::from_tensors(torch::ones({4, 3, 2}, at::kHalf));
  expect_empty_as_on_one_process(*this, [&] { return halves.repeat(3); });
  const auto bools = data::from_tensors(torch::ones({4}, at::kBool));
  expect_empty_as_on_one_process(*this, [&] { return data::zip(halves, bools).repeat(3); });
  const auto words = data::from_tensor_slices(Steps{"a", "b", "c"});
  expect_empty_as_on_one_process(*this, [&] { return words.batch(1); });
  expect_empty_as_on_one_process(*this, [&] { return words; });
  expect_empty_as_on_one_process(*this, [] { return range(3); });
  expect_empty_as_on_one_process(
      *this, [] { return range(3).map([](std::int64_t x) { return torch::tensor(1.5 * x); }); });
}

TEST_ON_EACH_WORKER(Jobs, GiveWorkersThatNeverHadDataStringsOfTheRightShape) {
  const auto square = data::from_tensor_slices(Steps{"a", "b", "c", "d"}).batch(2).batch(1);
  expect_empty_as_on_one_process(*this, [&] { return square.repeat(3); });
}

TEST_ON_EACH_WORKER(Jobs, GiveWorkersThatNeverHadDataSparseTensors) {
  const auto sparse =
      data::from_tensors(torch::eye(3)).map([](const at::Tensor& x) { return x.to_sparse(); });
  expect_empty_as_on_one_process(*this, [&] { return sparse.repeat(3); });
}

}  // namespace
}  // namespace cohort
