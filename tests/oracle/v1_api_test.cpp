// The iterators and helpers of TensorFlow 1: rule 10.

#include "cohort/compat/compat.h"
#include "cohort/data/sources.h"
#include "tests/oracle/oracle.h"
#include "tests/oracle/strategies.h"

namespace cohort::oracle::v1_api_cases {
namespace {

ORACLE_THEME("v1_api");

using data::range;

/// What each replica of a step gets, as plain lists.
Json show(const PerReplica<Tensor>& step) {
  Json list = Json::array();
  for (const Tensor& value : step.values()) list.push_back(encode_tensor(value)["value"]);
  return list;
}

template <class Iterator>
Json three_steps(Iterator iterator) {
  iterator.initialize();
  Json list = Json::array();
  for (int i = 0; i < 3; ++i) {
    list.push_back(attempt([&] { return show(iterator.get_next()); }));
  }
  return list;
}

const Json kEnd = fails("OutOfRange");

// Iterators.

DIFFERS("make_dataset_iterator/steps", "11.15: cut where a full batch is, in memory too",
        Json::array({Json::parse("[[0,1],[2,3]]"), Json::parse("[[4,5],[]]"), kEnd})) {
  return three_steps(compat::make_dataset_iterator(two(), range(6).batch(4)));
}

CASE("make_dataset_iterator/in_replica") {
  const Strategy s = two();
  const auto made = s.run([&] {
    compat::make_dataset_iterator(s, range(8).batch(4));
    return 1;
  });
  return made.values()[0];
}

DIFFERS("make_input_fn_iterator/dataset", "11.31: an incomplete step is never dropped silently",
        Json::array({Json::parse("[[1,0,2]]"), Json::array({Json::parse("[[0,1],[2,3]]"),
                                                            Json::parse("[[4,5],[]]"), kEnd})})) {
  Json seen = Json::array();
  const auto fn = [&](const InputContext& context) {
    seen.push_back(
        {context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync});
    return range(6).batch(2);
  };
  Json steps = three_steps(compat::make_input_fn_iterator(two(), fn));
  return Json::array({seen, steps});
}

CASE("make_input_fn_iterator/callable") {
  auto count = std::make_shared<int>(0);
  auto iterator = compat::make_input_fn_iterator(
      two(), [count](const InputContext&) { return [count] { return scalar(++*count); }; });
  iterator.initialize();
  Json steps = Json::array();
  for (int i = 0; i < 2; ++i) steps.push_back(show(iterator.get_next()));
  return steps;
}

NOT_EXPRESSIBLE("make_input_fn_iterator/bad_return", "compile_fail/input.cpp");

CASE("make_input_fn_iterator/bad_mode") {
  return compat::make_input_fn_iterator(
             two(), [](const InputContext&) { return range(2).batch(1); },
             static_cast<InputReplicationMode>(5)),
         Json();
}
CASE("make_input_fn_iterator/per_replica_mode") {
  compat::make_input_fn_iterator(
      two(), [](const InputContext&) { return range(2).batch(1); },
      InputReplicationMode::PER_REPLICA);
  return {};
}
CASE("make_input_fn_iterator/in_replica") {
  const Strategy s = two();
  s.run([&] {
    compat::make_input_fn_iterator(s, [](const InputContext&) { return range(2).batch(1); });
  });
  return {};
}

// Functions by their old names.

CASE("experimental_run/without_iterator") {
  return encode(compat::experimental_run(two(), [] { return rid() + 1; }));
}

CASE("reduce/axis_default_none") {
  const Strategy s = two();
  return encode(s.reduce("SUM", s.run([] { return rid() + 1; })));
}

Json rows_of(const data::Dataset<Tensor>& dataset) {
  Json rows = Json::array();
  for (const Tensor& row : dataset) rows.push_back(encode_tensor(row)["value"]);
  return rows;
}

CASE("numpy_dataset/array") {
  return rows_of(compat::experimental_make_numpy_dataset(two(), at::arange(8.).reshape({4, 2})));
}
DIFFERS("numpy_dataset/list", "10.4: one array", Json::parse("[1,2,3]")) {
  return rows_of(
      compat::experimental_make_numpy_dataset(two(), std::vector<std::int64_t>{1, 2, 3}));
}
CASE("numpy_dataset/in_replica") {
  const Strategy s = two();
  s.run([&] { compat::experimental_make_numpy_dataset(s, at::arange(3)); });
  return {};
}

CASE("update_config_proto/one_device") {
  const compat::ConfigProto config;
  const compat::ConfigProto updated = compat::update_config_proto(one_device(), config);
  return {&updated == &config, updated.isolate_session_state};
}

CASE("unwrap_group") {
  const Strategy s = two();
  const auto value = s.run([] { return rid(); });
  Json unwrapped = Json::array();
  for (const Tensor& each : compat::unwrap(s, value)) unwrapped.push_back(each.item<double>());
  compat::group(s, value);
  return {unwrapped, nullptr};
}

// Several steps in one call.

/// An output that is a tensor.
Json outputs(const compat::MultiStepContext& context, const std::string& name) {
  return {{name, encode(std::any_cast<Tensor>(context.last_step_outputs().at(name)))}};
}

CASE("run_steps/mirrored_eager") {
  const Strategy s = two();
  auto iterator = compat::make_dataset_iterator(s, range(8).batch(4));
  iterator.initialize();
  compat::MultiStepContext initial;
  initial.set_last_step_output("sum", scalar(0));
  const auto context = compat::experimental_run_steps_on_iterator(
      s,
      [&](compat::MultiStepContext& context, const PerReplica<Tensor>& x) {
        const auto sums = s.run([](const Tensor& y) { return y.sum().to(at::kFloat); }, x);
        context.set_last_step_output("sum", sums, ReduceOp::SUM);
        context.set_non_tensor_output("n", 7);
      },
      iterator, 2, initial);
  return {outputs(context, "sum"),
          {{"n", std::any_cast<int>(context.non_tensor_outputs().at("n"))}}};
}

CASE("run_steps/one_device_eager") {
  auto iterator =
      compat::make_dataset_iterator(one_device(), data::from_tensors(scalar(1)).repeat(5));
  iterator.initialize();
  Json seen = Json::array();
  const auto context = compat::experimental_run_steps_on_iterator(
      one_device(),
      [&](compat::MultiStepContext& context, const PerReplica<Tensor>& x) {
        seen.push_back(x.values()[0].item<double>());
        context.set_last_step_output("x", x.values()[0]);
      },
      iterator);
  return {seen, outputs(context, "x")};
}

CASE("multi_step_context/replica_requires_reduce_op") {
  compat::MultiStepContext context;
  two().run([&] { context.set_last_step_output("x", rid()); });
  return {};
}
CASE("multi_step_context/replica_with_reduce_op") {
  compat::MultiStepContext context;
  two().run([&] { context.set_last_step_output("x", rid() + 1, ReduceOp::SUM); });
  return outputs(context, "x");
}
CASE("multi_step_context/replica_non_tensor") {
  compat::MultiStepContext context;
  two().run([&] { context.set_non_tensor_output("x", id()); });
  const auto values = std::any_cast<std::vector<int>>(context.non_tensor_outputs().at("x"));
  return {{"x", {{"kind", "tuple"}, {"items", values}}}};
}

NOT_EXPRESSIBLE("make_one_shot_iterator/graph", "no graphs, and each loop makes an iterator");
NOT_EXPRESSIBLE("make_initializable_iterator/eager", "the same");
NOT_EXPRESSIBLE("experimental_run_v2/alias", "old names are free functions: tests/compat");

}  // namespace
}  // namespace cohort::oracle::v1_api_cases
