// Contexts, scopes and their guards: rules 1 and 2.

#include <atomic>
#include <map>
#include <thread>

#include "cohort/variables/reading.h"
#include "tests/oracle/oracle.h"
#include "tests/oracle/strategies.h"

namespace cohort::oracle::contexts_cases {
namespace {

ORACLE_THEME("contexts");

/// Where the calling thread is.
Json state() {
  const Strategy strategy = get_strategy();
  const bool is_default = strategy == default_strategy();
  return {{"has_strategy", has_strategy()},
          {"cross_replica", in_cross_replica_context()},
          {"replica_context", replica_context_or_null() != nullptr},
          {"strategy", is_default ? "_DefaultDistributionStrategy" : strategy.extended().name()}};
}

Json fields(const ReplicaContext& replica) {
  return {{"id", replica.replica_id_in_sync_group()},
          {"n", replica.num_replicas_in_sync()},
          {"devices", encode(replica.devices())}};
}

Json fields(int id, int n, const char* device) {
  return {{"id", id},
          {"n", n},
          {"devices", Json::array({cat("/job:localhost/replica:0/task:0/device:", device)})}};
}

CASE("default/state") { return state(); }

CASE("default/replica_context_fields") {
  const ReplicaContext& replica = get_replica_context();
  return {{"id", replica.replica_id_in_sync_group()},
          {"id_type", "int"},
          {"n", replica.num_replicas_in_sync()}};
}

CASE("default/worker_devices") { return encode(get_strategy().extended().worker_devices()); }

DIFFERS("default/copy", "0.4: copies of a handle are the same strategy", true) {
  const Strategy copy = default_strategy();  // NOLINT(performance-unnecessary-copy-initialization)
  return copy == default_strategy();
}

DIFFERS("mirrored/copy", "0.4: copies of a handle are the same strategy", true) {
  const Strategy strategy = two();
  const Strategy copy = strategy;  // NOLINT(performance-unnecessary-copy-initialization)
  return copy == strategy;
}

NOT_EXPRESSIBLE("default/deepcopy", "copies of a handle are the same strategy (0.4)");
NOT_EXPRESSIBLE("mirrored/deepcopy", "copies of a handle are the same strategy (0.4)");
NOT_EXPRESSIBLE("default/second_instance", "the default strategy's class is not public");

CASE("scope/enter_returns_strategy") {
  const Strategy s = two();
  auto scope = s.scope();
  return scope.enter() == s;
}

CASE("run/state") {
  const Strategy s = two();
  return encode(s.local_results(s.run([] { return state(); })));
}

DIFFERS("run/replica_context_fields", "1.13: the replica's own device, flat; its id is a number",
        Json::array({fields(0, 2, "CPU:0"), fields(1, 2, "CPU:1")})) {
  const Strategy s = two();
  return encode(s.local_results(s.run([] { return fields(get_replica_context()); })));
}

DIFFERS("one_device/run_replica_context_fields", "1.13: the id is a number",
        Json::array({fields(0, 1, "CPU:0")})) {
  const Strategy s = one_device();
  return encode(s.local_results(s.run([] { return fields(get_replica_context()); })));
}

// update

CASE("update/state_and_id") {
  const Strategy s = two();
  Json seen = Json::array();
  s.extended().update(variable(s, 1), [&](Tensor&) {
    Json now = state();
    now["update_id"] = encode(update_replica_id());
    seen.push_back(now);
  });
  seen.push_back({{"after", encode(update_replica_id())}});
  return seen;
}

DIFFERS("update/id_kind_by_strategy", "0.2: the id is the copy's number in every strategy",
        Json::array({Json::array({0, true}), Json::array({0, false}), Json::array({0, true})})) {
  Json seen = Json::array();
  for (const Strategy& s : {one_device(), default_strategy(), central()}) {
    s.extended().update(variable(s, 1), [&](Tensor&) {
      seen.push_back(Json::array({encode(update_replica_id()), in_cross_replica_context()}));
    });
  }
  return seen;
}

CASE("update/nested_restores_id") {
  const Strategy s = two();
  const Variable v = variable(s, 1), w = variable(s, 2);
  Json seen = Json::array();
  s.extended().update(v, [&](Tensor&) {
    const auto before = update_replica_id();
    s.extended().update(w, [&](Tensor&) {
      seen.push_back(Json::array({"inner", encode(update_replica_id())}));
    });
    seen.push_back(Json::array({"outer", encode(before), encode(update_replica_id())}));
  });
  return seen;
}

// Guards.

CASE("guard/scope_inside_own_run") {
  const Strategy s = two();
  s.run([&] { const auto scope = s.scope(); });
  return nullptr;
}

CASE("guard/run_inside_other_scope") {
  const Strategy other = three();
  const auto scope = other.scope();
  two().run([] {});
  return nullptr;
}

CASE("guard/scope_inside_other_scope") {
  const Strategy other = three(), s = two();
  const auto outer = other.scope();
  const auto inner = s.scope();
  return nullptr;
}

CASE("guard/reduce_in_replica") {
  const Strategy s = two();
  return encode(s.run([&] { return s.reduce("SUM", scalar(1)); }));
}

CASE("guard/reduce_in_other_scope") {
  const Strategy other = three();
  const auto scope = other.scope();
  return encode(two().reduce("SUM", 1.));
}

CASE("guard/gather_in_replica") {
  const Strategy s = two();
  return encode(s.run([&] { return s.gather(vector({1}), 0); }));
}

CASE("guard/local_results_in_replica") {
  const Strategy s = two();
  return encode(s.run([&] { return s.local_results(scalar(1)).size(); }));
}

CASE("guard/run_of_other_strategy_inside_replica") {
  const Strategy other = three();
  return encode(two().run([&] { return other.run([] { return 1; }); }));
}

CASE("guard/scope_of_other_strategy_inside_replica") {
  const Strategy other = three();
  two().run([&] { const auto scope = other.scope(); });
  return nullptr;
}

/// The context of a run that is over.
ReplicaContext& stale_context(const Strategy& strategy) {
  std::atomic<ReplicaContext*> saved = nullptr;
  strategy.run([&] {
    if (id() == 0) saved = &get_replica_context();
  });
  return *saved;
}

CASE("guard/all_reduce_of_stale_context") {
  const Strategy s = two();
  return encode(stale_context(s).all_reduce("SUM", scalar(1)));
}

CASE("guard/merge_call_of_stale_context_in_scope") {
  const Strategy s = two();
  ReplicaContext& stale = stale_context(s);
  const auto scope = s.scope();
  stale.merge_call([](Strategy&) {});
  return nullptr;
}

CASE("guard/merge_call_of_other_replicas_context") {
  std::atomic<ReplicaContext*> saved = nullptr;
  two().run([&] {
    if (id() == 0) saved = &get_replica_context();
    while (!saved) std::this_thread::yield();
    saved.load()->merge_call([](Strategy&) {});
  });
  return nullptr;
}

CASE("guard/merge_call_of_other_strategys_context") {
  const Strategy other = three();
  ReplicaContext& stale = stale_context(other);
  two().run([&] { stale.merge_call([](Strategy&) {}); });
  return nullptr;
}

NOT_EXPRESSIBLE("guard/replica_context_bad_id", "an id is a number");

// Scopes.

DIFFERS("scope/reuse_after_exit", "2.1: a finished scope may be entered again",
        Json::array({true, false, true, false})) {
  Json seen = Json::array();
  const Strategy s = two();
  auto scope = s.scope();
  for (int times = 0; times < 2; ++times) {
    if (times > 0) scope.enter();
    seen.push_back(in_cross_replica_context());
    scope.exit();
    seen.push_back(in_cross_replica_context());
  }
  return seen;
}

CASE("scope/interleaved_a_b_a") {
  const Strategy s = two();
  Json inside;
  {
    auto a = s.scope();
    const auto b = s.scope();
    a.enter();
    inside = state();
    a.exit();
  }
  return Json::array({inside, state()});
}

DIFFERS("scope/exit_without_enter", "0.4: a scope is entered when it is made; 2.5: a second exit",
        fails("RuntimeError", "Variable scope nesting error")) {
  const Strategy s = two();
  auto scope = s.scope();
  scope.exit();
  scope.exit();
  return nullptr;
}

CASE("scope/thread_local") {
  const Strategy s = two();
  const auto scope = s.scope();
  Json seen = Json::array();
  std::thread([&] { seen.push_back(state()); }).join();
  return seen;
}

CASE("scope/exception_leaves_cleanly") {
  const Strategy s = two();
  try {
    const auto scope = s.scope();
    throw KeyError("test", "x");
  } catch (const KeyError&) {
  }
  return state();
}

CASE("set_strategy/basic") {
  set_strategy(two());
  const Json inside = state();
  set_strategy(std::nullopt);
  return Json::array({inside, state()});
}

CASE("set_strategy/replace") {
  const Strategy other = three();
  set_strategy(two());
  set_strategy(other);
  const bool replaced = get_strategy() == other;
  set_strategy(std::nullopt);
  return Json::array({replaced, state()});
}

CASE("set_strategy/same_inside_scope") {
  const Strategy s = two();
  const auto scope = s.scope();
  set_strategy(s);
  return nullptr;
}

CASE("set_strategy/variable_kind") {
  set_strategy(two());
  const Variable v(3.f);
  set_strategy(std::nullopt);
  return encode(v);
}

CASE("set_strategy/then_own_scope") {
  const Strategy s = two();
  set_strategy(s);
  Json inside;
  {
    const auto scope = s.scope();
    inside = state();
  }
  set_strategy(std::nullopt);
  return inside;
}

// variable_sync_on_read_context

Variable summed_on_read(const Strategy& strategy) {
  return variable(strategy, 1,
                  {.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::SUM});
}

Json sum_outside_and_inside() {
  const Strategy s = two();
  const Variable v = summed_on_read(s);
  return encode(s.run([&] {
    const Tensor outside = v + 10;
    const auto synchronized = variable_sync_on_read_context();
    return std::pair{outside, v + 10};
  }));
}

Json eleven_and_twelve() {
  return {{"kind", "tuple"}, {"items", {per_replica({11, 11}), per_replica({12, 12})}}};
}

DIFFERS("sync_on_read_context/values", "1.15: operators aggregate too", eleven_and_twelve()) {
  return sum_outside_and_inside();
}

DIFFERS("sync_on_read_context/traced_values", "1.15: operators aggregate too",
        eleven_and_twelve()) {
  return sum_outside_and_inside();
}

DIFFERS("sync_on_read_context/convert", "1.15: operators aggregate too",
        Json::array({per_replica({2, 2}), per_replica({2, 2}), per_replica({2, 2}),
                     per_replica({12, 12})})) {
  const Strategy s = two();
  const Variable v = summed_on_read(s);
  return encode(s.run([&] {
    const auto synchronized = variable_sync_on_read_context();
    return std::tuple{Tensor(v), at::clone(v), v * 1, at::add(v, 10)};
  }));
}

CASE("sync_on_read_context/value_call") {
  const Strategy s = two();
  const Variable v = summed_on_read(s);
  return encode(s.run([&] {
    const auto synchronized = variable_sync_on_read_context();
    return v.value();
  }));
}

// The old spelling get_cross_replica_context() gives the strategy or null.

CASE("get_cross_replica_context/in_scope") {
  const Strategy s = two();
  const auto scope = s.scope();
  return in_cross_replica_context() && get_strategy() == s;
}

CASE("get_cross_replica_context/outside") { return !in_cross_replica_context(); }

CASE("tf_function/scope_state_inside_traced_run") {
  const Strategy s = two();
  std::vector<Json> seen{state()};
  for (const Json& in_replica : s.local_results(s.run([] { return state(); }))) {
    seen.push_back(in_replica);
  }
  return seen;
}

// Variables under another strategy.

CASE("nested_scope/variable_under_other_strategy_error") {
  const Strategy other = three();
  const Variable v = variable(two(), 1);
  const auto scope = other.scope();
  return encode(v.assign(2));
}

CASE("nested_scope/read_under_other_strategy") {
  const Strategy other = three();
  const Variable v = variable(two(), 1);
  const auto scope = other.scope();
  return encode(v.read_value());
}

CASE("nested_scope/read_inside_other_strategys_run") {
  const Variable v = variable(two(), 1);
  return encode(three().run([&] { return v.read_value(); }));
}

// Further strategies and calls.

TABLE("state_in_scope/") {
  const Strategy s = strategy_named(input[0]);
  const auto scope = s.scope();
  return state();
}

TABLE("state_in_run/") {
  const Strategy s = strategy_named(input[0]);
  return encode(s.local_results(s.run([] { return state(); })));
}

TABLE("state_in_merge_call/") {
  Json seen = Json::array();
  strategy_named(input[0]).run([&] { merge_call([&](Strategy&) { seen.push_back(state()); }); });
  return seen;
}

TABLE("state_in_update/") {
  const Strategy s = strategy_named(input[0]);
  Json seen = Json::array();
  s.extended().update(variable(s, 1), [&](Tensor&) { seen.push_back(state()); });
  return seen;
}

CASE("default/merge_call_state") {
  Json seen;
  merge_call([&](Strategy& s) { seen = {state(), s == default_strategy()}; });
  return seen;
}

CASE("default/scope_in_other_scope") {
  const Strategy s = two();
  const auto outer = s.scope();
  const auto inner = default_strategy().scope();
  return nullptr;
}

CASE("default/scope_in_run") {
  two().run([] { const auto scope = default_strategy().scope(); });
  return nullptr;
}

CASE("default/run_in_other_scope") {
  const Strategy s = two();
  const auto scope = s.scope();
  return encode(default_strategy().run([] { return 1; }));
}

CASE("default/reduce_in_other_scope") {
  const Strategy s = two();
  const auto scope = s.scope();
  return encode(default_strategy().reduce("SUM", scalar(1)));
}

CASE("default/variable_in_other_scope_inside") {
  const Strategy s = two();
  const auto outer = default_strategy().scope();
  const auto inner = s.scope();
  return encode(Variable(1.f));
}

CASE("default/scope_twice") {
  const auto outer = default_strategy().scope();
  const auto inner = default_strategy().scope();
  return state();
}

/// What TensorFlow calls the class of a variable.
std::string class_of(const Variable& variable) {
  const std::string kind = variable.kind_name();
  return kind == "Variable" ? "ResourceVariable" : kind;
}

CASE("default/variable_in_scope") {
  const auto scope = default_strategy().scope();
  return class_of(Variable(1.f));
}

CASE("default/all_reduce_in_scope") {
  const auto scope = default_strategy().scope();
  return encode(get_replica_context().all_reduce("SUM", scalar(2)));
}

TABLE("guarded/") {
  const Strategy s = two();
  const auto p = per(s, {vector({1}), vector({2})});
  const Variable v = variable(s, 1);
  StrategyExtended& e = s.extended();
  const auto make = [] { return scalar(1); };
  const std::map<std::string, std::function<Json()>> calls{
      {"run", [&] { return encode(s.run(make)); }},
      {"reduce", [&] { return encode(s.reduce("SUM", p)); }},
      {"gather", [&] { return encode(s.gather(p, 0)); }},
      {"reduce_to", [&] { return encode(e.reduce_to("SUM", p, "CPU:0")); }},
      {"batch_reduce_to",
       [&] {
         const std::vector<std::pair<PerReplica<Tensor>, Destinations>> batch{{p, "CPU:0"}};
         return encode(e.batch_reduce_to("SUM", batch));
       }},
      {"call_for_each_replica", [&] { return encode(e.call_for_each_replica(make)); }},
      {"update_non_slot", [&] { return encode(e.update_non_slot(e.non_slot_devices({v}), make)); }},
      {"values",
       [&] {
         return encode(
             s.distribute_values_from_function([](const ValueContext&) { return scalar(1); }));
       }},
      {"local_results", [&] { return Json(s.local_results(p).size()); }},
      {"read", [&] { return encode(v.read_value()); }},
      {"assign", [&] { return encode(v.assign(2.)); }},
      {"non_slot_devices", [&] { return Json(e.non_slot_devices({v}).size()); }},
      {"created", [&] { return Json(e.variable_created_in_scope(v)); }},
      {"update", [&] { return encode(e.update(v, [](Tensor&) { return scalar(1); })); }},
      {"scope",
       [&] {
         const auto scope = s.scope();
         return Json();
       }},
  };
  const auto& call = calls.at(input[0]);
  const std::string where = input[1];
  const Strategy other =
      where.ends_with("_m2") ? s : strategy_named(where.substr(where.find('_') + 1));
  if (where.starts_with("run_")) return encode(other.run(call));
  const auto scope = other.scope();
  return call();
}

DIFFERS("guarded/values_in_run_m3", "1.9: what is made for all replicas is not made in one",
        fails("RuntimeError", "called in replica 0")) {
  const Strategy s = two();
  return encode(three().run([&] {
    return s.distribute_values_from_function([](const ValueContext&) { return scalar(1); });
  }));
}

CASE("guard/context_of_other_replica_all_reduce") {
  std::atomic<ReplicaContext*> saved = nullptr;
  return encode(two().run([&] {
    if (id() == 0) saved = &get_replica_context();
    while (!saved) std::this_thread::yield();
    return saved.load()->all_reduce("SUM", scalar(1));
  }));
}

CASE("guard/all_gather_of_stale_context") {
  const Strategy s = two();
  return encode(stale_context(s).all_gather(vector({1}), 0));
}

CASE("guard/stale_context_in_other_scope") {
  const Strategy s = two(), other = three();
  ReplicaContext& stale = stale_context(s);
  const auto scope = other.scope();
  stale.merge_call([](Strategy&) {});
  return nullptr;
}

CASE("guard/stale_context_fields") {
  const Strategy s = two();
  Json seen = Json::array();
  for (int times = 0; times < 2; ++times) {
    const ReplicaContext& stale = stale_context(s);
    seen.push_back(Json::array({stale.num_replicas_in_sync(), stale.strategy() == s}));
  }
  return seen;
}

CASE("guard/default_context_in_run") {
  ReplicaContext& standing = get_replica_context();
  two().run([&] { standing.merge_call([](Strategy&) {}); });
  return nullptr;
}

CASE("guard/default_context_in_scope") {
  ReplicaContext& standing = get_replica_context();
  const Strategy s = two();
  const auto scope = s.scope();
  return encode(standing.all_reduce("SUM", scalar(1)));
}

CASE("set_strategy/other_inside_scope") {
  const Strategy s = two();
  const auto scope = s.scope();
  set_strategy(three());
  return nullptr;
}

CASE("set_strategy/none_inside_scope") {
  const Strategy s = two();
  const auto scope = s.scope();
  set_strategy(std::nullopt);
  return nullptr;
}

CASE("set_strategy/none_outside") {
  set_strategy(std::nullopt);
  return state();
}

CASE("set_strategy/inside_run") {
  const Strategy other = three();
  two().run([&] { set_strategy(other); });
  return nullptr;
}

CASE("set_strategy/other_scope") {
  const Strategy other = three();
  set_strategy(two());
  const Json outcome = attempt([&] { const auto scope = other.scope(); });
  set_strategy(std::nullopt);
  return outcome;
}

CASE("set_strategy/run") {
  const Strategy s = two(), other = three();
  set_strategy(s);
  const Json own = attempt([&] { return s.run([] { return scalar(1) + 1; }); });
  const Json others = attempt([&] { return other.run([] { return scalar(1); }); });
  set_strategy(std::nullopt);
  return Json::array({own, others});
}

CASE("set_strategy/thread") {
  set_strategy(two());
  Json seen = Json::array();
  std::thread([&] { seen.push_back(state()); }).join();
  set_strategy(std::nullopt);
  return seen;
}

CASE("scope/nested_twice") {
  const Strategy s = two();
  Json seen = Json::array();
  {
    const auto outer = s.scope();
    {
      const auto inner = s.scope();
      seen.push_back(state());
    }
    seen.push_back(state());
  }
  seen.push_back(state());
  return seen;
}

CASE("scope/in_merge_call") {
  return encode(two().run([] {
    return merge_call([](Strategy& s) {
      const auto scope = s.scope();
      return in_cross_replica_context();
    });
  }));
}

CASE("scope/other_in_merge_call") {
  const Strategy other = three();
  two().run([&] { merge_call([&](Strategy&) { const auto scope = other.scope(); }); });
  return nullptr;
}

CASE("scope/in_update") {
  const Strategy s = two();
  Json seen = Json::array();
  s.extended().update(variable(s, 1), [&](Tensor&) {
    const auto scope = s.scope();
    seen.push_back(in_cross_replica_context());
  });
  return seen;
}

CASE("scope/variable_kinds") {
  Json seen = Json::array();
  for (const char* name : {"m2", "m1", "one", "cs", "default"}) {
    seen.push_back(class_of(variable(strategy_named(name), 1)));
  }
  return seen;
}

CASE("update/id_m3") {
  const Strategy s = three();
  Json seen = Json::array();
  s.extended().update(variable(s, 1),
                      [&](Tensor&) { seen.push_back(encode(update_replica_id())); });
  return seen;
}

CASE("update/id_after_exception") {
  const Strategy s = two();
  const Variable v = variable(s, 1);
  const Json failed = attempt(
      [&] { s.extended().update(v, [](Tensor&) { throw ValueError("test", "in update"); }); });
  return Json::array({failed, encode(update_replica_id()), state()});
}

CASE("update/run_inside") {
  const Strategy s = two();
  Json seen = Json::array();
  s.extended().update(variable(s, 1), [&](Tensor&) {
    seen.push_back(attempt([&] { return s.reduce("MEAN", scalar(3)); }));
  });
  return seen;
}

TABLE("sync_on_read_table/") {
  static const std::map<std::string, Aggregation> aggregations{
      {"NONE", Aggregation::NONE},
      {"SUM", Aggregation::SUM},
      {"MEAN", Aggregation::MEAN},
      {"ONLY_FIRST_REPLICA", Aggregation::ONLY_FIRST_REPLICA}};
  const Strategy s = strategy_named(input[1]);
  const Variable v = variable(
      s, 0,
      {.synchronization = Synchronization::ON_READ, .aggregation = aggregations.at(input[0])});
  return encode(s.run([&] {
    v.assign(rid() + 1);
    const auto synchronized = variable_sync_on_read_context();
    return at::add(v, 10);
  }));
}

CASE("sync_on_read_context/on_write_value") {
  const Strategy s = two();
  const Variable v = variable(s, 3);
  return encode(s.run([&] {
    const auto synchronized = variable_sync_on_read_context();
    return v.value().detach();
  }));
}

CASE("sync_on_read_context/read_value_call") {
  const Strategy s = two();
  const Variable v = summed_on_read(s);
  return encode(s.run([&] {
    const auto synchronized = variable_sync_on_read_context();
    return v.read_value();
  }));
}

}  // namespace
}  // namespace cohort::oracle::contexts_cases
