// Distributed variables: each synchronization and aggregation in every context. Rule 6.

#include <map>

#include "tests/oracle/oracle.h"
#include "tests/oracle/strategies.h"

namespace cohort::oracle::variables_cases {
namespace {

ORACLE_THEME("variables");

using enum Synchronization;
using A = Aggregation;

Synchronization synchronization_named(const std::string& name) {
  static const std::map<std::string, Synchronization> names{
      {"AUTO", AUTO}, {"NONE", NONE}, {"ON_WRITE", ON_WRITE}, {"ON_READ", ON_READ}};
  return names.at(name);
}

A aggregation_named(const std::string& name) {
  static const std::map<std::string, A> names{{"NONE", A::NONE},
                                              {"SUM", A::SUM},
                                              {"MEAN", A::MEAN},
                                              {"ONLY_FIRST_REPLICA", A::ONLY_FIRST_REPLICA}};
  return names.at(name);
}

Variable make(const Strategy& strategy, Synchronization synchronization, A aggregation,
              const Tensor& value = scalar(1)) {
  return variable(strategy, value,
                  {.synchronization = synchronization, .aggregation = aggregation});
}

/// The variable of a table's row: ["m2", "ON_WRITE", "SUM", …].
Variable make(const Strategy& strategy, const Json& input, const Tensor& value = scalar(1)) {
  return make(strategy, synchronization_named(input[1]), aggregation_named(input[2]), value);
}

/// The components; the only copy of a variable that is stored once (6C).
Json stored(const Variable& variable) {
  const Json all = components(variable);
  return variable.devices()->size() == 1 ? Json::array({all[0]}) : all;
}

Json outcome(const Json& returned, const Variable& variable) {
  return {{"returned", returned}, {"components", stored(variable)}};
}
Json outcome(const Json& returned, const Json& components) {
  return {{"returned", returned}, {"components", components}};
}

std::string class_of(const Variable& variable) {
  const std::string kind = variable.kind_name();
  return kind == "Variable" ? "ResourceVariable" : kind;
}

// Creation.

TABLE("create/") {
  const Strategy s = strategy_named(input[0]);
  const auto dtype = input.size() > 3 ? decode_dtype(input[3].get<std::string>()) : at::kFloat;
  const Variable v = make(s, input, scalar(1, dtype));
  return {{"class", class_of(v)},
          {"sync", cat(v.synchronization())},
          {"agg", cat(v.aggregation())},
          {"trainable", v.trainable()},
          {"components", stored(v)}};
}

CASE("create/unknown_aggregation") {
  const auto median = static_cast<A>(9);
  return encode(variable(two(), 1, {.name = "vv", .aggregation = median}));
}

CASE("create/on_read_trainable_true") {
  const VariableOptions options{
      .trainable = true, .synchronization = ON_READ, .aggregation = A::SUM};
  return variable(two(), 1, options).trainable();
}

CASE("create/default_sync_agg_outside") {
  const Variable v(1.f);
  return {cat(v.synchronization()), cat(v.aggregation())};
}

CASE("create/fields") {
  const Variable v = variable(two(), at::zeros({2, 3}, at::kDouble), {.name = "v"});
  return {{"name", v.name() + ":0"},
          {"shape", v.shape()},
          {"dtype", encode(v.primary())["dtype"]},
          {"initialized", encode(scalar(v.is_initialized(), at::kBool))}};
}

// Assigning in replicas.

Tensor call(const Variable& v, const std::string& op, const AssignValue& value) {
  if (op == "assign") return v.assign(value);
  return op == "assign_add" ? v.assign_add(value) : v.assign_sub(value);
}

Json replica_assign(const Json& input) {
  const Strategy s = strategy_named(input[0]);
  const Variable v = make(s, input);
  const Tensor captured = scalar(5);
  const std::map<std::string, std::function<AssignValue()>> values{
      {"id", [] { return AssignValue(rid()); }},
      {"const", [] { return AssignValue(scalar(5)); }},
      {"py", [] { return AssignValue(5.); }},
      {"captured", [&] { return AssignValue(captured); }},
      {"zero", [] { return AssignValue(0); }}};
  const Json returned =
      attempt([&] { return s.run([&] { return call(v, input[3], values.at(input[4])()); }); });
  return outcome(returned, v);
}

TABLE("replica_assign/") { return replica_assign(input); }

const Json kNoAggregation =
    outcome(fails("ValueError", "You must specify an aggregation method"), Json{1, 1});
const Json kTen = outcome(per_replica({10, 10}), Json{10, 10});

DIFFERS("replica_assign/m2_ON_WRITE_NONE_assign_py", "6.13: NONE is an error", kNoAggregation) {
  return replica_assign(input);
}
DIFFERS("replica_assign/m2_ON_WRITE_NONE_add_id", "6.13: NONE is an error", kNoAggregation) {
  return replica_assign(input);
}
DIFFERS("replica_assign/m2_ON_WRITE_SUM_assign_py", "0.3: once per replica", kTen) {
  return replica_assign(input);
}
DIFFERS("replica_assign/m2_ON_WRITE_SUM_assign_captured", "0.3: once per replica", kTen) {
  return replica_assign(input);
}
DIFFERS("replica_assign/m2_ON_WRITE_SUM_add_py", "0.3: once per replica",
        outcome(per_replica({11, 11}), Json{11, 11})) {
  return replica_assign(input);
}
DIFFERS("replica_assign/cs_AUTO_SUM_add_py", "0.3: once per replica",
        outcome(per_replica({11, 11}), Json::array({11}))) {
  return replica_assign(input);
}

// Assigning outside of replicas.

Json cross_assign(const Json& input) {
  const Strategy s = strategy_named(input[0]);
  const Variable v = make(s, input);
  std::optional<Scope> scope;
  if (input[4] == "scope") scope.emplace(s.scope());
  const Json returned = attempt([&] { return call(v, input[3], scalar(3)); });
  return outcome(returned, v);
}

TABLE("cross_assign/") { return cross_assign(input); }

Json both(double value) { return outcome(encode(scalar(value)), Json{value, value}); }
const Json kNotAddable =
    outcome(fails("ValueError", "SyncOnReadVariable does not support"), Json{1, 1});
constexpr const char* kTensor = "0.2: assign gives a tensor in every context";

DIFFERS("cross_assign/m2_ON_WRITE_NONE_assign", kTensor, both(3)) { return cross_assign(input); }
DIFFERS("cross_assign/m2_ON_WRITE_SUM_add", kTensor, both(4)) { return cross_assign(input); }
DIFFERS("cross_assign/m2_ON_WRITE_MEAN_sub", kTensor, both(-2)) { return cross_assign(input); }
DIFFERS("cross_assign/m2_ON_WRITE_FIRST_add", kTensor, both(4)) { return cross_assign(input); }
DIFFERS("cross_assign/m2_ON_WRITE_NONE_add", kTensor, both(4)) { return cross_assign(input); }

DIFFERS("cross_assign/m2_ON_READ_NONE_sub", "6.23", kNotAddable) { return cross_assign(input); }
DIFFERS("cross_assign/m2_ON_READ_MEAN_add", "6.23", kNotAddable) { return cross_assign(input); }
DIFFERS("cross_assign/m2_ON_READ_MEAN_sub", "6.23", kNotAddable) { return cross_assign(input); }
DIFFERS("cross_assign/m2_ON_READ_FIRST_add", "6.23", kNotAddable) { return cross_assign(input); }

// Reading.

Json read_outside(const Variable& v) {
  return {attempt([&] { return v.read_value(); }), attempt([&] { return v.value(); }),
          attempt([&] { return v + 1; }), attempt([&] { return Tensor(v); }),
          attempt([&] { return static_cast<double>(v); })};
}

Json read_in_replicas(const Strategy& s, const Variable& v) {
  return {attempt([&] { return s.run([&] { return v.read_value(); }); }),
          attempt([&] { return s.run([&] { return v.value(); }); }),
          attempt([&] { return s.run([&] { return v + 1; }); }),
          attempt([&] { return s.run([&] { return Tensor(v); }); })};
}

TABLE("read/") {
  const Strategy s = strategy_named(input[0]);
  const Variable v = make(s, input);
  const std::string kind = v.kind_name();
  if (kind == "MirroredVariable" || kind == "SyncOnReadVariable") {
    int i = 0;
    for (const Tensor& component : v.components()) component.detach().fill_(i++);
  } else {
    v.assign(4);
  }
  if (input[3] == "replica") return read_in_replicas(s, v);
  std::optional<Scope> scope;
  if (input[3] == "cross") scope.emplace(s.scope());
  return read_outside(v);
}

/// A variable whose copies are 0 and 1.
Variable zero_and_one(const Strategy& s, Synchronization synchronization, A aggregation) {
  const Variable v = make(s, synchronization, aggregation);
  set_components(v, {0, 1});
  return v;
}

CASE("read/mirrored_prefers_current_device") {
  const Strategy s = two();
  const Variable v = zero_and_one(s, ON_WRITE, A::NONE);
  Json results;
  for (const char* device : {"CPU:1", "CPU:3"}) {
    const auto scope = s.scope();
    const DeviceScope current(device);
    results.push_back(encode(v.read_value()));
  }
  const DeviceScope current("CPU:1");
  results.push_back(encode(v + 0));
  return results;
}

CASE("read/mirrored_device_operator_in_scope") {
  const Strategy s = two();
  const Variable v = zero_and_one(s, ON_WRITE, A::NONE);
  const DeviceScope current("CPU:1");
  const std::vector outside{v.read_value(), v.value(), Tensor(v), Tensor(v).clone()};
  const auto scope = s.scope();
  const std::vector inside{v + 0, Tensor(v), v.value(), Tensor(v).clone()};
  return {encode(inside), encode(outside)};
}

CASE("read/on_read_first_under_device_1") {
  const Strategy s = two();
  const Variable v = zero_and_one(s, ON_READ, A::ONLY_FIRST_REPLICA);
  const auto scope = s.scope();
  const DeviceScope current("CPU:1");
  return encode(v.read_value());
}

CASE("read/on_read_int_sum") {
  const Variable v = make(two(), ON_READ, A::SUM, scalar(0, at::kInt));
  set_components(v, {3, 4});
  return encode(v.read_value());
}

// Special values.

DIFFERS("assign/on_read_int_sum_7_over_2", "6.22: the remainder goes to replica 0",
        Json{encode(scalar(7, at::kInt)), Json{4, 3}}) {
  const Variable v = make(two(), ON_READ, A::SUM, scalar(0, at::kInt));
  const Json returned = encode(v.assign(7));
  return {returned, components(v)};
}

CASE("assign/on_read_sum_1_over_3") {
  const Variable v = make(three(), ON_READ, A::SUM);
  v.assign(1.);
  return {components(v), encode(v.read_value())};
}

CASE("assign/per_replica_argument_on_read") {
  const Strategy s = two();
  const Variable v = make(s, ON_READ, A::SUM);
  const auto value = per(s, {1, 2});
  const auto scope = s.scope();
  const Json returned = attempt([&] { return v.assign(value); });
  return {returned, components(v)};
}

CASE("assign/from_other_mirrored_variable") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::MEAN), w = make(s, ON_WRITE, A::MEAN, scalar(4));
  const auto scope = s.scope();
  v.assign(w);
  return components(v);
}

