// StrategyExtended: its properties, update and update_non_slot. Rule 9.

#include "tests/oracle/extended.h"

namespace cohort::oracle::extended_cases {
namespace {

ORACLE_THEME("extended");

TABLE("properties/") {
  const Strategy s = strategy_named(input[0]);
  const StrategyExtended& e = s.extended();
  const auto parameter_devices = [&] {
    std::vector<std::string> names;
    for (const Device& device : e.parameter_devices()) {
      names.push_back(input[0] == "cs" ? device.spelled() : device.name());
    }
    return names;
  };
  return {{"worker_devices", attempt([&] { return e.worker_devices(); })},
          {"parameter_devices", attempt(parameter_devices)},
          {"experimental_between_graph", attempt([&] { return e.between_graph(); })},
          {"experimental_should_init", attempt([&] { return e.should_init(); })},
          {"should_checkpoint", e.should_checkpoint()},
          {"should_save_summary", e.should_save_summary()},
          {"experimental_require_static_shapes", e.require_static_shapes()},
          {"n", s.num_replicas_in_sync()},
          {"cluster_resolver", s.cluster_resolver() ? Json(true) : Json()}};
}

// update: the function gets the copy as a tensor, which it changes in place.

const auto assign = [](Tensor& copy, const Tensor& x) { return copy.copy_(x).clone(); };
const auto assign_add = [](Tensor& copy, const Tensor& x) { return copy.add_(x).clone(); };
const auto assign_sub = [](Tensor& copy, const Tensor& x) { return copy.sub_(x).clone(); };
const auto assign_two = [](Tensor& copy) { copy.fill_(2); };

const VariableOptions kSum{.aggregation = Aggregation::SUM};

CASE("update/returns_tensors") {
  const Strategy s = two();
  return encode(s.extended().update(variable(s, 3), [](Tensor& copy) { return copy * 2; }));
}

CASE("update/group_false") {
  const Strategy s = two();
  const Variable v = variable(s, 3);
  return encode(s.extended().update_ungrouped(v, [](Tensor& copy) { return copy * 2; }));
}

CASE("update/group_false_nest") {
  const Strategy s = two();
  return named({"a", "b"}, s.extended().update_ungrouped(variable(s, 3), [](Tensor& copy) {
    return std::pair{copy.clone(), std::tuple{copy + 1}};
  }));
}

NOT_EXPRESSIBLE("update/returns_none_group_false", "a function that returns nothing gives nothing");

DIFFERS("update/args_per_replica_agg_none", "9.4: TypeError",
        Json::array({fails("TypeError"), fails("TypeError"), Json::array({1, 1})})) {
  const Strategy s = two();
  const Variable v = variable(s, 1);
  const auto p = per(s, {1, 2});
  const Json a = attempt([&] { return s.extended().update(v, assign, p); });
  const Json b = attempt([&] { return s.extended().update(v, assign_add, p); });
  return Json::array({a, b, components(v)});
}

DIFFERS("update/args_per_replica_on_read", "9.4: TypeError", fails("TypeError")) {
  const Strategy s = two();
  const Variable v = variable(
      s, 1, {.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::SUM});
  return encode(s.extended().update(v, assign, per(s, {1, 2})));
}

CASE("update/kwargs") {
  const Strategy s = two();
  const Variable v = variable(s, 1);
  const auto mean = s.extended().reduce_to("MEAN", per(s, {1, 2}), v);
  s.extended().update(
      v, [](Tensor& copy, const Tensor& x, double y) { copy.copy_(x + y); }, mean, 10.);
  return components(v);
}

CASE("update/args_variable") {
  const Strategy s = two();
  const Variable v = variable(s, 1), w = variable(s, 2);
  set_components(w, {0, 1});
  Json seen = Json::array();
  s.extended().update(
      v,
      [&](Tensor&, const Variable& x) {
        seen.push_back(Json::array({x.kind_name(), x.value().item<double>()}));
      },
      w);
  return seen;
}

CASE("update/fn_devices") {
  const Strategy s = two();
  const Variable v = variable(s, 1);
  Json seen = Json::array();
  s.extended().update(v, [&](Tensor&) { seen.push_back(encode(v.device())); });
  return seen;
}

CASE("update/not_distributed_variable") {
  two().extended().update(Variable(1.f), assign_two);
  return nullptr;
}

DIFFERS("update/other_strategys_variable", "9.4: ValueError as in 9.8", fails("ValueError")) {
  two().extended().update(variable(three(), 1), assign_two);
  return nullptr;
}

CASE("update/one_device_group_true") {
  const Strategy s = one_device();
  const Variable v = variable(s, 1);
  return encode(std::pair{s.extended().update(v, assign, scalar(5)), v});
}

CASE("update/cs") {
  const Strategy s = central();
  const Variable v = variable(s, 1, kSum);
  const auto sum = s.extended().reduce_to("SUM", per(s, {1, 2}), v);
  Json copies = Json::array();
  s.extended().update(
      v,
      [&](Tensor& copy, const Tensor& x) {
        copies.push_back("ResourceVariable");  // what TensorFlow calls a copy
        copy.copy_(x);
      },
      sum);
  return Json::array({class_of(sum), copies, Json::array({components(v)[0]})});
}

DIFFERS("update/cs_per_replica_arg", "9.4: TypeError",
        Json::array({fails("TypeError"), Json::array({1})})) {
  const Strategy s = central();
  const Variable v = variable(s, 1, kSum);
  const Json outcome = attempt([&] { return s.extended().update(v, assign, per(s, {1, 2})); });
  return Json::array({outcome, Json::array({components(v)[0]})});
}

NOT_EXPRESSIBLE("update/cs_plain_tensor_not_variable", "update takes a Variable");

CASE("update/in_replica_context") {
  const Strategy s = two();
  const Variable v = variable(s, 5);
  const Json outcome = attempt([&] {
    return s.run([&] {
      s.extended().update(v, assign_add, scalar(2));
      return s.extended().update(v, assign_add, scalar(1));
    });
  });
  return Json::array({outcome, components(v)});
}

TABLE("update/in_replica_") {
  const Strategy s = two();
  const Variable v = variable(s, 5);
  const std::function<Tensor(Tensor&, const Tensor&)> op =
      input[0] == "assign_add" ? std::function<Tensor(Tensor&, const Tensor&)>(assign_add)
                               : std::function<Tensor(Tensor&, const Tensor&)>(assign_sub);
  s.run([&] {
    s.extended().update(v, op, scalar(2));
    s.extended().update(v, op, scalar(1));
  });
  return components(v);
}

Json update_with_differing_values(VariableOptions options) {
  const Strategy s = two();
  const Variable v = variable(s, 5, std::move(options));
  const Json outcome =
      attempt([&] { return s.run([&] { return s.extended().update(v, assign_add, rid() + 1); }); });
  return Json::array({outcome, components(v)});
}

DIFFERS("update/in_replica_context_differing", "0.3: the replicas' values must be the same",
        Json::array({fails("TypeError"), Json::array({5, 5})})) {
  return update_with_differing_values({});
}

DIFFERS("update/in_replica_context_differing_sum", "0.3: the replicas' values must be the same",
        Json::array({fails("TypeError"), Json::array({5, 5})})) {
  return update_with_differing_values(kSum);
}

CASE("update/replica_ctx_internal_update") {
  const Strategy s = two();
  const Variable v = variable(s, 5);
  const Json outcome = attempt([&] {
    return s.run([&] {
      s.extended().update(v, assign_add, scalar(2));
      s.extended().update(v, assign_add, scalar(1));
      return v.read_value();
    });
  });
  return Json::array({outcome, components(v)});
}

// update_non_slot

CASE("non_slot/devices_one") {
  const Strategy s = one_device();
  return encode(s.extended().non_slot_devices({variable(s, 1)}));
}

DIFFERS("non_slot/devices_cs_smallest_name", "0.2: devices, in every strategy",
        Json::array({"/job:localhost/replica:0/task:0/device:CPU:2"})) {
  const Strategy s = central();
  return encode(s.extended().non_slot_devices(
      {variable(s, 1, {.name = "b"}), variable(s, 1, {.name = "a"})}));
}

CASE("non_slot/update_m2_bad_colocate") {
  return encode(two().extended().update_non_slot({"CPU:3"}, [] { return scalar(3); }));
}

CASE("non_slot/update_one") {
  const Strategy s = one_device();
  const auto devices = s.extended().non_slot_devices({variable(s, 1)});
  return encode(s.extended().update_non_slot(devices, [] { return scalar(3); }));
}

/// The components; the only copy of a variable that is stored once.
Json stored(const Variable& variable) {
  const Json all = components(variable);
  return variable.devices()->size() == 1 ? Json::array({all[0]}) : all;
}

CASE("update/assign_all") {
  const Strategy s = two();
  const Variable v = variable(s, 1);
  s.extended().update(v, [](Tensor& copy) { copy.fill_(7); });
  return components(v);
}

CASE("update/returns_nest_grouped") {
  const Strategy s = three();
  return encode(s.extended().update(variable(s, 3), [](Tensor& copy) {
    return std::pair{copy * 2, std::map<std::string, Tensor>{{"k", copy + 1}}};
  }));
}

const auto plus_one = [](Tensor& copy) { return copy + 1; };

CASE("update/group_false_3") {
  const Strategy s = three();
  const Variable v = variable(s, 1);
  set_components(v, {0, 1, 2});
  return encode(s.extended().update_ungrouped(v, plus_one));
}

Json group_false(const Json& input) {
  const Strategy s = strategy_named(input[0]);
  return encode(s.extended().update_ungrouped(variable(s, 3), plus_one));
}

TABLE("update_group_false/") { return group_false(input); }

DIFFERS("update_group_false/cs", "9.4: a list with exactly one element per replica",
        encode(std::vector{scalar(4), scalar(4)})) {
  return group_false(input);
}

TABLE("update_group_true/") {
  const Strategy s = strategy_named(input[0]);
  const Variable v = variable(s, 3);
  const Json result = encode(s.extended().update(v, plus_one));
  return Json::array({result, stored(v)});
}

CASE("update/on_read_sum") {
  const Strategy s = two();
  const Variable v = variable(s, 1, kOnReadSum);
  s.extended().update(v, [](Tensor& copy) { copy.fill_(5); });
  return Json::array({components(v), encode(v.read_value())});
}

CASE("update/mirrored_argument") {
  const Strategy s = two();
  const Variable v = variable(s, 1);
  const auto m = mirrored_sum(s);
  s.extended().update(
      v,
      [](Tensor& copy, const Tensor& x, const auto& nest) {
        copy.copy_(x + nest.at("k").first * nest.at("k").second);
      },
      m, std::map<std::string, std::pair<Mirrored<Tensor>, double>>{{"k", {m, 2.}}});
  return components(v);
}

DIFFERS("update/per_replica_in_nest", "9.4: TypeError",
        Json::array({fails("TypeError"), Json::array({1, 1})})) {
  const Strategy s = two();
  const Variable v = variable(s, 1);
  const Json outcome = attempt([&] {
    s.extended().update(
        v, [](Tensor& copy, const std::vector<Tensor>& x) { copy.copy_(x[0]); },
        std::vector{per(s, {1, 2})});
  });
  return Json::array({outcome, components(v)});
}

CASE("update/plain_tensor_argument") {
  const Strategy s = two();
  const Variable v = variable(s, vector({0, 0}, at::kDouble));
  s.extended().update(v, assign_add, vector({1, 2}, at::kDouble));
  return components(v);
}

CASE("update/throws_on_first") {
  const Strategy s = two();
  s.extended().update(variable(s, 1), [](Tensor&) { throw ValueError("test", "in update"); });
  return nullptr;
}

CASE("update/in_scope_of_other") {
  const Strategy s = two(), other = three();
  const Variable v = variable(s, 1);
  const auto scope = other.scope();
  s.extended().update(v, assign_two);
  return nullptr;
}

CASE("update/in_merge_call") {
  const Strategy s = two();
  const Variable v = variable(s, 5);
  s.run([&] {
    merge_call(
        [&](Strategy& merged, const PerReplica<Tensor>& x) {
          merged.extended().update(v, assign_add, merged.extended().reduce_to("SUM", x, v));
        },
        rid() + 1);
  });
  return components(v);
}

CASE("update/in_replica_one_device") {
  const Strategy s = one_device();
  const Variable v = variable(s, 5);
  const Json result = encode(s.run([&] { return s.extended().update(v, assign_add, scalar(2)); }));
  return Json::array({result, stored(v)});
}

CASE("update/in_replica_cs") {
  const Strategy s = central();
  const Variable v = variable(s, 5);
  s.run([&] { s.extended().update(v, assign_add, scalar(2)); });
  return Json::array({"ok", stored(v)});
}

CASE("update/scatter_in_update") {
  const Strategy s = two();
  const Variable v = variable(s, vector({1, 2, 3}));
  s.extended().update(v, [&](Tensor&) {
    v.scatter_add({.values = vector({10}), .indices = at::ones({1}, at::kLong)});
  });
  return components(v);
}

DIFFERS("update/one_of_plain", "9.4: ValueError as in 9.8", fails("ValueError", "must only be")) {
  one_device().extended().update(Variable(1.f), assign_two);
  return nullptr;
}

DIFFERS("update/default_of_mirrored", "9.4: ValueError as in 9.8",
        Json::array({fails("ValueError", "must only be"), Json::array({1, 1})})) {
  const Variable v = variable(two(), 1);
  const Json outcome = attempt([&] { default_strategy().extended().update(v, assign_two); });
  return Json::array({outcome, components(v)});
}

// update_non_slot

CASE("non_slot/devices_m2") {
  const Strategy s = two();
  return encode(s.extended().non_slot_devices({variable(s, 1)}));
}
CASE("non_slot/devices_m2_no_variables") { return encode(two().extended().non_slot_devices({})); }

std::vector<Device> non_slot_devices(const Strategy& s) {
  return s.extended().non_slot_devices({variable(s, 1)});
}

CASE("non_slot/update_m2") {
  const Strategy s = two();
  return encode(s.extended().update_non_slot(non_slot_devices(s), [] { return scalar(3); }));
}

CASE("non_slot/update_m2_group_false") {
  const Strategy s = two();
  return encode(update_non_slot_ungrouped(
      s.extended(), non_slot_devices(s),
      [](const Tensor& x) {
        return std::pair{x, x * 2};
      },
      mirrored_sum(s)));
}

CASE("non_slot/update_m3_nest") {
  const Strategy s = three();
  return encode(s.extended().update_non_slot(
      non_slot_devices(s),
      [](const Tensor& x) {
        return std::map<std::string, Tensor>{{"a", x + 1}};
      },
      scalar(2)));
}

CASE("non_slot/update_one_group_false") {
  const Strategy s = one_device();
  return encode(update_non_slot_ungrouped(
      s.extended(), non_slot_devices(s), [](const Tensor& x) { return x + 1; }, scalar(2)));
}

CASE("non_slot/update_cs") {
  const Strategy s = central();
  return encode(s.extended().update_non_slot(non_slot_devices(s), [] { return scalar(3); }));
}

DIFFERS("non_slot/update_per_replica", "9.6: as 9.4, TypeError", fails("TypeError")) {
  const Strategy s = two();
  return encode(s.extended().update_non_slot(
      non_slot_devices(s), [](const Tensor& x) { return x + 0; }, per(s, {1, 2})));
}

CASE("non_slot/update_in_replica") {
  const Strategy s = two();
  const auto devices = non_slot_devices(s);
  s.run([&] { s.extended().update_non_slot(devices, [] { return scalar(3); }); });
  return nullptr;
}

}  // namespace
}  // namespace cohort::oracle::extended_cases
