#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "cohort/input/strategy_input.h"
#include "tests/distribute/layouts.h"
#include "tests/input/simulated_workers.h"

/// Tests of input that run on all layouts. What replicas must get is computed from rule 11.13, or
/// is what they get on one process with as many replicas.
namespace cohort {

/// Those of all tests, and workers of one replica.
inline std::vector<Layout> input_layouts() {
  std::vector<Layout> all = all_layouts();
  all.push_back({"TwoWorkersOfOne", 2, 2, 2});
  return all;
}
#define ON_ALL_INPUT_LAYOUTS(Suite) \
  SUITE_ON_EACH_WORKER(Suite, Layout, testing::ValuesIn(input_layouts()))

inline constexpr InputOptions kPerReplica{.replication_mode = InputReplicationMode::PER_REPLICA};

/// Sixteen files with a number on each line, which all tests read. Lines differ in number, and
/// every fourth file has none.
class FilesOfNumbers {
 public:
  static constexpr int kCount = 16;
  using Numbers = std::vector<int>;

  /// 100 * file + line.
  static Numbers lines_of(int file) {
    Numbers lines(file % 4 == 3 ? 0 : 2 + 3 * (file % 4));
    std::iota(lines.begin(), lines.end(), 100 * file);
    return lines;
  }
  /// Those of the files that come to one of `readers`.
  static Numbers lines_of_reader(int reader, int readers) {
    Numbers all;
    for (int f = reader; f < kCount; f += readers) {
      const Numbers lines = lines_of(f);
      all.insert(all.end(), lines.begin(), lines.end());
    }
    return all;
  }
  static data::Dataset<std::int64_t> numbers() {
    static const FilesOfNumbers files;
    return data::text_lines(data::list_files(files.folder_ + "/*.txt"))
        .map([](const std::string& line) { return std::int64_t{std::stoi(line)}; });
  }

 private:
  FilesOfNumbers() {
    std::filesystem::create_directories(folder_);
    for (int f = 0; f < kCount; ++f) {
      std::ofstream file(cat(folder_, '/', 10 + f, ".txt"));
      for (const int line : lines_of(f)) file << line << '\n';
    }
  }
  ~FilesOfNumbers() { std::filesystem::remove_all(folder_); }

  const std::string folder_ = cat(testing::TempDir(), "cohort_numbers_", getpid());
};

/// A way to give replicas data that does not depend on the number of workers.
struct InputWay {
  const char* name;
  std::function<DistributedDataset<at::Tensor>(const Strategy&, InputOptions)> distribute;

  DistributedDataset<at::Tensor> operator()(const Strategy& strategy,
                                            const InputOptions& options = {}) const {
    return distribute(strategy, options);
  }
};

inline std::vector<InputWay> ways_for_any_workers() {
  using data::range;
  const auto with = [](InputOptions options, data::AutoShardPolicy policy) {
    options.auto_shard = policy;
    return options;
  };
  return {
      {"rows under DATA",
       [](const Strategy& strategy, const InputOptions& options) {
         const int full = 2 * strategy.num_replicas_in_sync() + 1;
         return strategy.distribute_dataset(range(57).shuffle(57).batch(full).repeat(2), options);
       }},
      {"a stream under DATA",
       [](const Strategy& strategy, const InputOptions& options) {
         const auto numbers = range(40)
                                  .filter([](std::int64_t x) { return x % 7 != 0; })
                                  .map([](std::int64_t x) { return 2 * x; }, {.parallel = 2});
         const int full = strategy.num_replicas_in_sync() + 2;
         return strategy.distribute_dataset(numbers.shuffle(6).batch(full).prefetch(1), options);
       }},
      {"files under FILE_BY_REPLICA",
       [with](const Strategy& strategy, const InputOptions& options) {
         const int full = 2 * strategy.num_replicas_in_sync() + 1;
         return strategy.distribute_dataset(
             FilesOfNumbers::numbers().shuffle(5).batch(full).repeat(2),
             with(options, data::AutoShardPolicy::FILE_BY_REPLICA));
       }},
      {"functions with PER_REPLICA", [](const Strategy& strategy, InputOptions options) {
         options.replication_mode = InputReplicationMode::PER_REPLICA;
         return strategy.distribute_datasets_from_function(
             [](const InputContext& input) {
               return range(40)
                   .shard(input.num_input_pipelines, input.input_pipeline_id)
                   .shuffle(9)
                   .batch(2)
                   .take((input.input_pipeline_id + 2) % 4);  // the third one has none
             },
             options);
       }}};
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
    } catch (const Error& error) {
      const bool is_expected = error.kind() == "ValueError" || error.kind() == "Cancelled";
      EXPECT_TRUE(is_expected) << error.kind() << ": " << error.what();
      if (!is_expected) return steps;
      steps.push_back("error");
    }
  }
}

/// What one worker of a layout sees of input.
class InputOnLayouts : public OnLayouts {
 public:
  using OnLayouts::OnLayouts;
  using Numbers = std::vector<int>;

  /// Whatever input has gone through, runs go on.
  void after() { expect_usable(); }

