// Input of several workers: rule 11.

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cohort/data/readers.h"
#include "cohort/input/strategy_input.h"
#include "tests/oracle/multiworker.h"

namespace cohort::oracle::multiworker_input_cases {
namespace {

ORACLE_THEME("multiworker");

using data::AutoShardPolicy;
using data::range;

// The local values of a step, as rows of numbers.

Json rows_json(const Tensor& tensor) { return encode_tensor(tensor)["value"]; }
Json rows_json(const data::Strings& strings) {
  Json list = Json::array();
  for (const std::string_view each : strings) list.push_back(std::stoi(std::string(each)));
  return list;
}
template <class T>
Json step_json(const PerReplica<T>& step) {
  Json list = Json::array();
  for (const T& value : step.values()) list.push_back(rows_json(value));
  return list;
}
template <class A, class B>
Json step_json(const PerReplica<std::pair<A, B>>& step) {
  Json first = Json::array(), second = Json::array();
  for (const auto& [a, b] : step.values()) {
    first.push_back(rows_json(a));
    second.push_back(rows_json(b));
  }
  return Json::array({first, second});
}

template <class T>
Json steps_json(const DistributedDataset<T>& dataset) {
  Json list = Json::array();
  for (const auto& step : dataset) list.push_back(step_json(step));
  return list;
}

template <class T>
Json steps(const Json& input, const data::Dataset<T>& dataset,
           AutoShardPolicy policy = AutoShardPolicy::AUTO) {
  return of_workers(input, [&](const Strategy& strategy) {
    return steps_json(strategy.distribute_dataset(dataset, {.auto_shard = policy}));
  });
}

CASE("input/9_b2_AUTO") { return steps(input, range(9).batch(2)); }

DIFFERS("input/15_b4_R2_AUTO", "11.23: a worker takes the pieces of its own replicas",
        Json::parse(R"({"worker0": {"result": [[[0],[1]],[[4],[5]],[[8],[9]],[[12],[13]]]},
                        "worker1": {"result": [[[2],[3]],[[6],[7]],[[10],[11]],[[14],[]]]}})")) {
  return steps(input, range(15).batch(4));
}

CASE("input/8_b4_FILE_on_range") { return steps(input, range(8).batch(4), AutoShardPolicy::FILE); }

CASE("input/W3_13_b6_AUTO") { return steps(input, range(13).batch(6)); }

CASE("input/tuple_features_labels") {
  return steps(input, range(5)
                          .map([](std::int64_t i) {
                            return std::pair(at::tensor({i, i * 10}), -i);
                          })
                          .batch(4));
}

/// Files of four lines each, "00" to "03", "10" to "13", ….
class TextFiles {
 public:
  explicit TextFiles(int count) {
    std::filesystem::create_directories(folder_);
    for (int f = 0; f < count; ++f) {
      names_.push_back(cat(folder_, '/', f, ".txt"));
      std::ofstream file(names_.back());
      for (int line = 0; line < 4; ++line) file << f << line << '\n';
    }
  }
  ~TextFiles() { std::filesystem::remove_all(folder_); }
  TextFiles(const TextFiles&) = delete;
  TextFiles& operator=(const TextFiles&) = delete;

  data::Dataset<std::string> lines() const {
    return data::from_tensor_slices(names_).flat_map(
        [](const std::string& name) { return data::text_lines(name); });
  }

 private:
  const std::string folder_ = cat(testing::TempDir(), "cohort_oracle_lines_", getpid());
  std::vector<std::string> names_;
};

CASE("input/files_2_DATA") {
  const TextFiles files(2);
  return steps(input, files.lines().batch(4), AutoShardPolicy::DATA);
}

CASE("input/files_1_AUTO") {
  const TextFiles files(1);
  const auto batches = files.lines().batch(2);
  return of_workers(input, [&](const Strategy& strategy, int worker) -> Json {
    const Json own = attempt([&] { return steps_json(strategy.distribute_dataset(batches)); });
    return worker == 0 ? own : Json("not compared");
  });
}

/// Worker w has w + 1 batches of one row.
Json uneven(const Json& input, const data::BatchOptions& options) {
  return of_workers(input, [&](const Strategy& strategy, int w) {
    return steps_json(strategy.distribute_datasets_from_function(
        [&](const InputContext&) { return range(w * 10, w * 10 + w + 1).batch(1, options); }));
  });
}

CASE("input/from_function_uneven") { return uneven(input, {}); }
CASE("input/from_function_uneven_static") { return uneven(input, {.drop_remainder = true}); }

Json spec_json(const data::ElementSpec& spec) {
  const std::int64_t rows = spec.leaves().at(0).shape.at(0);
  const Json shape = Json::array({rows == data::LeafSpec::kUnknown ? Json() : Json(rows)});
  const Json leaf{{"spec", spec.leaves()[0].dtype}, {"shape", shape}};
  return {{"spec", "PerReplica"}, {"values", Json::array({leaf})}};
}

const Json kSpecs = Json::parse(R"([
    {"spec": "PerReplica", "values": [{"shape": [null], "spec": "int64"}]},
    {"spec": "PerReplica", "values": [{"shape": [2], "spec": "int64"}]}])");

DIFFERS("input/element_spec_W2", "11.35: unknown only where a step can be a partial one",
        {{"worker0", {{"result", kSpecs}}}, {"worker1", {{"result", kSpecs}}}}) {
  return of_workers(input, [](const Strategy& strategy) {
    const auto spec = [&](const data::BatchOptions& options) {
      return spec_json(strategy.distribute_dataset(range(8).batch(4, options)).element_spec());
    };
    return Json::array({spec({}), spec({.drop_remainder = true})});
  });
}

CASE("input/element_kind_W2") {
  return of_workers(input, [](const Strategy& strategy) -> Json {
    const auto step = strategy.distribute_dataset(range(8).batch(4)).iterator().get_next();
    static_assert(std::is_same_v<decltype(step), const PerReplica<Tensor>>);
    return "PerReplica";
  });
}

CASE("input/get_next_as_optional_W2") {
  return of_workers(input, [](const Strategy& strategy) {
    auto iterator = strategy.distribute_dataset(range(5).batch(2)).iterator();
    Json list = Json::array();
    for (int i = 0; i < 4; ++i) {
      const auto step = iterator.get_next_as_optional();
      list.push_back({step.has_value(), step ? step_json(*step) : Json()});
    }
    return list;
  });
}

}  // namespace
}  // namespace cohort::oracle::multiworker_input_cases
