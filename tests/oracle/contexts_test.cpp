// Contexts, scopes and their guards: rules 1 and 2.

#include <atomic>
#include <thread>

#include "cohort/variables/reading.h"
#include "tests/oracle/oracle.h"
#include "tests/oracle/strategies.h"

namespace cohort::oracle {
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

}  // namespace
}  // namespace cohort::oracle