/// What run returns for this change, and the components after it.
template <class F>
Json returned_and_components(const Strategy& s, const Variable& v, F&& change) {
  const Json returned = attempt([&] { return s.run(change); });
  return {returned, stored(v)};
}

CASE("assign/on_read_variable_argument_sum_in_replica") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::SUM), w = make(s, ON_READ, A::SUM, scalar(0));
  set_components(w, {2, 5});
  return returned_and_components(s, v, [&] { return v.assign(w); });
}

CASE("assign/self_expression_in_replica") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::MEAN);
  s.run([&] { v.assign(v * 2 + rid()); });
  return components(v);
}

CASE("assign/read_value_false_replica") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::SUM);
  return returned_and_components(s, v, [&] {
    const Tensor nothing = v.assign_add(rid(), {.read_value = false});
    return nothing.defined() ? std::optional(nothing) : std::nullopt;
  });
}

CASE("assign/wrong_shape_cross") {
  return encode(make(two(), ON_WRITE, A::NONE, vector({1, 2})).assign(vector({1, 2, 3})));
}

CASE("assign/wrong_shape_replica_sum") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::SUM, vector({1, 2}));
  return encode(s.run([&] { return v.assign(at::ones({3}) * rid()); }));
}

CASE("assign/int_sum_replica") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::SUM, scalar(1, at::kInt));
  s.run([&] { v.assign_add(rid(at::kInt) + 1); });
  return components(v);
}

