// Distributed values, run, the merging of results and merge_call: rules 3, 4 and 5.

#include <atomic>
#include <mutex>

#include "tests/oracle/oracle.h"
#include "tests/oracle/strategies.h"

namespace cohort::oracle::run_merge_cases {
namespace {

ORACLE_THEME("run_merge");

/// A Python integer that became a tensor.
Tensor integer(std::int64_t value) { return scalar(static_cast<double>(value), at::kInt); }

// Values.

CASE("values/from_function_scalar") {
  return encode(three().distribute_values_from_function(
      [](const ValueContext& context) { return scalar(context.replica_id_in_sync_group * 10); }));
}

CASE("values/from_function_tuple") {
  return encode(two().distribute_values_from_function([](const ValueContext& context) {
    const int r = context.replica_id_in_sync_group;
    return std::tuple{integer(r), integer(2 * r), integer(3 * r)};
  }));
}

CASE("values/from_function_dict") {
  return named({"a", "b"}, three().distribute_values_from_function([](const ValueContext& context) {
    const int r = context.replica_id_in_sync_group;
    return std::pair{integer(r), std::vector{integer(r), integer(r * r + 1)}};
  }));
}

CASE("values/from_function_none") {
  return encode(two().distribute_values_from_function(
      [](const ValueContext&) { return std::optional<Tensor>(); }));
}

Json context_of_values(const Strategy& strategy) {
  return encode(strategy.distribute_values_from_function([](const ValueContext& context) {
    return at::tensor({context.replica_id_in_sync_group, context.num_replicas_in_sync}, at::kInt);
  }));
}

CASE("values/from_function_one_device") { return context_of_values(one_device()); }
CASE("values/from_function_default") { return context_of_values(default_strategy()); }
CASE("values/from_function_one_device_mirrored") { return context_of_values(mirrored(1)); }

CASE("values/from_function_differing_shapes") {
  return encode(two().distribute_values_from_function([](const ValueContext& context) {
    return at::arange(context.replica_id_in_sync_group + 1, at::kInt);
  }));
}

CASE("values/local_results_plain") { return encode(two().local_results(scalar(4))); }

CASE("values/local_results_list_without_distributed") {
  return encode(two().local_results(std::vector{scalar(1), scalar(2)}));
}

CASE("values/local_results_tuple_of_per_replica") {
  const Strategy s = two();
  return encode(s.local_results(std::tuple{per(s, {1, 2}), per(s, {3, 4})}));
}

CASE("values/local_results_python_string") {
  return encode(two().local_results(std::string("abc")));
}

CASE("values/local_results_one_device_list") {
  return encode(one_device().local_results(std::vector{scalar(1), scalar(2)}));
}

CASE("values/local_results_variable") {
  const Strategy s = two();
  const auto results = s.local_results(variable(s, 2));
  return encode(std::tuple{results.size(), results[0], results[1]});
}

CASE("values/local_results_empty_list") {
  return encode(two().local_results(std::vector<Tensor>()));
}

CASE("values/per_replica_as_tensor_default") { return encode(per(two(), {1, 2}).local()); }
CASE("values/per_replica_add_outside") { return encode(per(two(), {1, 2}).local() + 1); }

CASE("values/per_replica_captured_in_replica") {
  const Strategy s = two();
  const auto captured = per(s, {1, 2});
  return encode(s.run([&] { return captured.local() + 1; }));
}

CASE("values/repr") { return cat(PerReplica<int>({1, 2})); }

CASE("values/nest_map_per_replica") {
  const Strategy s = two();
  return encode(s.run([](const Tensor& x) { return x * 2; }, per(s, {1, 2})));
}

CASE("values/delegate") {
  const Mirrored<int> d({7, 8});
  return encode(std::tuple{d + 1, d > 7, d % 4, -d, 1 - d});
}

CASE("values/value_container_variable") {
  const Strategy s = two();
  const Variable v = variable(s, 2);
  return s.extended().value_container(v.components()[1]) == v;
}

CASE("values/value_container_tensor") {
  return !two().extended().value_container(scalar(1)).has_value();
}

CASE("values/value_container_per_replica_component") {
  const Strategy s = two();
  return !s.extended().value_container(per(s, {1, 2}).values()[0]).has_value();
}

// run

CASE("run/ids_plus_one") {
  return encode(two().run([] { return rid() + 1; }));
}

CASE("run/chain_one_device") {
  const Strategy s = one_device();
  const auto second = s.run(
      [](const Tensor& x) {
        return std::map<std::string, Tensor>{{"a", x * 2}, {"b", x * x}};
      },
      scalar(4));
  const auto third = s.run([](const Tensor& b, const Tensor& a) { return a + 2 * b + 2; },
                           second.at("b"), second.at("a"));
  return encode(std::tuple{second, third});
}

CASE("run/args_list") {
  const Strategy s = two();
  return encode(s.run([](const Tensor& x, double y) { return x + y; }, per(s, {1, 2}), 10.));
}

NOT_EXPRESSIBLE("run/args_per_replica_directly", "arguments of run are C++ arguments, not a list");

CASE("run/plain_tensor_not_split") {
  return encode(two().run([](const Tensor& x) { return x * 1; }, vector({1, 2, 3, 4})));
}

CASE("run/nested_args") {
  const Strategy s = two();
  const auto first = std::pair{per(s, {1, 2}), std::vector{per(s, {10, 20})}};
  const std::map<std::string, PerReplica<Tensor>> second{{"k", per(s, {100, 200})}};
  return encode(
      s.run([](const auto& a, const auto& d) { return a.first + a.second[0] + d.at("k"); }, first,
            second));
}

DIFFERS("run/order_sequential", "4.3: replicas run at the same time, so there is no order",
        {"end0", "end1", "end2", "start0", "start1", "start2"}) {
  std::mutex mutex;
  std::vector<std::string> events;
  const auto note = [&](const char* what) {
    const std::lock_guard lock(mutex);
    events.push_back(cat(what, id()));
  };
  three().run([&] {
    note("start");
    note("end");
  });
  std::sort(events.begin(), events.end());
  return events;
}

CASE("run/returns_none") {
  static_assert(std::is_void_v<decltype(two().run([] {}))>);
  two().run([] {});
  return nullptr;
}

CASE("run/returns_python_int") {
  return encode(two().run([] { return 5; }));
}
CASE("run/returns_different_python_ints") {
  return encode(two().run([] { return id(); }));
}
CASE("run/returns_string_equal") {
  return encode(two().run([] { return std::string("ab"); }));
}
CASE("run/returns_equal_but_separate_tensors") {
  return encode(two().run([] { return scalar(7); }));
}

DIFFERS("run/returns_component_0_on_all", "0.2: a variable's component is a plain tensor",
        per_replica({3, 3})) {
  const Strategy s = two();
  const Variable v = variable(s, 3);
  return encode(s.run([&] { return v.components()[0].detach(); }));
}

DIFFERS("run/returns_components_swapped", "0.2: a variable's component is a plain tensor",
        per_replica({3, 3})) {
  const Strategy s = two();
  const Variable v = variable(s, 3);
  return encode(s.run([&] { return v.components()[1 - id()].detach(); }));
}

CASE("run/returns_tuple") {
  return encode(two().run([] { return std::tuple{rid(), rid() + 1}; }));
}

CASE("run/returns_list") {
  return encode(three().run([] { return std::tuple{rid(), std::vector{rid() * 2}}; }));
}

CASE("run/returns_dict_mixed") {
  return named({"x", "c", "n"}, two().run([] {
    return std::tuple{rid(), std::string("s"), std::optional<Tensor>()};
  }));
}

struct Point {
  Tensor x, y;
};

DIFFERS("run/returns_namedtuple", "0.2: a struct is a leaf, since its fields' types are fixed",
        Json::array({Json::array({encode(scalar(0)), encode(scalar(1))}),
                     Json::array({encode(scalar(1)), encode(scalar(2))})})) {
  const PerReplica<Point> points = two().run([] { return Point{rid(), rid() + 1}; });
  Json all = Json::array();
  for (const Point& point : points.values()) {
    all.push_back(Json::array({encode(point.x), encode(point.y)}));
  }
  return all;
}

NOT_EXPRESSIBLE("run/returns_ordered_dict", "C++ has no map that remembers the order of its keys");

CASE("run/returns_empty_tuple") {
  return encode(two().run([] { return std::tuple<>(); }));
}
CASE("run/returns_empty_list") {
  return encode(two().run([] { return std::vector<Tensor>(); }));
}
CASE("run/returns_empty_dict") {
  return encode(two().run([] { return std::map<std::string, Tensor>(); }));
}

CASE("run/returns_dict_extra_key_on_replica_1") {
  return encode(two().run([] {
    std::map<std::string, Tensor> result{{"a", scalar(1)}};
    if (id() == 1) result["b"] = scalar(2);
    return result;
  }));
}

CASE("run/returns_none_on_one_replica") {
  return encode(two().run([] { return id() ? std::nullopt : std::optional(scalar(1)); }));
}

CASE("run/one_device_mirrored_unwrapped") {
  return named({"a", "b"}, mirrored(1).run([] {
    return std::pair{scalar(1), std::vector{scalar(2)}};
  }));
}

CASE("run/one_device_returns_as_is") {
  return encode(one_device().run([](const Tensor& x) { return std::pair{x, 3}; }, scalar(1)));
}

CASE("run/differing_shapes") {
  return encode(two().run([] { return at::arange(id() + 1, at::kInt); }));
}

CASE("run/exception_in_replica_1") {
  return encode(two().run([] {
    if (id() == 1) throw ValueError("test", "boom");
    return scalar(1);
  }));
}

CASE("run/exception_both_replicas") {
  try {
    two().run([] { throw ValueError("test", cat("from ", id())); });
    return "no error";
  } catch (const ValueError& e) {
    if (failed_replica() != 0 || !std::string(e.what()).starts_with("[test] from 0"))
      return e.what();
    throw;
  }
}

/// TensorFlow's names end with the number of an operation's output.
std::string tensorflow_name(const Variable& variable) { return variable.name() + ":0"; }

CASE("run/variables_created_inside_names") {
  const Strategy s = two();
  return encode(s.local_results(s.run([] {
    return std::vector{tensorflow_name(Variable(1.f, {.name = "w"})),
                       tensorflow_name(Variable(1.f, {.name = "w"})),
                       tensorflow_name(Variable(2.f))};
  })));
}

CASE("run/variable_name_mismatch") {
  return encode(two().run([] { return Variable(1.f, {.name = cat("w", id(), "x")}); }));
}

CASE("run/variable_order_by_name") {
  const auto [a, b] = two().run([] {
    std::map<std::string, Variable> made;
    for (const char* name : id() == 0 ? std::array{"a", "b"} : std::array{"b", "a"}) {
      made.insert({name, Variable(1.f, {.name = name})});
    }
    return std::pair{made.at("a"), made.at("b")};
  });
  return encode(std::vector{tensorflow_name(a), tensorflow_name(b)});
}

CASE("run/variable_only_on_replica_1") {
  two().run([] {
    if (id() == 1) Variable(1.f, {.name = "solo"});
  });
  return nullptr;
}

CASE("run/devices_inside") {
  return encode(two().run([] { return get_replica_context().devices()[0]; }));
}

CASE("run/random_initializer_agrees") {
  const Strategy s = three();
  const auto scope = s.scope();
  const Variable v([] { return at::rand({4}); });
  const auto& all = v.components();
  return all[0].equal(all[1]) && all[1].equal(all[2]);
}

CASE("run/traced_equal_results") {
  const Tensor captured = scalar(7);
  return encode(two().run([&] { return captured; }));
}

CASE("run/traced_per_replica") {
  return encode(two().run([] { return rid() * 3; }));
}

CASE("run/per_replica_wrong_count") {
  return encode(three().run([](const Tensor& x) { return x; }, per(two(), {1, 2})));
}

DIFFERS("run/per_replica_too_many", "4.2: surplus components are an error too",
        fails("ValueError", "3 components")) {
  return encode(two().run([](const Tensor& x) { return x + 0; }, per(three(), {1, 2, 3})));
}

CASE("regroup/single") { return encode(nest::merge(std::vector{std::tuple{1, std::vector{2}}})); }

CASE("select/replica_1") {
  return named({"a", "b"}, nest::select(std::pair{PerReplica<int>({1, 2}), 3}, 1, 2));
}

// merge_call

Tensor sum_of(const Strategy& strategy, const PerReplica<Tensor>& x) {
  return at::stack(strategy.local_results(x)).sum(0);
}

Json sum_example(const Strategy& strategy) {
  return encode(strategy.run([] {
    const Tensor v = 3 + rid();
    return merge_call([](Strategy& s, const PerReplica<Tensor>& x) { return sum_of(s, x); }, v) + v;
  }));
}

CASE("merge_call/sum_example") { return sum_example(two()); }
CASE("merge_call/sum_example_3") { return sum_example(three()); }

CASE("merge_call/called_once") {
  std::atomic<int> calls = 0;
  three().run([&] { merge_call([&](Strategy&) { ++calls; }); });
  return calls.load();
}

DIFFERS("merge_call/arg_kinds", "0.2: PerReplica arguments, always",
        Json::array({per_replica({0, 1}), per_replica({1, 1}), encode(PerReplica<int>({5, 5}))})) {
  const Tensor captured = scalar(1);
  Json seen;
  two().run([&] {
    merge_call(
        [&](Strategy&, const PerReplica<Tensor>& a, const PerReplica<Tensor>& b,
            const PerReplica<int>& c) {
          seen = {encode(a), encode(b), encode(c)};
        },
        rid(), captured, 5);
  });
  return seen;
}

CASE("merge_call/kwargs_nested") {
  Json seen = Json::array();
  two().run([&] {
    merge_call(
        [&](Strategy&, const auto& x) {
          seen.push_back(named({"a", "b"}, x));
        },
        std::pair{rid(), std::vector{rid()}});
  });
  return seen;
}

CASE("merge_call/strategy_argument") {
  const Strategy outer = two();
  return encode(outer.run([&] { return merge_call([&](Strategy& s) { return s == outer; }); }));
}

CASE("merge_call/returns_per_replica_split") {
  return encode(two().run([] {
    return merge_call([](Strategy&, const PerReplica<Tensor>& x) { return x; }, rid()) * 10;
  }));
}

CASE("merge_call/returns_nested") {
  return encode(two().run([] {
    return merge_call(
        [](Strategy&, const PerReplica<Tensor>& x) {
          return std::tuple{x, 5, std::vector{x}};
        },
        rid());
  }));
}

CASE("merge_call/variable_argument") {
  const Strategy s = two();
  const Variable v = variable(s, 1);
  Json seen = Json::array();
  s.run([&] { merge_call([&](Strategy&, const Variable& w) { seen.push_back(w == v); }, v); });
  return seen;
}

CASE("merge_call/different_counts_later") {
  return encode(two().run([] {
    const auto nothing = [](Strategy&) {};
    merge_call(nothing);
    if (id() == 1) merge_call(nothing);
    return 1;
  }));
}

CASE("merge_call/exception_in_merge_fn") {
  two().run([] { merge_call([](Strategy&) { throw ValueError("test", "in merge"); }); });
  return nullptr;
}

CASE("merge_call/exception_after") {
  two().run([] {
    merge_call([](Strategy&) {});
    throw ValueError("test", "after merge");
  });
  return nullptr;
}

CASE("merge_call/nested_in_merge_fn") {
  two().run([] { merge_call([](Strategy&) { merge_call([](Strategy&) {}); }); });
  return nullptr;
}

auto sum_in_merge_call() {
  return merge_call([](Strategy& s, const PerReplica<Tensor>& x) { return s.reduce("SUM", x); },
                    rid() + 1);
}

CASE("merge_call/reduce_inside_merge_fn") { return encode(two().run(sum_in_merge_call)); }
CASE("merge_call/replica_fn_is_whole_tf_function") { return encode(two().run(sum_in_merge_call)); }

CASE("merge_call/scope_inside_merge_fn") {
  return encode(two().run([] {
    return merge_call([](Strategy& s) {
      const auto scope = s.scope();
      return scalar(1);
    });
  }));
}

CASE("merge_call/variable_created_in_merge_fn") {
  return encode(two().run([] { return merge_call([](Strategy&) { return Variable(4.f); }); }));
}

CASE("merge_call/different_functions") {
  return encode(two().run([] {
    const std::function<std::string(Strategy&)> own = [r = id()](Strategy&) {
      return cat("fn", r);
    };
    return merge_call(own);
  }));
}

NOT_EXPRESSIBLE("merge_call/inside_nested_tf_function", "there are no graph functions");
NOT_EXPRESSIBLE("merge_call/inside_tf_cond_traced", "there are no graph functions");

const auto add_one = [](Strategy& s, const PerReplica<Tensor>& x) {
  return s.local_results(x)[0] + 1;
};

CASE("merge_call/one_device") {
  return encode(one_device().run([] { return merge_call(add_one, scalar(2)); }));
}

CASE("merge_call/default") { return encode(merge_call(add_one, scalar(2))); }

CASE("merge_call/two_successive") {
  return encode(three().run([] {
    const Tensor a = merge_call(
        [](Strategy& s, const PerReplica<Tensor>& x) { return sum_of(s, x); }, rid() + 1);
    const Tensor b =
        merge_call([](Strategy& s,
                      const PerReplica<Tensor>& x) { return at::stack(s.local_results(x)).prod(); },
                   a * (rid() + 1));
    return std::pair{a, b};
  }));
}

// Further nests, strategies and counts.

CASE("values/from_function_nested") {
  return encode(three().distribute_values_from_function([](const ValueContext& context) {
    const int r = context.replica_id_in_sync_group;
    return std::pair{std::tuple{scalar(r)}, std::map<std::string, Tensor>{{"k", integer(2 * r)}}};
  }));
}

CASE("values/from_function_dtypes") {
  return encode(two().distribute_values_from_function([](const ValueContext& context) {
    const int r = context.replica_id_in_sync_group;
    return std::tuple{scalar(r, at::kDouble), scalar(r, at::kLong), scalar(r > 0, at::kBool)};
  }));
}

CASE("values/from_function_cs") { return context_of_values(central()); }

CASE("values/from_function_length_mismatch") {
  return encode(two().distribute_values_from_function([](const ValueContext& context) {
    return std::vector<Tensor>(context.replica_id_in_sync_group + 1, scalar(1));
  }));
}

CASE("values/from_function_throws") {
  return encode(two().distribute_values_from_function([](const ValueContext& context) {
    if (context.replica_id_in_sync_group == 1) throw ValueError("test", "no value");
    return scalar(1);
  }));
}

CASE("values/from_function_empty_tensor") {
  return encode(two().distribute_values_from_function([](const ValueContext& context) {
    return at::zeros({0, context.replica_id_in_sync_group + 1});
  }));
}

CASE("values/local_results_dict") {
  const Strategy s = three();
  const auto nest = std::pair{per(s, {1, 2, 3}), std::vector{per(s, {4, 5, 6})}};
  Json all = Json::array();
  for (const auto& own : s.local_results(nest)) all.push_back(named({"a", "b"}, own));
  return all;
}

CASE("values/local_results_mixed") {
  const Strategy s = two();
  return encode(s.local_results(std::tuple{per(s, {1, 2}), scalar(9)}));
}

CASE("values/local_results_mirrored") {
  const Strategy s = two();
  const auto p = per(s, {1, 2});
  return encode(s.local_results(s.extended().reduce_to("SUM", p, p)));
}

const VariableOptions kOnReadSum{.synchronization = Synchronization::ON_READ,
                                 .aggregation = Aggregation::SUM};

CASE("values/local_results_on_read_variable") {
  const Strategy s = two();
  const Variable v = variable(s, 3, kOnReadSum);
  set_components(v, {3, 4});
  return encode(s.local_results(v));
}

CASE("values/local_results_default_list") {
  const std::map<std::string, std::vector<Tensor>> nest{{"a", {scalar(1)}}};
  return encode(default_strategy().local_results(nest));
}

CASE("values/local_results_m1") {
  const Strategy s = mirrored(1);
  return encode(s.local_results(s.run([] { return std::pair{rid(), std::vector{rid() + 1}}; })));
}

CASE("values/per_replica_in_scope") {
  const Strategy s = two();
  const auto p = per(s, {1, 2});
  const auto scope = s.scope();
  return encode(p.local());
}

CASE("values/per_replica_in_merge_call") {
  const Strategy s = two();
  const auto p = per(s, {1, 2});
  return encode(s.run([&] { return merge_call([&](Strategy&) { return p.local(); }); }));
}

CASE("values/mirrored_in_scope") {
  const Strategy s = two();
  const auto p = per(s, {1, 2});
  const auto m = s.extended().reduce_to("SUM", p, p);
  Json in_scope;
  {
    const auto scope = s.scope();
    in_scope = encode(m + 1);
  }
  return {in_scope, encode(s.run([&] { return m + 1; })), encode(m + 1)};
}

CASE("values/repr_three") { return cat(PerReplica<int>({7, 8, 9})); }
CASE("values/repr_mirrored") { return cat(Mirrored<int>({7, 8})); }
CASE("values/repr_one") { return cat(PerReplica<int>({7})); }

CASE("run/returns_deep_nest") {
  using Inner = std::map<std::string, Tensor>;
  using Outer = std::map<std::string, std::pair<Tensor, std::pair<Tensor, Inner>>>;
  return encode(three().run([] {
    return Outer{{"a", {rid(), {rid(), Inner{{"b", rid() * 2}}}}}};
  }));
}

CASE("run/returns_dtypes") {
  return encode(two().run([] {
    return std::tuple{rid(at::kDouble), rid(at::kLong), rid() > 0, rid(at::kHalf)};
  }));
}

CASE("run/returns_none_in_tuple") {
  return encode(two().run([] { return std::pair{rid(), std::optional<Tensor>()}; }));
}

CASE("run/returns_list_length_mismatch") {
  return encode(two().run([] { return std::vector<Tensor>(id() + 1, rid()); }));
}

CASE("run/returns_dict_other_keys") {
  return encode(two().run([] { return std::map<std::string, Tensor>{{cat("k", id()), rid()}}; }));
}

CASE("run/returns_nested_length_mismatch") {
  return encode(two().run([] {
    return std::map<std::string, std::vector<Tensor>>{{"a", std::vector<Tensor>(id() + 1, rid())}};
  }));
}

CASE("run/returns_variable") {
  const Strategy s = two();
  const Variable v = variable(s, 3);
  const Variable returned = s.run([&] { return v; });
  return {returned == v, encode(returned)};
}

CASE("run/returns_variable_in_nest") {
  const Strategy s = two();
  const Variable v = variable(s, 3);
  const auto [first, rest] = s.run([&] { return std::pair{v, std::pair{v, rid()}}; });
  return {first == v, rest.first == v, encode(rest.second)};
}

CASE("run/returns_on_read_variable") {
  const Strategy s = two();
  const Variable v = variable(s, 3, kOnReadSum);
  return s.run([&] { return v; }) == v;
}

CASE("run/returns_bool_and_float") {
  return encode(two().run([] { return std::pair{true, 0.5}; }));
}

CASE("run/returns_empty_tensor") {
  return encode(two().run([] { return at::zeros({0, 2}) + rid(); }));
}

CASE("run/returns_indexed_slices") {
  return encode(two().run([] {
    return at::sparse_coo_tensor(at::ones({1, 1}, at::kLong), rid().reshape({1, 1}), {3, 1});
  }));
}

CASE("run/mirrored_argument") {
  const Strategy s = two();
  const auto p = per(s, {1, 2});
  return encode(
      s.run([](const Tensor& x) { return x + rid(); }, s.extended().reduce_to("SUM", p, p)));
}

CASE("run/variable_argument") {
  const Strategy s = two();
  return encode(s.run([](const Variable& w) { return w + rid(); }, variable(s, 3)));
}

CASE("run/on_read_variable_argument") {
  const Strategy s = two();
  const Variable v = variable(s, 3, kOnReadSum);
  set_components(v, {3, 4});
  return encode(s.run([](const Variable& w) { return w + 0; }, v));
}

CASE("run/kwargs_mixed") {
  const Strategy s = two();
  return encode(s.run([](const Tensor& x, double y, const auto& z) { return x + y + z[0]; },
                      per(s, {1, 2}), 10., std::vector{per(s, {100, 200})}));
}

CASE("run/chain_3") {
  const Strategy s = three();
  const auto first = s.run([] { return rid() + 1; });
  const auto second = s.run(
      [](const Tensor& x) {
        return std::map<std::string, Tensor>{{"a", x * 2}, {"b", x * x}};
      },
      first);
  const auto third = s.run([](const Tensor& b, const Tensor& a) { return a + 2 * b + 2; },
                           second.at("b"), second.at("a"));
  return {encode(first), encode(second), encode(third)};
}

CASE("run/int64_argument") {
  const Strategy s = two();
  const auto p = s.distribute_values_from_function([](const ValueContext& context) {
    return at::arange(context.replica_id_in_sync_group + 1, at::kLong);
  });
  return encode(s.run([](const Tensor& x) { return x + 1; }, p));
}

DIFFERS("run/one_device_per_replica_of_two", "4.2: surplus components are an error",
        fails("ValueError", "2 components")) {
  return encode(one_device().run([](const Tensor&) { return 1; }, per(two(), {1, 2})));
}

CASE("run/m1_results") {
  return encode(mirrored(1).run([] {
    return std::pair{rid(), std::map<std::string, Tensor>{{"a", rid() + 1}}};
  }));
}

CASE("run/cs_results") {
  return encode(central().run([] { return std::pair{rid(), std::tuple{rid() + 1}}; }));
}

CASE("run/default_results") {
  return encode(default_strategy().run(
      [](const Tensor& x) {
        return std::pair{x + 1, std::optional<Tensor>()};
      },
      scalar(1)));
}

CASE("run/exception_type_kept") {
  two().run([] {
    if (id() == 0) throw KeyError("test", "zero");
    throw ValueError("test", "one");
  });
  return nullptr;
}

CASE("run/exception_in_replica_2_of_3") {
  return encode(three().run([] {
    if (id() == 2) throw NotImplementedError("test", "two");
    return rid();
  }));
}

CASE("run/usable_after_exception") {
  const Strategy s = two();
  const Json failed = attempt([&] { s.run([] { throw ValueError("test", "boom"); }); });
  return {failed, encode(s.run([] { return rid() + 1; }))};
}

CASE("run/inside_scope") {
  const Strategy s = two();
  const auto scope = s.scope();
  return encode(s.run([] { return rid(); }));
}

CASE("run/variable_created_inside_value") {
  const auto [value, made] = two().run([] {
    const Variable v(rid() + 5, {.name = "made"});
    return std::pair{v.read_value(), v};
  });
  return {encode(value), true, tensorflow_name(made)};
}

CASE("run/variable_created_twice_names") {
  const Strategy s = two();
  const auto make = [] { return Variable(1.f, {.name = "w"}); };
  return {tensorflow_name(s.run(make)), tensorflow_name(s.run(make))};
}

CASE("run/variable_indexed_names") {
  const auto [first, second] = two().run([] {
    return std::pair{Variable(0.f, {.name = "n_0"}), Variable(1.f, {.name = "n_1"})};
  });
  Json all = Json::array();
  for (const Variable& v : {first, second}) {
    all.push_back(Json::array({tensorflow_name(v), encode(v.read_value())}));
  }
  return all;
}

CASE("run/variable_missing_on_replica_1") {
  return tensorflow_name(two().run([] {
    const Variable a(1.f, {.name = "a"});
    if (id() == 0) Variable(1.f, {.name = "b"});
    return a;
  }));
}

CASE("merge_call/returns_dict") {
  return named({"a", "b", "c"}, two().run([] {
    return merge_call(
        [](Strategy&, const PerReplica<Tensor>& x) {
          return std::tuple{x, scalar(2), std::tuple{x}};
        },
        rid() + 1);
  }));
}

CASE("merge_call/returns_none") {
  two().run([] { merge_call([](Strategy&) {}); });
  return nullptr;
}

CASE("merge_call/returns_mirrored") {
  const Strategy s = three();
  const Variable v = variable(s, 0);
  return encode(s.run([&] {
    return merge_call(
               [&](Strategy& merged, const PerReplica<Tensor>& x) {
                 return merged.extended().reduce_to("SUM", x, v);
               },
               rid()) +
           rid();
  }));
}

CASE("merge_call/returns_variable") {
  const Strategy s = two();
  const Variable v = variable(s, 3);
  return encode(s.run([&] { return merge_call([&](Strategy&) { return v; }) + rid(); }));
}

CASE("merge_call/returns_local_results") {
  return encode(two().run([] {
    const auto all = merge_call(
        [](Strategy& s, const PerReplica<Tensor>& x) { return s.local_results(x); }, rid() + 1);
    return at::stack(all).sum(0);
  }));
}

CASE("merge_call/nested_args") {
  Json seen = Json::array();
  three().run([&] {
    merge_call(
        [&](Strategy&, const auto& a, const auto& b) {
          seen.push_back(Json::array({encode(a), encode(b)}));
        },
        std::pair{rid(), std::tuple{rid() * 2}}, std::map<std::string, Tensor>{{"k", rid()}});
  });
  return seen;
}

CASE("merge_call/args_length_mismatch") {
  return encode(two().run([] {
    return merge_call([](Strategy&, const auto&) { return 1; },
                      std::vector<Tensor>(id() + 1, rid()));
  }));
}

DIFFERS("merge_call/in_loop", "0.2: merge_call's arguments are PerReplica, also when all are equal",
        per_replica({12, 12})) {
  return encode(two().run([] {
    Tensor x = rid() + 1;
    for (int i = 0; i < 3; ++i) {
      x = merge_call([](Strategy& s, const PerReplica<Tensor>& y) { return s.reduce("SUM", y); },
                     x);
    }
    return x;
  }));
}

const auto one = [](Strategy&) { return 1; };

CASE("merge_call/never_on_replica_0") {
  return encode(two().run([] { return id() == 1 ? merge_call(one) : 1; }));
}

CASE("merge_call/two_of_three") {
  return encode(three().run([] { return id() < 2 ? merge_call(one) : 1; }));
}

CASE("merge_call/exception_caught_in_replica") {
  return encode(two().run([] {
    try {
      merge_call([](Strategy&) { throw ValueError("test", "in merge"); });
      return 1;
    } catch (const ValueError&) {
      return 5;
    }
  }));
}

CASE("merge_call/exception_on_replica_1_after") {
  two().run([] {
    merge_call([](Strategy&) {});
    if (id() == 1) throw KeyError("test", "one");
  });
  return nullptr;
}

CASE("merge_call/cs") {
  return encode(central().run([] {
    return merge_call([](Strategy& s, const PerReplica<Tensor>& x) { return sum_of(s, x); },
                      rid() + 1);
  }));
}

CASE("merge_call/m1") {
  return encode(mirrored(1).run([] {
    return merge_call([](Strategy& s, const PerReplica<Tensor>& x) { return s.reduce("SUM", x); },
                      rid() + 5);
  }));
}

CASE("merge_call/update_inside") {
  const Strategy s = two();
  const Variable v = variable(s, 1);
  s.run([&] {
    merge_call(
        [&](Strategy& merged, const PerReplica<Tensor>& x) {
          merged.extended().update(
              v, [](Tensor& copy, const Tensor& y) { copy.add_(y); },
              merged.extended().reduce_to("MEAN", x, v));
        },
        rid());
  });
  return encode(v);
}

CASE("merge_call/gather_inside") {
  return encode(two().run([] {
    return merge_call([](Strategy& s, const PerReplica<Tensor>& x) { return s.gather(x, 0); },
                      rid().reshape({1}));
  }));
}

CASE("merge_call/all_reduce_inside") {
  return encode(two().run([] {
    return merge_call(
        [](Strategy&, const PerReplica<Tensor>& x) {
          return get_replica_context().all_reduce("SUM", x.values()[0]);
        },
        rid());
  }));
}

CASE("merge_call/run_inside") {
  return encode(two().run(
      [] { return merge_call([](Strategy& s) { return s.run([] { return rid() + 1; }); }); }));
}

CASE("merge_call/nested_default") {
  return encode(merge_call([](Strategy&) { return merge_call(one); }));
}

CASE("merge_call/default_nest") {
  return encode(merge_call(
      [](Strategy&, const auto& x, const auto& y) {
        return std::pair{x.at("a").values()[0] + y[0].values()[0], x};
      },
      std::map<std::string, Tensor>{{"a", scalar(1)}}, std::vector{scalar(2)}));
}

CASE("regroup/two_tuples") {
  using Strings = std::tuple<std::string, std::string>;
  return encode(nest::merge(std::vector{Strings{"1", "2"}, Strings{"3", "4"}}));
}

CASE("regroup/nested") {
  using Each = std::map<std::string, std::pair<int, std::vector<int>>>;
  std::vector<Each> all;
  for (int i = 0; i < 3; ++i) all.push_back({{"a", {i, {2 * i + 10}}}});
  return encode(nest::merge(all));
}

CASE("select/replica_0_nested") {
  const auto nest =
      std::pair{PerReplica<int>({1, 2}), std::pair{PerReplica<int>({3, 4}), std::string("x")}};
  return encode(nest::select(nest, 0, 2));
}

}  // namespace
}  // namespace cohort::oracle::run_merge_cases
