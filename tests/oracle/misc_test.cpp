// Moving averages, logs, the default, one-device and central-storage strategies: rules 1, 2, 13,
// 19 and 20.

#include "cohort/variables/moving_average.h"
#include "tests/base/captured_log.h"
#include "tests/base/scoped_environment.h"
#include "tests/oracle/oracle.h"
#include "tests/oracle/strategies.h"

namespace cohort::oracle {
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

PENDING("default/distribute_dataset_is_same_object", "dataset");
PENDING("default/datasets_from_function_context", "dataset");
PENDING("one/dataset_element_device", "dataset");

CASE("default/distribute_values") {
  return encode(
      default_strategy().distribute_values_from_function([](const ValueContext&) { return 7; }));
}

// One device.

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

}  // namespace
}  // namespace cohort::oracle