CASE("assign/returned_type_replica_mean") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::MEAN);
  return encode(s.run([&] { return v.assign_add(rid()); }))["kind"];
}

CASE("assign/on_read_replica_then_cross") {
  const Strategy s = two();
  const Variable v = make(s, ON_READ, A::SUM, scalar(0));
  for (int step = 0; step < 2; ++step) s.run([&] { v.assign_add(rid() + 1); });
  return {components(v), encode(v.read_value())};
}

CASE("assign/traced_mean") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::MEAN);
  return returned_and_components(s, v, [&] { return v.assign_add(rid()); });
}

CASE("assign/update_context_through_container") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::SUM);
  s.extended().update(v, [&](Tensor&) { v.assign(10. * *update_replica_id() + 1); });
  return components(v);
}

CASE("assign/component_direct_write") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::NONE);
  set_components(v, {1, 9});
  return {encode(v.read_value()), encode(s.run([&] { return v.read_value(); }))};
}

CASE("assign/numpy_zero_sum_in_replica") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::SUM);
  const Tensor zero = scalar(0);
  return returned_and_components(s, v, [&] { return v.assign_add(zero); });
}

CASE("assign/numpy_separate_sum_in_replica") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::SUM);
  return returned_and_components(s, v, [&] { return v.assign_add(scalar(2)); });
}