  bool is_even() const { return n % workers == 0; }
  const World& world() const { return strategy.extended().world(); }
  std::string name_of_last_worker() const { return world().name(workers - 1); }
  /// Whether this is the last worker, which has the last replica.
  bool is_last_worker() const { return is_here(last); }

  static Numbers first_numbers(int count) {
    Numbers all(count);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  // What must come out.

  /// Replica i's piece of a batch, where a full one has so many rows.
  std::string piece(const Numbers& batch, int i, int full) const {
    const int from = i * (full / n) + std::min(i, full % n);
    const int to = from + full / n + (i < full % n ? 1 : 0);
    std::string text;
    for (int row = from; row < to && row < static_cast<int>(batch.size()); ++row) {
      text += cat(row > from ? " " : "", batch[row]);
    }
    return text;
  }
  /// The pieces of replicas [from, to).
  std::string pieces(const Numbers& batch, int from, int to, int full) const {
    std::string text;
    for (int i = from; i < to; ++i) text += (i > from ? "|" : "") + piece(batch, i, full);
    return text;
  }
  static std::vector<Numbers> batches_of(const Numbers& numbers, int full) {
    std::vector<Numbers> batches;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (i % full == 0) batches.emplace_back();
      batches.back().push_back(numbers[i]);
    }
    return batches;
  }
  /// What the replicas here get of the job's batches.
  Steps cut(const Numbers& numbers, int full) const {
    Steps steps;
    for (const Numbers& batch : batches_of(numbers, full)) {
      steps.push_back(pieces(batch, first_here, first_here + n_here, full));
    }
    return steps;
  }
  Steps cut(int rows, int full) const { return cut(first_numbers(rows), full); }
  /// What they get where each worker cuts its own batches, and takes as many pieces a step as it
  /// has replicas. A worker that has no more gets empty ones until all are done.
  Steps cut_by_each(const std::function<Numbers(int worker)>& numbers_of, int full) const {
    std::vector<Steps> all(workers);
    std::size_t most = 0;
    for (int w = 0; w < workers; ++w) {
      for (const Numbers& batch : batches_of(numbers_of(w), full)) {
        for (int from = 0; from < n; from += n_here) {
          const std::string step = pieces(batch, from, from + n_here, full);
          if (from > 0 && step == std::string(n_here - 1, '|')) break;
          all[w].push_back(step);
        }
      }
      most = std::max(most, all[w].size());
    }
    Steps& own = all[world().index()];
    own.resize(most, std::string(n_here - 1, '|'));
    return own;
  }
  /// The part that replicas here have of the steps of one process.
  Steps here(const Steps& of_all) const {
    Steps own;
    for (const std::string& step : of_all) {
      if (step == "error") {
        own.push_back(step);
        continue;
      }
      const auto begin = at_bar(step, first_here), end = at_bar(step, first_here + n_here);
      own.push_back(step.substr(begin, end - 1 - begin));
    }
    return own;
  }

  // What comes out.

  template <class T>
  Steps steps_of(const data::Dataset<T>& dataset, const InputOptions& options = {}) const {
    return cohort::steps_of(strategy.distribute_dataset(dataset, options));
  }
  template <class F>
  Steps steps_per_replica(const F& function) const {
    return cohort::steps_of(strategy.distribute_datasets_from_function(function, kPerReplica));
  }
  template <class F>
  Steps steps_per_worker(const F& function) const {
    return cohort::steps_of(strategy.distribute_datasets_from_function(function));
  }

  /// A process of its own with as many replicas.
  Strategy one_process() const {
    const std::vector<Device> devices{Device("cpu:0")};
    return MirroredStrategy({.devices = devices, .replicas = n});
  }
  /// `see(distribute(strategy))` is the same as on one process, as far as replicas are here.
  template <class Distribute, class See>
  void expect_as_on_one_process(const Distribute& distribute, const See& see) const {
    const Steps expected = see(distribute(one_process()));
    EXPECT_EQ(see(distribute(strategy)), here(expected));
  }
  template <class Distribute>
  void expect_as_on_one_process(const Distribute& distribute) const {
    expect_as_on_one_process(distribute, [](const auto& all) { return cohort::steps_of(all); });
  }

  /// Expects that what `make` does works on even workers only, and why.
  template <class Make>
  void expect_for_even_workers_only(const Make& make, const std::string& what) const {
    if (is_even()) return make();
    std::string counts;
    for (int w = 0; w < workers; ++w) {
      counts += cat(w ? ", " : "", world().first_of(w + 1) - world().first_of(w));
    }
    EXPECT_THAT(failure_of(make),
                testing::AllOf(testing::StartsWith("ValueError: "), testing::HasSubstr(what),
                               testing::HasSubstr(
                                   cat("needs every worker to have the same number of replicas: "
                                       "expected ",
                                       (n + workers - 1) / workers, " on each of ", workers,
                                       " workers, got ", counts))));
  }

 private:
  /// Where part i of a step begins, which is one behind the bar before it.
  static std::size_t at_bar(const std::string& step, int i) {
    std::size_t at = 0;
    for (; i > 0; --i) {
      const std::size_t bar = step.find('|', at);
      if (bar == step.npos) return step.size() + 1;
      at = bar + 1;
    }
    return at;
  }
};

}  // namespace cohort
