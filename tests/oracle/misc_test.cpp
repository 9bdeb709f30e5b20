// Moving averages, logs, the default, one-device and central-storage strategies: rules 1, 2, 13,
// 19 and 20.

#include <map>

#include "cohort/input/strategy_input.h"
#include "cohort/variables/moving_average.h"
#include "tests/base/captured_log.h"
#include "tests/base/scoped_environment.h"
#include "tests/oracle/oracle.h"
#include "tests/oracle/strategies.h"

namespace cohort::oracle::misc_cases {
namespace {

ORACLE_THEME("misc");

// Moving averages.

Json moving_average(Aggregation aggregation) {
  const Strategy s = two();
  const Variable v = variable(s, vector({10, 11}), {.aggregation = aggregation});
  s.run([&](const Tensor& x) { assign_moving_average(v, x, 0.25); },
        per(s, {vector({1, 2}), vector({2, 1})}));
  return components(v);
}

CASE("moving_average/replica") { return moving_average(Aggregation::MEAN); }
CASE("moving_average/replica_aggregation_none") {
  return Json::array({"ok", moving_average(Aggregation::NONE)});
}

CASE("moving_average/ema") {
  const Strategy s = two();
  const Variable w = variable(s, 1, {.aggregation = Aggregation::MEAN});
  ExponentialMovingAverage average(0.8);
  {
    const auto scope = s.scope();
    average.apply({w});
  }
  s.run([&] {
    w.assign_sub(0.5);
    average.apply({w});
  });
  return Json::array({components(w), components(average.average(w))});
}

PENDING("summary/only_replica_0", "summary");
PENDING("summary/should_record_in_replicas", "summary");

// Logs.

/// The lines that fn logs, as [level, text].
template <class F>
Json logged(F&& fn) {
  const CapturedLog log;
  fn();
  Json lines = Json::array();
  for (const auto& [level, text] : log.lines()) {
    lines.push_back(Json::array({level == log::Level::INFO ? "INFO" : "WARNING", text}));
  }
  return lines;
}

Json line(const char* text) { return Json::array({Json::array({"INFO", text})}); }

DIFFERS("logs/mirrored_construction", "20.1: devices as LibTorch spells them",
        line("Using MirroredStrategy with devices cpu:0, cpu:1")) {
  return logged([] { two(); });
}

DIFFERS("logs/central_storage_construction", "20.1: devices as LibTorch spells them",
        line("CentralStorageStrategy with compute_devices cpu:0, cpu:1 and variables on cpu:0")) {
  return logged([] { CentralStorageStrategy({.compute_devices = {"CPU:0", "CPU:1"}}); });
}

NOT_EXPRESSIBLE("logs/eager_run_overhead_count", "there are no graph functions to wrap run in");
NOT_EXPRESSIBLE("logs/eager_run_overhead_in_function", "there are no graph functions");
NOT_EXPRESSIBLE("logs/indexed_slices_all_reduce",
                "the script sees only the warning about overhead");
NOT_EXPRESSIBLE("logs/partitioner_warning", "variables have no partitioner");

DIFFERS("logs/reduce_to_one_device_info_count", "20.5: devices as LibTorch spells them",
        Json::array({10, "INFO", "Reduce to cpu:0 then broadcast to cpu:0, cpu:1"})) {
  const Strategy s = two();
  const Variable v = variable(s, scalar(0, at::kInt), {.aggregation = Aggregation::SUM});
  const auto p = s.run([] { return rid(at::kInt) + 1; });
  const Json lines = logged([&] {
    for (int i = 0; i < 12; ++i) s.extended().reduce_to("SUM", p, v);
  });
  return Json::array({lines.size(), lines[0][0], lines[0][1]});
}

DIFFERS("logs/tf_config_ignored", "20.7: the text is Cohort's own",
        Json::array({Json::array({"INFO",
                                  "MirroredStrategy uses the devices of this process only: "
                                  "TF_CONFIG is ignored"}),
                     Json::array({"INFO", "Using MirroredStrategy with devices cpu:0, cpu:1"})})) {
  const ScopedEnvironment environment(
      "TF_CONFIG",
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})");
  return logged([] { two(); });
}

// The default strategy.

CASE("default/batch_reduce_to") {
  const std::vector<std::pair<Tensor, Destinations>> batch{{scalar(2), "CPU:0"},
                                                           {scalar(3), "CPU:0"}};
  return encode(default_strategy().extended().batch_reduce_to("SUM", batch));
}

CASE("default/broadcast_none") {
  return encode(default_strategy().extended().broadcast_to(scalar(2), Destinations(DeviceList())));
}

CASE("default/run") {
  return encode(default_strategy().run([](const Tensor& x) { return x + 1; }, scalar(1)));
}

CASE("default/run_state") {
  const Strategy& s = default_strategy();
  return encode(s.local_results(s.run([] {
    return Json::array(
        {has_strategy(), in_cross_replica_context(), get_replica_context().num_replicas_in_sync()});
  })));
}

CASE("default/local_results") {
  return encode(default_strategy().local_results(std::vector{scalar(1)}));
}

DIFFERS("default/variable_class", "6: a variable of no strategy is a plain one", "Variable") {
  return Variable(1.f).kind_name();
}

DIFFERS("default/distribute_dataset_is_same_object", "11.34: always PerReplica elements",
        Json::parse("[[0],[1],[2]]")) {
  Json steps = Json::array();
  for (const auto& step : default_strategy().distribute_dataset(data::range(3))) {
    steps.push_back(step.values());
  }
  return steps;
}

CASE("default/datasets_from_function_context") {
  Json seen = Json::array();
  default_strategy().distribute_datasets_from_function([&](const InputContext& context) {
    seen.push_back(
        {context.num_input_pipelines, context.input_pipeline_id, context.num_replicas_in_sync});
    return data::range(2);
  });
  return seen;
}

CASE("default/distribute_values") {
  return encode(
      default_strategy().distribute_values_from_function([](const ValueContext&) { return 7; }));
}

// One device.

CASE("one/dataset_element_device") {
  const Strategy s = OneDeviceStrategy("CPU:1");
  auto iterator = s.distribute_dataset(data::range(4).batch(2)).iterator();
  return iterator.get_next().devices()->at(0).name();
}

CASE("one/run_nested_error") {
  const Strategy s = one_device();
  return encode(s.run([&] { return s.run([] { return 1; }); }));
}

CASE("one/device_of_results") {
  return encode(OneDeviceStrategy("CPU:1").run([] { return get_replica_context().devices()[0]; }));
}

CASE("one/exception_propagates") {
  one_device().run([] { throw KeyError("test", "k"); });
  return nullptr;
}

// Central storage.

CASE("cs/variable_devices") {
  const Strategy s = central();
  return Json::array({encode(variable(s, 1).device()), encode(s.extended().worker_devices()),
                      Json::array({s.extended().parameter_devices()[0].spelled()})});
}

CASE("cs/merge_call") {
  return encode(central().run([] {
    return merge_call([](Strategy& s, const PerReplica<Tensor>& x) { return s.reduce("SUM", x); },
                      rid() + 1);
  }));
}

DIFFERS("cs/reduce_nest", "7.2: nests work in every strategy",
        encode(std::pair{scalar(1), scalar(3)})) {
  const Strategy s = central();
  return encode(s.reduce("SUM", s.run([] { return std::pair{rid(), rid() + 1}; })));
}

CASE("cs/scatter_in_replica_sum") {
  const Strategy s = central();
  const Variable v = variable(s, vector({0, 0, 0}), {.aggregation = Aggregation::SUM});
  s.run([&] { v.scatter_add({.values = at::ones({1}), .indices = rid(at::kLong).reshape({1})}); });
  return Json::array({"ok", Json::array({components(v)[0]})});
}

DIFFERS("cs/local_results_variable", "0.2: local_results are tensors, one for each replica",
        Json::array({2, 3., 3.})) {
  const Strategy s = central();
  const auto results = s.local_results(variable(s, 3));
  return Json::array({results.size(), results[0].item<double>(), results[1].item<double>()});
}

CASE("cs/duplicate_devices") {
  return CentralStorageStrategy({.compute_devices = {"CPU:0", "CPU:0"}}).num_replicas_in_sync();
}

// Variables.

CASE("variable/gradient_on_read") {
  const Strategy s = two();
  const Variable v = variable(s, 2,
                              {.trainable = true,
                               .synchronization = Synchronization::ON_READ,
                               .aggregation = Aggregation::SUM});
  return encode(s.run([&] {
    const Tensor y = v * (rid() + 1);
    return torch::autograd::grad({y}, {v.handle()})[0];
  }));
}

DIFFERS("variable/gradient_cross", "6.4: backward reads the primary copy", encode(scalar(4))) {
  const Strategy s = two();
  const Variable v = variable(s, 2);
  const auto scope = s.scope();
  const Tensor y = v * v;
  return encode(torch::autograd::grad({y}, {v.handle()})[0]);
}

CASE("variable/constraint_and_len") {
  const Strategy s = two();
  const Variable v =
      variable(s, vector({1, 2, 3}), {.constraint = [](const Tensor& x) { return at::relu(x); }});
  const Tensor value = v;
  return Json::array({v.constraint() != nullptr, encode(value[1].clone()),
                      encode(value.slice(0, 0, 2)), v.shape(), encode(-v), encode(at::abs(v)),
                      encode(v == value), encode(v > 1.5)});
}

DIFFERS("variable/bool_and_numpy", "6.4: all of them work", Json::array({true, 1.5, 1, 1.5})) {
  const Variable v = variable(two(), 1.5);
  return Json::array({static_cast<bool>(v), static_cast<double>(v), static_cast<std::int64_t>(v),
                      v.value().item<double>()});
}

CASE("variable/experimental_ref_distinct") {
  const Strategy s = two();
  const Variable v = variable(s, 1), w = variable(s, 1);
  return Json::array({v == v, v == w});
}

PENDING("preemption/no_directory", "preemption handler");
PENDING("preemption/total_run_calls", "preemption handler");
PENDING("preemption/sigterm_saves_and_exits", "preemption handler");

// Further strategies and values.

/// The components; the only copy of a variable that is stored once.
Json stored(const Variable& variable) {
  const Json all = components(variable);
  return variable.devices()->size() == 1 ? Json::array({all[0]}) : all;
}

TABLE("average/") {
  static const std::map<std::string, Aggregation> aggregations{
      {"NONE", Aggregation::NONE},
      {"SUM", Aggregation::SUM},
      {"MEAN", Aggregation::MEAN},
      {"ONLY_FIRST_REPLICA", Aggregation::ONLY_FIRST_REPLICA}};
  const auto dtype = input.size() > 3 ? decode_dtype(input[3].get<std::string>()) : at::kFloat;
  const Strategy s = strategy_named(input[0]);
  const Variable v = variable(s, scalar(10, dtype), {.aggregation = aggregations.at(input[1])});
  s.run([&] { assign_moving_average(v, rid(dtype) + 1, input[2].get<double>()); });
  return Json::array({"ok", stored(v)});
}

CASE("moving_average/cross") {
  const Strategy s = two();
  const Variable v = variable(s, 10, {.aggregation = Aggregation::MEAN});
  const auto scope = s.scope();
  assign_moving_average(v, scalar(2), 0.5);
  return components(v);
}

CASE("moving_average/plain") {
  const Variable v(vector({10, 20}));
  assign_moving_average(v, vector({2, 4}), 0.5);
  return components(v);
}

CASE("moving_average/ema_plain") {
  const Variable w(1.f);
  ExponentialMovingAverage average(0.5);
  average.apply({w});
  w.assign(3.f);
  average.apply({w});
  return components(average.average(w));
}

DIFFERS("moving_average/ema_missing", "0.4: questions that have no answer throw",
        fails("KeyError")) {
  return encode(ExponentialMovingAverage(0.5).average(Variable(1.f)));
}

// Logs.

CASE("logs/one_device_construction") {
  return logged([] { one_device(); });
}

CASE("logs/central_storage_one_device") {
  return logged([] { CentralStorageStrategy({.compute_devices = {"CPU:1"}}); }).size();
}

CASE("logs/mirrored_reduce_float") {
  const Strategy s = two();
  const auto p = s.run([] { return rid() + 1; });
  return logged([&] {
           for (int i = 0; i < 12; ++i) s.reduce("SUM", p);
         })
      .size();
}

// The default strategy.

CASE("default/reduce_to") {
  return encode(default_strategy().extended().reduce_to("SUM", vector({2, 3}), "CPU:0"));
}
CASE("default/gather") { return encode(default_strategy().gather(vector({2, 3}), 0)); }
CASE("default/gather_scalar") { return encode(default_strategy().gather(scalar(2), 0)); }

CASE("default/reduce_nest") {
  const auto nest = std::pair{scalar(2), std::vector{scalar(3, at::kInt)}};
  return encode(default_strategy().reduce("MEAN", nest));
}

CASE("default/all_reduce_nest") {
  const std::map<std::string, Tensor> nest{{"a", scalar(1, at::kInt)}, {"b", scalar(2)}};
  return encode(get_replica_context().all_reduce("MEAN", nest));
}

CASE("default/update") {
  const Variable v(1.f);
  const Json result = encode(default_strategy().extended().update(
      v, [](Tensor& copy, double x) { return copy.add_(x).clone(); }, 2.));
  return Json::array({result, stored(v)});
}

/// What TensorFlow calls the class of a variable.
std::string class_of(const Variable& variable) {
  const std::string kind = variable.kind_name();
  return kind == "Variable" ? "ResourceVariable" : kind;
}

CASE("default/run_variable") {
  const Variable v = default_strategy().run([] { return Variable(4.f); });
  return Json::array({class_of(v), stored(v)});
}

CASE("default/run_nested") {
  const Strategy& s = default_strategy();
  return encode(s.run([&] { return s.run([] { return scalar(3); }); }));
}

CASE("default/value_container") {
  return !default_strategy().extended().value_container(Variable(1.f).primary()).has_value();
}

CASE("default/num_replicas") {
  return Json::array({default_strategy().num_replicas_in_sync(),
                      get_replica_context().num_replicas_in_sync(), id()});
}

// One device.

CASE("one/variable_in_run") {
  const Variable v =
      one_device().run([] { return Variable(4.f, {.aggregation = Aggregation::SUM}); });
  return Json::array({class_of(v), encode(v.device()), stored(v)});
}

CASE("one/merge_call_state") {
  Json seen = Json::array();
  one_device().run([&] {
    merge_call([&](Strategy& s) {
      seen.push_back(
          Json::array({in_cross_replica_context(), has_strategy(), s.num_replicas_in_sync()}));
    });
  });
  return seen;
}

CASE("one/all_reduce_and_gather") {
  return encode(one_device().run([] {
    ReplicaContext& replica = get_replica_context();
    return std::pair{replica.all_reduce("MEAN", vector({1, 2})),
                     replica.all_gather(vector({1, 2}).reshape({1, 2}), 1)};
  }));
}

CASE("one/reduce_in_replica") {
  const Strategy s = one_device();
  return encode(s.run([&] { return s.reduce("SUM", scalar(1)); }));
}

CASE("one/local_results_dict") {
  Json all = Json::array();
  for (const auto& own : one_device().local_results(std::pair{scalar(1), std::tuple{scalar(2)}})) {
    all.push_back(named({"a", "b"}, own));
  }
  return all;
}

CASE("one/variable_assign_in_run") {
  const Strategy s = one_device();
  const Variable v = variable(s, 1);
  const auto returned = s.run([&] {
    v.assign_add(3.);
    return v.assign_sub(1.).item<double>();
  });
  return Json::array({s.local_results(returned)[0], stored(v)});
}

// Central storage.

CASE("cs/run_results") {
  const Strategy s = central();
  const auto results = s.run([] { return std::pair{rid(), std::vector{rid() + 1}}; });
  return Json::array({encode(results), encode(s.local_results(results))});
}

CASE("cs/gather") {
  const Strategy s = central();
  return encode(s.gather(s.run([] { return at::stack({rid(), rid() + 10}); }), 0));
}

CASE("cs/gather_variable") {
  const Strategy s = central();
  return encode(s.gather(variable(s, vector({1, 2})), 0));
}

CASE("cs/variable_created_in_run") {
  return encode(central().run([] {
    const Variable v(2.f, {.aggregation = Aggregation::MEAN});
    v.assign_add(rid());
    return v.read_value();
  }));
}

CASE("cs/gradient") {
  const Strategy s = central();
  const Variable v = variable(s, 2);
  return encode(s.run([&] {
    const Tensor y = v * (rid() + 1);
    return torch::autograd::grad({y}, {v.handle()})[0];
  }));
}

CASE("cs/batch_reduce_to") {
  const Strategy s = central();
  const auto p = per(s, {1, 2});
  const std::vector<std::pair<PerReplica<Tensor>, Destinations>> batch{{p, p}, {p, "CPU:0"}};
  return encode(s.extended().batch_reduce_to("SUM", batch));
}

CASE("cs/value_container") {
  const Strategy s = central();
  const Variable v = variable(s, 1);
  return s.extended().value_container(v.primary()) == v;
}

CASE("cs/only_one_replica_assigns") {
  const Strategy s = central();
  const Variable v = variable(s, 1, {.aggregation = Aggregation::SUM});
  s.run([&] {
    if (id() == 1) v.assign(2.);
  });
  return nullptr;
}

// Variables.

CASE("variable/gradient_mirrored") {
  const Strategy s = three();
  const Variable v = variable(s, 2);
  return encode(s.run([&] {
    const Tensor y = v * v * (rid() + 1);
    return torch::autograd::grad({y}, {v.handle()})[0];
  }));
}

CASE("variable/not_trainable_gradient") {
  const Strategy s = two();
  const Variable v = variable(s, 2, {.trainable = false});
  return encode(s.run([&] { return !(v * 2).requires_grad(); }));
}

CASE("variable/operators") {
  const Strategy s = two();
  const Variable v = variable(s, vector({1, 2}));
  const auto scope = s.scope();
  return encode(std::vector<Tensor>{v + 1, 1 + v, v - 1, 3 - v, v * 2, 2 / v, v / 2, at::pow(v, 2),
                                    v >= 2, v < 2, v != 1, v % 2, at::floor_divide(v, scalar(2))});
}

CASE("variable/operators_int") {
  const Strategy s = two();
  const Variable v = variable(s, vector({5, -5}, at::kInt));
  return encode(s.run([&] {
    return std::tuple{v + 1, v * 2,
                      -v,    at::floor_divide(v, scalar(2, at::kInt)),
                      v % 3, v == scalar(5, at::kInt)};
  }));
}

CASE("variable/operators_of_two") {
  const Strategy s = two();
  const Variable v = variable(s, 2), w = variable(s, 3);
  return encode(s.run([&] { return std::tuple{v + w, v * w, v - w, v < w}; }));
}

CASE("variable/on_read_operators") {
  const Strategy s = two();
  const Variable v = variable(
      s, 0, {.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::MEAN});
  set_components(v, {0, 1});
  const auto scope = s.scope();
  return encode(std::vector<Tensor>{v + 1, 2 * v, v > 0.25, -v});
}

CASE("variable/fields") {
  const Variable v = variable(
      three(), at::zeros({2, 0}, at::kLong),
      {.name = "w", .synchronization = Synchronization::ON_READ, .aggregation = Aggregation::SUM});
  Json names = Json::array();
  for (int i = 0; i < 3; ++i) names.push_back(v.component_name(i) + ":0");
  return Json::array({v.name() + ":0", v.shape(), encode(v.primary())["dtype"], v.trainable(),
                      v.components().size(), names});
}

CASE("variable/unnamed") {
  return Json::array({variable(two(), 1).name() + ":0", variable(one_device(), 1).name() + ":0"});
}

CASE("variable/shape_of_scalar") {
  const Strategy s = two();
  return Json::array({variable(s, 1).shape(), variable(s, vector({1, 2}).reshape({1, 2})).shape(),
                      variable(s, at::zeros({0})).shape()});
}

}  // namespace
}  // namespace cohort::oracle::misc_cases