DIFFERS("assign/python_number_differing_sum", "6.15: host numbers are reduced too",
        Json{per_replica({4, 4}), Json{4, 4}}) {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::SUM);
  return returned_and_components(s, v, [&] { return v.assign_add(id() + 1.); });
}

// Scatters.

Tensor scatter(const Variable& v, const std::string& op, const IndexedSlices& slices) {
  if (op == "scatter_add") return v.scatter_add(slices);
  if (op == "scatter_sub") return v.scatter_sub(slices);
  if (op == "scatter_mul") return v.scatter_mul(slices);
  if (op == "scatter_div") return v.scatter_div(slices);
  if (op == "scatter_min") return v.scatter_min(slices);
  if (op == "scatter_max") return v.scatter_max(slices);
  return v.scatter_update(slices);
}

IndexedSlices slices(const std::vector<double>& values, const std::vector<std::int64_t>& rows,
                     at::ScalarType dtype = at::kFloat) {
  return {vector(values, dtype), at::tensor(rows), {3}};
}

Json scatter_case(const Json& input) {
  const Strategy s = two();
  const std::string op = input[0];
  const auto dtype = decode_dtype(input[3].get<std::string>());
  const Variable v = make(s, ON_WRITE, aggregation_named(input[1]), decode_tensor(input[2], dtype));
  const bool adds = op == "scatter_add" || op == "scatter_sub";
  const Json returned = attempt([&] {
    return s.run([&] {
      const double r = id();
      return scatter(
          v, op,
          adds ? slices({r, r + 1}, {id(), id() + 1}, dtype) : slices({r + 2}, {id()}, dtype));
    });
  });
  return outcome(returned, v);
}

TABLE("scatter/") { return scatter_case(input); }

Json refused(double initial) {
  const Json row{initial, initial, initial};
  return outcome(fails("ValueError", "You must specify an aggregation method"), Json{row, row});
}

DIFFERS("scatter/sub_NONE", "6.18: NONE is an error", refused(0)) { return scatter_case(input); }
DIFFERS("scatter/min_NONE", "6.18: NONE is an error", refused(5)) { return scatter_case(input); }
DIFFERS("scatter/update_NONE", "6.18: NONE is an error", refused(0)) { return scatter_case(input); }

CASE("scatter/cross_max_SUM") {
  const Variable v = make(two(), ON_WRITE, A::SUM, vector({0, 0, 0}));
  return encode(v.scatter_max(slices({1, 2}, {0, 2})));
}

CASE("scatter/on_read") {
  const Strategy s = two();
  const Variable v = make(s, ON_READ, A::SUM, vector({0, 0, 0}));
  return encode(s.run([&] { return v.scatter_add(slices({1}, {0})); }));
}

CASE("scatter/on_read_cross") {
  const Variable v = make(two(), ON_READ, A::SUM, vector({0, 0, 0}));
  return encode(v.scatter_update(slices({1}, {0})));
}

