// Input on one worker, and the parts that several have: rules 10 and 11.

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cohort/data/auto_shard.h"
#include "cohort/data/readers.h"
#include "cohort/input/strategy_input.h"
#include "cohort/io/tfrecord.h"
#include "cohort/strategies/multi_worker_mirrored_strategy.h"
#include "tests/oracle/oracle.h"
#include "tests/oracle/strategies.h"

namespace cohort::oracle::input_local_cases {
namespace {

ORACLE_THEME("input_local");

using data::AutoShardPolicy;
using data::range;

/// Rows as lists of numbers or strings.
Json rows_json(const Tensor& tensor) { return encode_tensor(tensor)["value"]; }
Json rows_json(const data::Strings& strings) {
  Json list = Json::array();
  for (const std::string_view each : strings) list.push_back(std::string(each));
  return list;
}
Json rows_json(std::int64_t number) { return number; }

/// A leaf of a step: what each replica gets, or that alone where there is one.
template <class T, class Get>
Json leaf_json(const PerReplica<T>& step, Get&& get) {
  if (step.size() == 1) return rows_json(get(step.values()[0]));
  Json list = Json::array();
  for (const T& value : step.values()) list.push_back(rows_json(get(value)));
  return list;
}
template <class T>
Json step_json(const PerReplica<T>& step) {
  return leaf_json(step, [](const T& value) -> const T& { return value; });
}
template <class A, class B>
Json step_json(const PerReplica<std::pair<A, B>>& step) {
  return Json::array({leaf_json(step, [](const auto& pair) { return pair.first; }),
                      leaf_json(step, [](const auto& pair) { return pair.second; })});
}
template <class T>
Json step_json(const PerReplica<std::map<std::string, T>>& step) {
  Json object = Json::object();
  for (const auto& [key, value] : step.values()[0]) {
    object[key] = leaf_json(step, [&key = key](const auto& map) { return map.at(key); });
  }
  return object;
}

template <class T>
Json steps_json(const DistributedDataset<T>& dataset, int most = 50) {
  Json list = Json::array();
  auto iterator = dataset.iterator();
  for (int i = 0; i < most; ++i) {
    const auto step = iterator.get_next_as_optional();
    if (!step) break;
    list.push_back(step_json(*step));
  }
  return list;
}

template <class T>
Json steps(const std::string& strategy, const data::Dataset<T>& dataset,
           AutoShardPolicy policy = AutoShardPolicy::AUTO, int most = 50) {
  return steps_json(strategy_named(strategy).distribute_dataset(dataset, {.auto_shard = policy}),
                    most);
}

AutoShardPolicy policy_named(const std::string& name) {
  if (name == "OFF") return AutoShardPolicy::OFF;
  if (name == "FILE") return AutoShardPolicy::FILE;
  if (name == "DATA") return AutoShardPolicy::DATA;
  return name == "HINT" ? AutoShardPolicy::HINT : AutoShardPolicy::AUTO;
}

Json range_case(const Json& input) {
  return steps(input[0],
               range(input[1].get<int>())
                   .batch(input[2].get<int>(), {.drop_remainder = input[3].get<bool>()}),
               policy_named(input[4]));
}

TABLE("range/") { return range_case(input); }

constexpr const char* kEvenCut = "11.15: cut where a full batch is, in memory too";

DIFFERS("range/m2_14_b8", kEvenCut, Json::parse("[[[0,1,2,3],[4,5,6,7]],[[8,9,10,11],[12,13]]]")) {
  return range_case(input);
}
DIFFERS("range/m2_13_b8", kEvenCut, Json::parse("[[[0,1,2,3],[4,5,6,7]],[[8,9,10,11],[12]]]")) {
  return range_case(input);
}
DIFFERS("range/m2_14_b8_DATA", kEvenCut,
        Json::parse("[[[0,1,2,3],[4,5,6,7]],[[8,9,10,11],[12,13]]]")) {
  return range_case(input);
}
DIFFERS("range/m3_8_b4", "11.13: 2, 1, 1", Json::parse("[[[0,1],[2],[3]],[[4,5],[6],[7]]]")) {
  return range_case(input);
}

// Pipelines.

CASE("pipeline/prefetch_after_batch_OFF") {
  return steps("m2", range(14).batch(8).prefetch(2), AutoShardPolicy::OFF);
}

CASE("pipeline/take_after_batch_OFF") {
  return steps("m2", range(30).batch(8).take(2), AutoShardPolicy::OFF);
}

constexpr const char* kNoSpan = "11.13: a cut never spans two batches";
const Json kTwice = Json::parse("[[[0,1],[2,3]],[[4,5],[]],[[0,1],[2,3]],[[4,5],[]]]");

DIFFERS("pipeline/repeat_after_batch_OFF", kNoSpan, kTwice) {
  return steps("m2", range(6).batch(4).repeat(2), AutoShardPolicy::OFF);
}

DIFFERS("pipeline/repeat_after_batch_AUTO", kEvenCut, kTwice) {
  return steps("m2", range(6).batch(4).repeat(2));
}

DIFFERS("pipeline/concatenate_equal_batch_OFF", kNoSpan,
        Json::parse("[[[0,1],[2,3]],[[4],[]],[[10,11],[12,13]],[[14],[]]]")) {
  return steps("m2", range(5).batch(4).concatenate(range(10, 15).batch(4)), AutoShardPolicy::OFF);
}

CASE("pipeline/concatenate_different_batch_OFF") {
  return steps("m2", range(5).batch(4).concatenate(range(10, 15).batch(2)), AutoShardPolicy::OFF);
}

CASE("pipeline/zip_different_batch") {
  return steps("m2", data::zip(range(8).batch(4), range(10, 14).batch(2)));
}

CASE("pipeline/zip_different_batch_OFF") {
  return steps("m2", data::zip(range(8).batch(4), range(10, 14).batch(2)), AutoShardPolicy::OFF);
}

CASE("pipeline/dict_elements") {
  return steps("m2", range(5)
                         .map([](std::int64_t i) {
                           return std::map<std::string, Tensor>{
                               {"x", scalar(static_cast<double>(i), at::kLong)},
                               {"y", vector({static_cast<double>(i), i + 1.}, at::kLong)}};
                         })
                         .batch(4));
}

CASE("pipeline/unbatched_scalars_OFF") { return steps("m2", range(4), AutoShardPolicy::OFF); }
CASE("pipeline/unbatched_scalars_mirrored_1") { return steps("m1", range(3)); }

CASE("pipeline/from_tensors") {
  return steps("m2", data::from_tensors(vector({1, 2, 3, 4, 5}, at::kInt)));
}

DIFFERS("pipeline/generator", kEvenCut, Json::parse("[[[0,1],[2,3]],[[4,5],[]]]")) {
  const auto numbers = data::from_generator([] {
    return [i = std::int64_t{0}]() mutable { return i < 6 ? std::optional(i++) : std::nullopt; };
  });
  return steps("m2", numbers.batch(4));
}

DIFFERS("pipeline/sparse", "11.30: an empty piece of a sparse batch works",
        Json::parse("[[[2,5],[2,5]],[[1,5],[0,5]]]")) {
  const auto rows = data::from_tensor_slices(at::eye(5)).batch(4).map([](const Tensor& batch) {
    return batch.to_sparse();
  });
  Json shapes = Json::array();
  for (const auto& step : two().distribute_dataset(rows)) {
    Json each = Json::array();
    for (const Tensor& value : step.values()) each.push_back(value.sizes().vec());
    shapes.push_back(each);
  }
  return shapes;
}

DIFFERS("pipeline/shuffle_same_multiset", kEvenCut,
        Json::parse("[[0,1,2,3,4,5,6,7,8,9],[[2,2],[2,2],[2,0]]]")) {
  const Json all = steps("m2", range(10).shuffle(10, {.seed = 1}).batch(4));
  std::vector<int> numbers;
  Json lengths = Json::array();
  for (const Json& step : all) {
    lengths.push_back(Json::array());
    for (const Json& replica : step) {
      lengths.back().push_back(replica.size());
      for (const Json& number : replica) numbers.push_back(number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return Json::array({numbers, lengths});
}

CASE("pipeline/infinite_first_steps") {
  return steps("m2", range(5).repeat().batch(4), AutoShardPolicy::AUTO, 3);
}

/// A folder of files, deleted in the end.
class Folder {
 public:
  Folder() { std::filesystem::create_directories(path_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string add(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
    return path_ + "/" + name;
  }
  /// 0.txt with the lines 00, 01, …; 1.txt with 10, 11, …
  std::vector<std::string> lines(int files, int per_file) const {
    std::vector<std::string> paths;
    for (int i = 0; i < files; ++i) {
      std::string text;
      for (int j = 0; j < per_file; ++j) text += cat(i, j, '\n');
      paths.push_back(add(cat(i, ".txt"), text));
    }
    return paths;
  }
  const std::string& path() const { return path_; }

 private:
  static std::string next() {
    static std::atomic<int> number{0};
    return cat(std::filesystem::temp_directory_path().string(), "/cohort_oracle_", getpid(), '_',
               number++);
  }
  const std::string path_ = next();
};

std::string numbers_to(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += cat(i ? "\n" : "", i);
  return text;
}
const auto to_number = [](const std::string& line) { return std::stoll(line); };
const auto read_lines = [](const std::string& path) { return data::text_lines(path); };

CASE("pipeline/file_textlines") {
  const Folder folder;
  return steps("m2", data::text_lines(folder.add("a.txt", "a\nb\nc\nd\ne\nf")).batch(4));
}

CASE("pipeline/file_textlines_tail_6_of_8") {
  const Folder folder;
  const auto lines = data::text_lines(folder.add("a.txt", numbers_to(14)));
  return steps("m2", lines.map(to_number).batch(8));
}

CASE("pipeline/file_list_files_tail_6_of_8") {
  const Folder folder;
  folder.add("a.txt", numbers_to(14));
  const auto lines = data::list_files(folder.path() + "/*.txt").interleave(read_lines);
  return steps("m2", lines.map(to_number).batch(8));
}

// Iterators.

CASE("iter/reiterate") {
  const auto distributed = two().distribute_dataset(range(4).batch(2));
  return Json::array({steps_json(distributed), steps_json(distributed)});
}

CASE("iter/get_next_out_of_range") {
  auto iterator = two().distribute_dataset(range(2).batch(2)).iterator();
  iterator.get_next();
  return step_json(iterator.get_next());
}

CASE("iter/get_next_as_optional") {
  auto iterator = two().distribute_dataset(range(5).batch(4)).iterator();
  Json list = Json::array();
  for (int i = 0; i < 3; ++i) {
    const auto step = iterator.get_next_as_optional();
    list.push_back(Json::array({step.has_value(), step ? step_json(*step) : Json()}));
  }
  return list;
}

NOT_EXPRESSIBLE("iter/optional_get_value_on_empty", "a std::optional, as everywhere in C++");

CASE("iter/next_in_replica_fn") {
  const Strategy s = two();
  auto iterator = s.distribute_dataset(range(4).batch(2)).iterator();
  s.run([&] { iterator.get_next(); });
  return nullptr;
}

NOT_EXPRESSIBLE("iter/get_next_in_tf_function", "no traced functions");
NOT_EXPRESSIBLE("iter/for_in_tf_function", "no traced functions");
NOT_EXPRESSIBLE("iter/element_kinds", "0.2: kinds are static");

CASE("iter/element_devices") {
  auto iterator = two().distribute_dataset(range(4).batch(2)).iterator();
  return encode(*iterator.get_next().devices());
}

NOT_EXPRESSIBLE("iter/len", "there is no len(); cardinality() counts steps");
NOT_EXPRESSIBLE("iter/transform_after", "the members of a class are known to the compiler");

// From a function.

Json from_function(const Json& input) {
  return steps_json(
      strategy_named(input[0]).distribute_datasets_from_function([&](const InputContext&) {
        return range(input[1].get<int>())
            .batch(input[2].get<int>(), {.drop_remainder = input[3].get<bool>()});
      }));
}

TABLE("from_function/") { return from_function(input); }

constexpr const char* kNeverDropped = "11.31: an incomplete step is never dropped";

DIFFERS("from_function/m2_6_b2_drop", kNeverDropped, Json::parse("[[[0,1],[2,3]],[[4,5],[]]]")) {
  return from_function(input);
}
DIFFERS("from_function/cs_9_b2", kNeverDropped,
        Json::parse("[[[0,1],[2,3]],[[4,5],[6,7]],[[8],[]]]")) {
  return from_function(input);
}

CASE("from_function/context") {
  Json seen = Json::array();
  three().distribute_datasets_from_function([&](const InputContext& c) {
    seen.push_back({c.num_input_pipelines, c.input_pipeline_id, c.num_replicas_in_sync,
                    attempt([&] { return c.per_replica_batch_size(6); }),
                    attempt([&] { return c.per_replica_batch_size(7); })});
    return range(2).batch(1);
  });
  return seen;
}

DIFFERS("from_function/unbatched_scalars", kNeverDropped, Json::parse("[[1,2],[3,4],[5,0]]")) {
  return steps_json(
      two().distribute_datasets_from_function([](const InputContext&) { return range(1, 6); }));
}

NOT_EXPRESSIBLE("from_function/returns_non_dataset", "a function that returns no dataset");

CASE("from_function/per_replica_mode") {
  Json seen = Json::array();
  const auto distributed = two().distribute_datasets_from_function(
      [&](const InputContext& c) {
        seen.push_back({c.num_input_pipelines, c.input_pipeline_id, c.num_replicas_in_sync});
        return range(c.input_pipeline_id * 10, c.input_pipeline_id * 10 + 3).batch(2);
      },
      {.fetch_to_device = false,
       .replication_mode = InputReplicationMode::PER_REPLICA,
       .place_dataset_on_device = true});
  return Json::array({seen, steps_json(distributed)});
}

// Options and contexts.

const InputOptions kPerReplica{.replication_mode = InputReplicationMode::PER_REPLICA};
const auto four = [](const InputContext&) { return range(4).batch(2); };

CASE("options/per_replica_distribute_dataset") {
  two().distribute_dataset(range(4).batch(2), kPerReplica);
  return nullptr;
}

CASE("options/place_without_per_replica") {
  two().distribute_datasets_from_function(four, {.place_dataset_on_device = true});
  return nullptr;
}

CASE("options/per_replica_one_device") {
  one_device().distribute_datasets_from_function(four, kPerReplica);
  return nullptr;
}

DIFFERS("options/per_replica_cs", "11.4: only mirrored strategies",
        fails("NotImplementedError", "PER_REPLICA")) {
  central().distribute_datasets_from_function(four, kPerReplica);
  return nullptr;
}

DIFFERS("options/defaults", "11.3: a buffer of 2", Json::array({true, "PER_WORKER", false, 2})) {
  const InputOptions o;
  const bool per_worker = o.replication_mode == InputReplicationMode::PER_WORKER;
  return Json::array({o.fetch_to_device, per_worker ? "PER_WORKER" : "PER_REPLICA",
                      o.place_dataset_on_device, o.per_replica_buffer_size});
}

NOT_EXPRESSIBLE("not_a_dataset", "a list is no dataset");

CASE("input_context/defaults") {
  const InputContext c;
  return Json::array({c.num_input_pipelines, c.input_pipeline_id, c.num_replicas_in_sync,
                      c.per_replica_batch_size(7)});
}

CASE("input_context/zero") {
  return InputContext{.num_replicas_in_sync = 3}.per_replica_batch_size(0);
}

DIFFERS("input_context/str", "11.1: in the form of the class's name",
        Json("InputContext(input pipeline id 1, total: 3)")) {
  return cat(InputContext{3, 1, 6});
}

DIFFERS("value_context/defaults", "a struct of two numbers, which does not print itself",
        Json::array({0, 1})) {
  const ValueContext c;
  return Json::array({c.replica_id_in_sync_group, c.num_replicas_in_sync});
}

// Specs.

Json spec_json(const data::ElementSpec& spec, int replicas) {
  Json shape = Json::array();
  for (const std::int64_t size : spec.leaves().at(0).shape) {
    shape.push_back(size == data::LeafSpec::kUnknown ? Json() : Json(size));
  }
  const Json leaf{{"spec", spec.leaves()[0].dtype}, {"shape", shape}};
  if (replicas == 1) return leaf;
  return {{"spec", "PerReplica"}, {"values", std::vector<Json>(replicas, leaf)}};
}

template <class T>
Json spec_of_distributed(const Strategy& s, const data::Dataset<T>& dataset) {
  const Json spec =
      spec_json(s.distribute_dataset(dataset).element_spec(), s.num_replicas_in_sync());
  return Json::array({spec, spec});
}

TABLE("spec/") {
  const Strategy s = strategy_named(input[0]);
  const std::string kind = input[1];
  const data::BatchOptions drop{.drop_remainder = true};
  if (kind == "batch") return spec_of_distributed(s, range(5).batch(4));
  if (kind == "drop") return spec_of_distributed(s, range(8).batch(4, drop));
  if (kind == "infinite") return spec_of_distributed(s, range(5).repeat().batch(4));
  if (kind == "infinite_drop") return spec_of_distributed(s, range(5).repeat().batch(4, drop));
  if (kind == "drop_indivisible") return spec_of_distributed(s, range(9).batch(3, drop));
  return spec_of_distributed(s, data::from_tensor_slices(at::zeros({6, 3})).batch(4));
}

// Several workers.

Json workers_case(const Json& input) {
  const int workers = input[2], replicas = input[3];
  std::vector<Json> all(workers);
  run_workers(workers, [&](const Worker& worker) {
    const MultiWorkerMirroredStrategy strategy({.worker = worker, .replicas = workers * replicas});
    const auto distributed =
        strategy.distribute_dataset(range(input[0].get<int>()).batch(input[1].get<int>()),
                                    {.auto_shard = policy_named(input[4])});
    Json pieces = Json::array();
    for (const auto& step : distributed) {
      for (const Tensor& piece : step.values()) pieces.push_back(rows_json(piece));
    }
    all[worker.index()] = pieces;
  });
  return all;
}

TABLE("workers/") { return workers_case(input); }

constexpr const char* kOwnPieces = "11.23: a worker takes the pieces of its own replicas";

DIFFERS("workers/8_b3_W2_R1", kOwnPieces, Json::parse("[[[0,1],[3,4],[6,7]],[[2],[5],[]]]")) {
  return workers_case(input);
}
DIFFERS("workers/8_b3_W2_R1_DATA", kOwnPieces, Json::parse("[[[0,1],[3,4],[6,7]],[[2],[5],[]]]")) {
  return workers_case(input);
}
DIFFERS("workers/16_b8_W2_R2", kOwnPieces,
        Json::parse("[[[0,1],[2,3],[8,9],[10,11]],[[4,5],[6,7],[12,13],[14,15]]]")) {
  return workers_case(input);
}
DIFFERS("workers/14_b8_W2_R2", kOwnPieces,
        Json::parse("[[[0,1],[2,3],[8,9],[10,11]],[[4,5],[6,7],[12,13],[]]]")) {
  return workers_case(input);
}
DIFFERS("workers/11_b7_W2_R2", kOwnPieces,
        Json::parse("[[[0,1],[2,3],[7,8],[9,10]],[[4,5],[6],[],[]]]")) {
  return workers_case(input);
}
DIFFERS("workers/12_b4_W3_R1", kOwnPieces,
        Json::parse("[[[0,1],[4,5],[8,9]],[[2],[6],[10]],[[3],[7],[11]]]")) {
  return workers_case(input);
}

DIFFERS("rebatch/legacy", "11.13: cut evenly",
        Json::parse("[[[0,1],[2],[3]],[[0],[]],[[0],[1]],[[0,1,2],[3,4,5]],[[0,1,2],[3,4],[5,6]],"
                    "[[0,1],[2],[3],[4]]]")) {
  Json all = Json::array();
  for (const auto& [rows, pieces] : {std::pair(4, 3), {1, 2}, {2, 2}, {6, 2}, {7, 3}, {5, 4}}) {
    Json cut = Json::array();
    for (int j = 0; j < pieces; ++j) {
      cut.push_back(rows_json(cut_piece(at::arange(rows), BatchCut(pieces), j)));
    }
    all.push_back(cut);
  }
  return all;
}

// The public auto_shard, which deals files or elements.

Json value_json(const Tensor& tensor) { return rows_json(tensor); }
Json value_json(const data::Strings& strings) { return rows_json(strings); }
Json value_json(const std::string& string) { return string; }
Json value_json(const std::pair<std::string, std::int64_t>& pair) {
  return Json::array({pair.first, pair.second});
}

template <class T>
Json shards(const data::Dataset<T>& dataset, int workers,
            AutoShardPolicy policy = AutoShardPolicy::AUTO) {
  Json all = Json::array();
  for (int w = 0; w < workers; ++w) {
    all.push_back(attempt([&] {
      Json elements = Json::array();
      const auto part = data::auto_shard(dataset.options({.auto_shard = policy}), workers, w);
      for (const T& element : part) elements.push_back(value_json(element));
      return elements;
    }));
  }
  return all;
}

CASE("shard/data_too_few") { return shards(range(1).batch(1), 3, AutoShardPolicy::DATA); }
CASE("shard/hint_missing") { return shards(range(4).batch(2), 2, AutoShardPolicy::HINT); }
CASE("shard/file_on_range") {
  data::auto_shard(range(4).batch(2).options({.auto_shard = AutoShardPolicy::FILE}), 2, 0);
  return nullptr;
}
CASE("shard/bad_index") {
  data::auto_shard(range(4).batch(2), 2, 2);
  return nullptr;
}
CASE("shard/bad_num_workers") {
  data::auto_shard(range(4).batch(2), 0, 0);
  return nullptr;
}

auto lines_of(const std::vector<std::string>& files) {
  return data::from_tensor_slices(files).flat_map(read_lines);
}

CASE("shard/files_4_W2_slices") {
  const Folder folder;
  return shards(lines_of(folder.lines(4, 2)), 2);
}
CASE("shard/files_4_W2_reader_list") {
  const Folder folder;
  return shards(data::text_lines(folder.lines(4, 2)), 2);
}
CASE("shard/file_single_string_W2") {
  const Folder folder;
  return shards(data::text_lines(folder.lines(1, 4)[0]), 2);
}
CASE("shard/file_single_string_W2_FILE") {
  const Folder folder;
  return shards(data::text_lines(folder.lines(1, 4)[0]), 2, AutoShardPolicy::FILE);
}
DIFFERS("shard/files_and_range_zip", "11.24: all or nothing; the elements are dealt",
        Json::parse(R"([[["00",0],["10",2]],[["01",1],["11",3]]])")) {
  const Folder folder;
  return shards(data::zip(lines_of(folder.lines(2, 2)), range(4)), 2);
}
CASE("shard/data_below_prefetch") {
  return shards(range(6).batch(1).prefetch(2), 2, AutoShardPolicy::DATA);
}
CASE("shard/files_3_W2_batch") {
  const Folder folder;
  return shards(lines_of(folder.lines(3, 2)).batch(2), 2);
}
CASE("shard/files_1_W2_AUTO") {
  const Folder folder;
  return shards(lines_of(folder.lines(1, 3)), 2);
}
CASE("shard/files_1_W2_FILE") {
  const Folder folder;
  return shards(lines_of(folder.lines(1, 3)), 2, AutoShardPolicy::FILE);
}
CASE("shard/files_2_W3_AUTO") {
  const Folder folder;
  return shards(lines_of(folder.lines(2, 2)), 3);
}
CASE("shard/files_tfrecord") {
  const Folder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < 2; ++i) {
    paths.push_back(cat(folder.path(), '/', i, ".tfr"));
    io::TFRecordWriter writer(paths.back());
    for (int j = 0; j < 2; ++j) writer.write(cat(i, j));
    writer.close();
  }
  return shards(data::tf_records(paths), 2);
}
CASE("shard/files_map_reads") {
  const Folder folder;
  const auto contents =
      data::from_tensor_slices(folder.lines(4, 1)).map([](const std::string& path) {
        std::string line;
        std::getline(std::ifstream(path), line);
        return line;
      });
  return shards(contents, 2);
}

// Steps that some replicas have no data for.

CASE("uneven/reduce_mean_axis0_last") {
  const Strategy s = two();
  Json means = Json::array();
  for (const auto& step : s.distribute_dataset(range(5).batch(4))) {
    const auto floats = s.run([](const Tensor& x) { return x.to(at::kFloat); }, step);
    means.push_back(encode(s.reduce("MEAN", floats, 0)));
  }
  return means;
}

CASE("uneven/empty_batch_shape") {
  Json shapes = Json::array();
  const auto rows = data::from_tensor_slices(at::ones({5, 3})).batch(4);
  for (const auto& step : two().distribute_dataset(rows)) {
    Json each = Json::array();
    for (const Tensor& value : step.values()) each.push_back(value.sizes().vec());
    shapes.push_back(each);
  }
  return shapes;
}

CASE("uneven/empty_batch_mean_is_nan") {
  const Strategy s = two();
  Json means = Json::array();
  for (const auto& step : s.distribute_dataset(range(5).batch(4))) {
    means.push_back(encode(s.run([](const Tensor& x) { return x.to(at::kFloat).mean(); }, step)));
  }
  return means;
}

}  // namespace
}  // namespace cohort::oracle::input_local_cases