// Stored once.

DIFFERS("cs/returned_is_single", "0.2: run gives a PerReplica in every strategy",
        Json{"PerReplica", 2, Json{encode(scalar(3)), encode(scalar(3))}}) {
  const Strategy s = central();
  const Variable v = make(s, AUTO, A::MEAN);
  const auto returned = s.run([&] { return v.assign_add(2.); });
  const auto results = s.local_results(returned);
  return {encode(returned)["kind"], results.size(), encode(results)};
}

CASE("cs/int_mean_in_replica") {
  const Strategy s = central();
  const Variable v = make(s, AUTO, A::MEAN, scalar(1, at::kInt));
  return returned_and_components(s, v, [&] { return v.assign_add(rid(at::kInt) + 1); });
}

CASE("cs/scatter_update_sum_in_replica") {
  const Strategy s = central();
  const Variable v = make(s, AUTO, A::SUM, vector({0, 0, 0}));
  s.run([&] { v.scatter_update(slices({id() + 1.}, {id()})); });
  return {"ok", stored(v)};
}

CASE("cs/update_in_scope_of_other") {
  const Variable v = make(central(), AUTO, A::SUM);
  const Strategy other = two();
  const auto scope = other.scope();
  return encode(v.assign(2.));
}

CASE("cs/one_compute_device_variable_class") {
  const Strategy s = CentralStorageStrategy({.compute_devices = {"CPU:1"}});
  const Variable v = variable(s, 1);
  return {class_of(v), encode(v.device())};
}

// Further combinations.

DIFFERS("replica_assign/m2_ON_WRITE_NONE_sub_const", "6.13: NONE is an error", kNoAggregation) {
  return replica_assign(input);
}
DIFFERS("replica_assign/m1_AUTO_NONE_assign_py", "6.13: NONE is an error",
        outcome(fails("ValueError", "You must specify an aggregation method"), Json::array({1}))) {
  return replica_assign(input);
}
DIFFERS("replica_assign/m2_ON_WRITE_MEAN_add_zero", "6.15: a scalar 0 is zeros too",
        outcome(per_replica({1, 1}), Json{1, 1})) {
  return replica_assign(input);
}
DIFFERS("replica_assign/m2_ON_WRITE_SUM_add_zero", "6.15: a scalar 0 is zeros too",
        outcome(per_replica({1, 1}), Json{1, 1})) {
  return replica_assign(input);
}
DIFFERS("cross_assign/m3_ON_WRITE_FIRST_assign", kTensor,
        outcome(encode(scalar(3)), Json{3, 3, 3})) {
  return cross_assign(input);
}

/// Does this to the copy that is updated, as a component's own method would.
void change_copy(Tensor& copy, const std::string& op, double value) {
  if (op == "assign") copy.fill_(value);
  if (op == "assign_add") copy.add_(value);
  if (op == "assign_sub") copy.sub_(value);
}

TABLE("in_update/") {
  const Strategy s = strategy_named(input[0]);
  const Variable v = make(s, input);
  Json seen = Json::array();
  s.extended().update(v, [&](Tensor& copy) {
    change_copy(copy, input[3], 5);
    seen.push_back(encode(v.read_value())["value"]);
  });
  const Json after = attempt([&] { return v.read_value(); });
  return Json::array({seen, stored(v), after});
}

TABLE("container_in_update/") {
  const Strategy s = strategy_named(input[0]);
  const Variable v = make(s, input);
  s.extended().update(v, [&](Tensor&) { call(v, input[3], 5.); });
  return stored(v);
}

/// The row [strategy, synchronization, aggregation, dtype, initial value, …].
Variable make_typed(const Strategy& s, const Json& input) {
  return make(s, input, decode_tensor(input[4], decode_dtype(input[3].get<std::string>())));
}

Json assign_dtype(const Json& input) {
  const Strategy s = strategy_named(input[0]);
  const Variable v = make_typed(s, input);
  return returned_and_components(
      s, v, [&] { return call(v, input[6], decode_tensor(input[5][id()], v.dtype())); });
}

TABLE("assign_dtype/") { return assign_dtype(input); }

Json cross_dtype(const Json& input) {
  const Strategy s = strategy_named(input[0]);
  const Variable v = make_typed(s, input);
  const auto value = [&]() -> AssignValue {
    if (!input[6].is_null()) {
      return decode_tensor(input[5], decode_dtype(input[6].get<std::string>()));
    }
    if (input[5].is_boolean()) return input[5].get<bool>();
    if (input[5].is_number_integer()) return input[5].get<int>();
    return input[5].get<double>();
  };
  const Json returned = attempt([&] { return call(v, input[7], value()); });
  return Json::array({returned.contains("error") ? returned : Json("ok"), stored(v)});
}

TABLE("cross_dtype/") { return cross_dtype(input); }

DIFFERS("cross_dtype/m2_ON_READ_SUM_int32_negative", "6.22: the remainder goes to replica 0",
        Json::array({"ok", Json{-4, -3}})) {
  return cross_dtype(input);
}
DIFFERS("cross_dtype/m3_ON_READ_SUM_int64", "6.22: the remainder goes to replica 0",
        Json::array({"ok", Json{4, 2, 2}})) {
  return cross_dtype(input);
}

DIFFERS("assign/per_replica_argument_on_write", "6.11: a TypeError in every strategy",
        Json::array({fails("TypeError", "Expected value to be mirrored"), Json{1, 1}})) {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::MEAN);
  const auto value = per(s, {1, 2});
  const auto scope = s.scope();
  const Json returned = attempt([&] { return v.assign(value); });
  return {returned, components(v)};
}

CASE("assign/mirrored_value_argument") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::NONE);
  const auto p = per(s, {1, 2});
  const auto sum = s.extended().reduce_to("SUM", p, p);
  const auto scope = s.scope();
  v.assign_add(sum);
  return components(v);
}

CASE("assign/mirrored_variable_argument_mean_in_replica") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::MEAN), w = make(s, ON_WRITE, A::NONE, scalar(4));
  return returned_and_components(s, v, [&] { return v.assign_add(w); });
}

CASE("assign/on_read_variable_argument_mean_in_replica") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::MEAN), w = make(s, ON_READ, A::SUM, scalar(0));
  set_components(w, {2, 5});
  return returned_and_components(s, v, [&] { return v.assign(w); });
}

DIFFERS("assign/on_read_variable_argument_cross", "6.11: copies never differ; 6.21: read as a sum",
        Json::array({"ok", Json{7, 7}})) {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::NONE), w = make(s, ON_READ, A::SUM, scalar(0));
  set_components(w, {2, 5});
  const auto scope = s.scope();
  v.assign(w);
  return {"ok", components(v)};
}

CASE("assign/in_merge_call") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::NONE);
  s.run([&] {
    merge_call([&](Strategy& merged,
                   const PerReplica<Tensor>& x) { v.assign_add(merged.reduce("SUM", x)); },
               rid() + 1);
  });
  return components(v);
}

CASE("assign/read_value_false_cross") {
  const Variable v = make(two(), ON_READ, A::NONE);
  const Json returned = attempt([&] { return v.assign(3., {.read_value = false}); });
  return {returned, components(v)};
}

CASE("assign/on_read_in_merge_call") {
  const Strategy s = two();
  const Variable v = make(s, ON_READ, A::MEAN, scalar(0));
  return encode(s.run([&] {
    v.assign(rid() + 1);
    return merge_call([&](Strategy&) { return v.read_value(); });
  }));
}

CASE("assign/three_in_a_row") {
  const Strategy s = three();
  const Variable v = make(s, ON_WRITE, A::MEAN);
  return returned_and_components(s, v, [&] {
    v.assign(rid());
    v.assign_add(rid());
    v.assign_sub(rid() * 0 + 1);
    return v.read_value();
  });
}

CASE("assign/in_other_strategys_run") {
  const Variable v = make(two(), ON_WRITE, A::SUM);
  return encode(three().run([&] { return v.assign(rid()); }));
}

CASE("assign/on_read_in_other_scope") {
  const Strategy other = three();
  const Variable v = make(two(), ON_READ, A::SUM);
  const auto scope = other.scope();
  return encode(v.read_value());
}

CASE("assign/only_replica_0") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::SUM);
  const Json returned = attempt([&] {
    s.run([&] {
      if (id() == 0) v.assign(rid());
    });
  });
  return {returned, components(v)};
}

DIFFERS("scatter/add_NONE", "6.18: NONE is an error", refused(0)) { return scatter_case(input); }
DIFFERS("scatter/mul_NONE", "6.18: NONE is an error",
        outcome(fails("ValueError", "You must specify an aggregation method"),
                Json{Json{2, 1, 1}, Json{2, 1, 1}})) {
  return scatter_case(input);
}
DIFFERS("scatter/div_NONE", "6.18: NONE is an error",
        outcome(fails("ValueError", "You must specify an aggregation method"),
                Json{Json{1, 6, 1}, Json{1, 6, 1}})) {
  return scatter_case(input);
}

TABLE("scatter_cross/") {
  const auto dtype = input.size() > 6 ? decode_dtype(input[6].get<std::string>()) : at::kFloat;
  const Variable v = make(strategy_named(input[0]), AUTO, aggregation_named(input[2]),
                          decode_tensor(input[3], dtype));
  const IndexedSlices rows{decode_tensor(input[4], dtype), decode_tensor(input[5], at::kLong)};
  const Json returned = attempt([&] { return scatter(v, input[1], rows); });
  return Json::array({returned.contains("error") ? returned : Json("ok"), stored(v)});
}

Json scatter_in(const Json& input) {
  const Strategy s = strategy_named(input[0]);
  const Variable v = make(s, AUTO, aggregation_named(input[2]), vector({4, 4, 4}));
  const Json returned = attempt(
      [&] { return s.run([&] { return scatter(v, input[1], slices({id() + 2.}, {id()})); }); });
  return Json::array({returned.contains("error") ? returned : Json("ok"), stored(v)});
}

TABLE("scatter_in/") { return scatter_in(input); }

Json scatter_in_refused() {
  return Json::array({fails("ValueError", "You must specify an aggregation method"),
                      Json::array({Json{4, 4, 4}})});
}

DIFFERS("scatter_in/m1_add_NONE", "6.18: NONE is an error", scatter_in_refused()) {
  return scatter_in(input);
}
DIFFERS("scatter_in/cs_div_NONE", "6.18: NONE is an error", scatter_in_refused()) {
  return scatter_in(input);
}

TABLE("on_read_scatter/") {
  const Strategy s = two();
  const Variable v = make(s, ON_READ, A::NONE, vector({0, 0, 0}));
  const auto change = [&] { return scatter(v, input[0], slices({1}, {0})); };
  if (input[1] == "replica") return encode(s.run(change));
  if (input[1] == "update") s.extended().update(v, [&](Tensor&) { change(); });
  return encode(change());
}

// Copies, creation in replicas, other variables in update context.

CASE("deepcopy/outside") {
  const Variable v = make(two(), ON_READ, A::SUM);
  set_components(v, {1, 2});
  const Variable w = v.deep_copy();
  v.assign(10.);
  return Json::array(
      {class_of(w), components(w), cat(w.aggregation()), cat(w.synchronization()), w.trainable()});
}

CASE("deepcopy/in_scope") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::MEAN, scalar(3));
  const auto scope = s.scope();
  const Variable w = v.deep_copy();
  w.assign(4.);
  return {components(v), components(w)};
}

CASE("deepcopy/in_replica") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::MEAN, scalar(3));
  return encode(s.run([&] { return v.deep_copy().read_value(); }));
}

CASE("deepcopy/in_other_scope") {
  const Strategy other = three();
  const Variable v = make(two(), ON_WRITE, A::MEAN, scalar(3));
  const auto scope = other.scope();
  return encode(v.deep_copy());
}

CASE("deepcopy/cs") {
  const Variable v = make(central(), AUTO, A::SUM, scalar(3));
  const Variable w = v.deep_copy();
  v.assign(5.);
  return {stored(v), stored(w)};
}

CASE("create_in_run/on_read") {
  const Variable v = two().run([] {
    const Variable made(0.f, {.synchronization = ON_READ, .aggregation = A::SUM});
    made.assign_add(rid() + 1);
    return made;
  });
  return {class_of(v), components(v), encode(v.read_value())};
}

CASE("create_in_run/sum") {
  const Variable v = three().run([] {
    const Variable made(vector({1, 1}), {.aggregation = A::SUM});
    made.assign_add(at::ones({2}) * (rid() + 1));
    return made;
  });
  return components(v);
}

CASE("create_in_run/initial_value_of_replica_0") {
  return components(three().run([] { return Variable(rid() + 7); }));
}

CASE("create_in_run/none_mode") {
  two().run([] { Variable(1.f, {.synchronization = NONE}); });
  return nullptr;
}

CASE("create_in_run/mean_int") {
  two().run([] { Variable(1, {.aggregation = A::MEAN}); });
  return nullptr;
}

CASE("create_in_merge_call/kind") {
  std::vector<Variable> made;
  two().run([&] {
    merge_call([&](Strategy&) {
      made.emplace_back(2.f, VariableOptions{.synchronization = ON_READ, .aggregation = A::MEAN});
    });
  });
  return {made.size(), class_of(made[0]), components(made[0])};
}

CASE("create/callable_called_once") {
  const Strategy s = three();
  const auto scope = s.scope();
  int calls = 0;
  const Variable v([&] {
    ++calls;
    return scalar(4);
  });
  return {calls, components(v)};
}

CASE("create/from_other_variable") {
  const Strategy s = two();
  const Variable v = make(s, ON_READ, A::SUM, scalar(0));
  set_components(v, {2, 5});
  const auto scope = s.scope();
  return components(Variable(Tensor(v)));
}

CASE("create/dtype_given") {
  const Variable v = variable(two(), scalar(1, at::kInt), {.dtype = at::kDouble});
  return {encode(v.primary())["dtype"], components(v)};
}

CASE("create/trainable_false") {
  const VariableOptions summed{
      .trainable = true, .synchronization = ON_READ, .aggregation = A::SUM};
  return Json::array({variable(two(), 1, {.trainable = false}).trainable(),
                      variable(central(), 1, summed).trainable(),
                      make(one_device(), ON_READ, A::SUM).trainable()});
}

CASE("create/empty") {
  const Variable v = make(two(), ON_WRITE, A::SUM, at::zeros({0, 2}));
  return {v.shape(), components(v)};
}

TABLE("other_in_update/") {
  const Strategy s = two();
  const Variable v = make(s, ON_WRITE, A::NONE);
  const Variable w = make(s, synchronization_named(input[0]), aggregation_named(input[1]));
  set_components(w, {10, 20});
  Json seen = Json::array();
  s.extended().update(v, [&](Tensor&) {
    seen.push_back(Json::array(
        {w.read_value().item<double>(), Tensor(w).item<double>(), (w + 1).item<double>()}));
    w.assign_add(1.);
  });
  return {seen, components(w)};
}

CASE("read/in_merge_call") {
  const Strategy s = two();
  const std::vector<Variable> all{make(s, ON_READ, A::SUM), make(s, ON_READ, A::ONLY_FIRST_REPLICA),
                                  make(s, ON_WRITE, A::NONE)};
  for (const Variable& v : all) set_components(v, {1, 2});
  return encode(s.run([&] {
    return merge_call([&](Strategy&) {
      std::vector<Tensor> values;
      for (const Variable& v : all) values.push_back(v.read_value());
      return values;
    });
  }));
}

CASE("read/on_read_vector_mean") {
  const Variable v = make(two(), ON_READ, A::MEAN, vector({1, 2}));
  v.components()[1].detach().copy_(vector({3, 6}));
  return {encode(v.read_value()), encode(v * 2)};
}

CASE("read/on_read_int64_sum") {
  const Variable v = make(three(), ON_READ, A::SUM, scalar(0, at::kLong));
  set_components(v, {3, 4, 5});
  return {encode(v.read_value()), encode(v + 1)};
}

CASE("read/on_read_bool_first") {
  const Variable v = make(two(), ON_READ, A::ONLY_FIRST_REPLICA, scalar(1, at::kBool));
  set_components(v, {1, 0});
  return encode(v.read_value());
}

CASE("read/on_read_bool_sum") {
  return encode(make(two(), ON_READ, A::SUM, scalar(1, at::kBool)).read_value());
}

CASE("assign/on_read_bool_sum") {
  const Variable v = make(two(), ON_READ, A::SUM, scalar(1, at::kBool));
  const Json returned = attempt([&] { return v.assign(false); });
  return {returned, components(v)};
}

}  // namespace
}  // namespace cohort::oracle::variables_cases
