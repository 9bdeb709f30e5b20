// reduce, all_reduce, gather, all_gather and their gradients: rules 7 and 8.

#include <map>

#include "tests/oracle/oracle.h"
#include "tests/oracle/strategies.h"

namespace cohort::oracle::reductions_cases {
namespace {

ORACLE_THEME("reductions");

/// The values of a table's row: one for each replica, or a plain one where the script takes that.
Json with_values(const Json& input, std::size_t at, std::size_t dtype_at,
                 const std::function<Tensor(const Strategy&, const Tensor&)>& single,
                 const std::function<Tensor(const Strategy&, const PerReplica<Tensor>&)>& each) {
  const Strategy strategy = strategy_named(input[0]);
  const auto dtype =
      input.size() > dtype_at ? decode_dtype(input[dtype_at].get<std::string>()) : at::kFloat;
  std::vector<Tensor> values;
  for (const Json& value : input[at]) values.push_back(decode_tensor(value, dtype));
  if (values.size() == 1) return encode(single(strategy, values[0]));
  return encode(each(strategy, per(strategy, values)));
}

Axis axis_of(const Json& json) {
  if (json.is_null()) return std::nullopt;
  if (json.is_array()) return json.get<std::vector<std::int64_t>>();
  return json.get<std::int64_t>();
}

TABLE("reduce/") {
  const auto reduce = [&](const Strategy& strategy, const auto& value) -> Tensor {
    return strategy.reduce(input[1].get<std::string>(), value, axis_of(input[3]));
  };
  return with_values(input, 2, 4, reduce, reduce);
}

NOT_EXPRESSIBLE("reduce/m2_MEAN_axis_string", "an axis is a number: compile_fail/arguments.cpp");
NOT_EXPRESSIBLE("reduce/m2_MEAN_axis_float", "an axis is a number: compile_fail/arguments.cpp");
NOT_EXPRESSIBLE("reduce/m2_string_SUM", "LibTorch has no tensors of strings");
NOT_EXPRESSIBLE("reduce/op_object_none_axis", "a ReduceOp is never null");
NOT_EXPRESSIBLE("reduce/op_is_variable_aggregation_axis0",
                "not a ReduceOp: compile_fail/arguments.cpp");
NOT_EXPRESSIBLE("reduce/result_device_scope",
                "LibTorch has one CPU memory: tensors there do not know their slot");

CASE("reduce/different_dtypes") {
  const Strategy s = two();
  return encode(s.reduce("SUM", per(s, {scalar(1), scalar(2, at::kInt)})));
}

CASE("reduce/nest_dict_none") {
  const Strategy s = two();
  const auto nest = std::pair{per(s, {1, 3}), std::vector{per(s, {10, 20})}};
  return named({"a", "b"}, s.reduce("SUM", nest));
}

DIFFERS("reduce/axis_positional_required", "21: the axis is optional", encode(scalar(3))) {
  const Strategy s = two();
  return encode(s.reduce("SUM", per(s, {1, 2})));
}

CASE("reduce/plain_tensor_SUM") { return encode(two().reduce("SUM", scalar(1))); }
CASE("reduce/plain_tensor_MEAN") { return encode(two().reduce("MEAN", scalar(1))); }
CASE("reduce/plain_tensor_SUM_axis0") { return encode(two().reduce("SUM", vector({1, 2}), 0)); }
CASE("reduce/plain_tensor_MEAN_axis0") { return encode(two().reduce("MEAN", vector({1, 2}), 0)); }
CASE("reduce/python_float_MEAN") { return encode(two().reduce("MEAN", 3.)); }
CASE("reduce/numpy_zero_SUM") { return encode(two().reduce("SUM", vector({0, 0}))); }

DIFFERS("reduce/python_zero_SUM", "6.15: a scalar 0 is zeros too", encode(scalar(0, at::kInt))) {
  return encode(two().reduce("SUM", 0));
}

CASE("reduce/plain_tensor_SUM_one_replica_mirrored") {
  return encode(mirrored(1).reduce("SUM", scalar(1)));
}

CASE("reduce/mirrored_value_MEAN") {
  const Strategy s = two();
  const auto sum = s.extended().reduce_to("SUM", per(s, {1, 2}), per(s, {0, 0}));
  return encode(s.reduce("MEAN", sum));
}

CASE("reduce/mirrored_variable_SUM") {
  const Strategy s = two();
  return encode(s.reduce("SUM", variable(s, 3)));
}

CASE("reduce/mirrored_variable_MEAN") {
  const Strategy s = two();
  return encode(s.reduce("MEAN", variable(s, 3)));
}

CASE("reduce/mirrored_variable_SUM_axis0") {
  const Strategy s = two();
  return encode(s.reduce("SUM", variable(s, vector({1, 2})), 0));
}

/// An ON_READ variable whose replicas have 3 and 4.
Variable three_and_four(const Strategy& strategy) {
  const Variable v = variable(
      strategy, 0, {.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::MEAN});
  set_components(v, {3, 4});
  return v;
}

CASE("reduce/on_read_variable_SUM") {
  const Strategy s = two();
  return encode(s.reduce("SUM", three_and_four(s)));
}

CASE("reduce/inside_tf_function") {
  const Strategy s = two();
  return encode(s.reduce("SUM", s.run([] { return rid() + 1; })));
}

// all_reduce

template <class F>
Json all_reduce(const Strategy& strategy, ReduceOp op, F value) {
  return encode(strategy.run([&] { return get_replica_context().all_reduce(op, value()); }));
}

auto nest_of_replica() {
  return std::pair{1 + 2 * rid(), std::vector{40 - 38 * rid(), 1 + 97 * rid()}};
}

Json all_reduce_nest(ReduceOp op) {
  return named({"a", "b"},
               two().run([&] { return get_replica_context().all_reduce(op, nest_of_replica()); }));
}

CASE("all_reduce/SUM_scalar") {
  return all_reduce(two(), "SUM", [] { return rid() + 1; });
}
CASE("all_reduce/MEAN_scalar_3") {
  return all_reduce(three(), "MEAN", [] { return rid(); });
}
CASE("all_reduce/nest_SUM") { return all_reduce_nest("SUM"); }
CASE("all_reduce/nest_MEAN") { return all_reduce_nest("MEAN"); }
CASE("all_reduce/ReduceOp_enum") {
  return all_reduce(two(), ReduceOp::SUM, [] { return rid(); });
}
CASE("all_reduce/lowercase") {
  return all_reduce(two(), "mean", [] { return rid(); });
}
CASE("all_reduce/bad_op") {
  return all_reduce(two(), "max", [] { return rid(); });
}
CASE("all_reduce/int32_SUM") {
  return all_reduce(two(), "SUM", [] { return rid(at::kInt) + 1; });
}
CASE("all_reduce/int32_MEAN") {
  return all_reduce(two(), "MEAN", [] { return rid(at::kInt); });
}
CASE("all_reduce/int64_MEAN") {
  return all_reduce(two(), "MEAN", [] { return rid(at::kLong); });
}
CASE("all_reduce/cs") {
  return all_reduce(central(), "SUM", [] { return rid() + 1; });
}

DIFFERS("all_reduce/python_number", "0.3: a number counts once per replica",
        per_replica({scalar(4, at::kDouble), scalar(4, at::kDouble)})) {
  return all_reduce(two(), "SUM", [] { return 2.; });
}

DIFFERS("all_reduce/python_number_MEAN", "0.3: a number counts once per replica",
        per_replica({scalar(2, at::kDouble), scalar(2, at::kDouble)})) {
  return all_reduce(two(), "MEAN", [] { return 2.; });
}

DIFFERS("all_reduce/captured_tensor_SUM", "7.10: summed like any other", per_replica({4, 4})) {
  const Tensor captured = scalar(2);
  return all_reduce(two(), "SUM", [&] { return captured; });
}

CASE("all_reduce/variable_SUM") {
  const Strategy s = two();
  const Variable v = variable(s, 3);
  return all_reduce(s, "SUM", [&] { return v; });
}

CASE("all_reduce/on_read_variable_SUM") {
  const Strategy s = two();
  const Variable v = three_and_four(s);
  return all_reduce(s, "SUM", [&] { return v; });
}

CASE("all_reduce/indexed_slices_SUM") {
  return all_reduce(two(), "SUM", [] {
    return at::sparse_coo_tensor(rid(at::kLong).reshape({1, 1}), (rid() + 1).reshape({1, 1}),
                                 {3, 1});
  });
}

CASE("all_reduce/shape_mismatch") {
  return all_reduce(two(), "SUM", [] { return at::ones({id() + 1}); });
}

CASE("all_reduce/none_leaf") {
  return all_reduce(two(), "SUM", [] { return std::vector{rid(), Tensor()}; });
}

CASE("all_reduce/default_context") {
  return encode(get_replica_context().all_reduce("SUM", vector({1, 2})));
}

CASE("all_reduce/in_cross_replica") {
  const Strategy s = two();
  const auto scope = s.scope();
  return encode(get_replica_context().all_reduce("SUM", scalar(1)));
}

CASE("all_reduce/only_one_replica_calls") {
  return encode(two().run(
      [] { return id() == 0 ? get_replica_context().all_reduce("SUM", scalar(1)) : scalar(0); }));
}

TABLE("all_reduce_grad/") {
  return encode(strategy_named(input[0]).run([&] {
    const Tensor x = (2 + rid()).requires_grad_();
    const ReduceOp op(input[1].get<std::string>());
    const Tensor y = get_replica_context().all_reduce(op, x) * (1 + 2 * rid());
    return std::tuple{y.detach(), torch::autograd::grad({y}, {x})[0]};
  }));
}

// gather

TABLE("gather/") {
  const auto gather = [&](const Strategy& strategy, const auto& value) -> Tensor {
    return strategy.gather(value, input[2].get<std::int64_t>());
  };
  return with_values(input, 1, 3, gather, gather);
}

DIFFERS("gather/m2_axis_neg1", "8.2: negative axes count from the end",
        encode(vector({1, 2, 3, 4}).reshape({1, 4}))) {
  const Strategy s = two();
  return encode(
      s.gather(per(s, {vector({1, 2}).reshape({1, 2}), vector({3, 4}).reshape({1, 2})}), -1));
}

DIFFERS("gather/m2_bool", "8.1: whatever LibTorch can concatenate",
        encode(vector({1, 0}, at::kBool))) {
  const Strategy s = two();
  return encode(s.gather(per(s, {vector({1}, at::kBool), vector({0}, at::kBool)}), 0));
}

DIFFERS("gather/nested", "8.1: leaf by leaf",
        Json{{"a", encode(vector({1, 2}))}, {"b", encode(vector({3, 4}))}}) {
  const Strategy s = two();
  const std::map<std::string, PerReplica<Tensor>> nest{{"a", per(s, {vector({1}), vector({2})})},
                                                       {"b", per(s, {vector({3}), vector({4})})}};
  return encode(s.gather(nest, 0));
}

CASE("gather/plain_tensor") { return encode(two().gather(vector({1, 2}), 0)); }

CASE("gather/indexed_slices") {
  const Strategy s = two();
  return encode(s.gather(s.run([] {
    return at::sparse_coo_tensor(at::zeros({1, 1}, at::kLong), at::ones({1}), {3});
  }),
                         0));
}

CASE("gather/in_tf_function") {
  const Strategy s = two();
  return encode(s.gather(per(s, {vector({1}), vector({2, 3})}), 0));
}

NOT_EXPRESSIBLE("gather/axis_string", "an axis is a number");
NOT_EXPRESSIBLE("gather/axis_none", "an axis is a number");

// all_gather

template <class F>
Json all_gather(const Strategy& strategy, F value) {
  return encode(strategy.run([&] { return get_replica_context().all_gather(value(), 0); }));
}

CASE("all_gather/vec") {
  return all_gather(two(), [] { return at::stack({rid(), rid() + 10}); });
}

CASE("all_gather/uneven") {
  return all_gather(three(), [] { return at::ones({id() + 1}) * rid(); });
}

CASE("all_gather/nested") {
  return named({"a", "b"}, two().run([] {
    return get_replica_context().all_gather(
        std::pair{rid().reshape({1}), std::tuple{(rid() * 2).reshape({1})}}, 0);
  }));
}

CASE("all_gather/scalar") {
  return all_gather(two(), [] { return rid(); });
}
CASE("all_gather/one_device_scalar") {
  return all_gather(one_device(), [] { return scalar(1); });
}
CASE("all_gather/int64") {
  return all_gather(two(), [] { return rid(at::kLong).reshape({1}); });
}
CASE("all_gather/cs") {
  return all_gather(central(), [] { return rid().reshape({1}); });
}

CASE("all_gather/default_context") {
  return encode(get_replica_context().all_gather(vector({1, 2}), 0));
}

CASE("all_gather_grad/m2") {
  return encode(two().run([] {
    const Tensor x = at::ones({2, 1}).requires_grad_();
    const Tensor y = get_replica_context().all_gather(x, 0) * (rid() + 1);
    return std::tuple{y.detach(), torch::autograd::grad({y}, {x}, {at::ones_like(y)})[0]};
  }));
}

CASE("all_gather_grad/m3_weighted") {
  return encode(three().run([] {
    const Tensor x = (rid() + 1).reshape({1}).requires_grad_();
    const Tensor gathered = get_replica_context().all_gather(x, 0);
    const Tensor y = (gathered * vector({1, 2, 4})).sum() * (rid() + 1);
    return std::tuple{y.detach(), torch::autograd::grad({y}, {x})[0]};
  }));
}

// Values that are not distributed, and variables.

Json with_plain(const Json& input, const auto& call) {
  const auto dtype = input.size() > 4 ? decode_dtype(input[4].get<std::string>()) : at::kFloat;
  return encode(call(strategy_named(input[0]), decode_tensor(input[2], dtype)));
}

TABLE("reduce_plain/") {
  return with_plain(input, [&](const Strategy& strategy, const Tensor& value) {
    return strategy.reduce(input[1].get<std::string>(), value, axis_of(input[3]));
  });
}

/// [1, 2]; an ON_READ variable has [1, 2] * (i + 1) on replica i.
Variable one_and_two(const Strategy& strategy, const std::string& synchronization,
                     const std::string& aggregation) {
  static const std::map<std::string, Synchronization> synchronizations{
      {"AUTO", Synchronization::AUTO},
      {"ON_WRITE", Synchronization::ON_WRITE},
      {"ON_READ", Synchronization::ON_READ}};
  static const std::map<std::string, Aggregation> aggregations{
      {"NONE", Aggregation::NONE},
      {"SUM", Aggregation::SUM},
      {"MEAN", Aggregation::MEAN},
      {"ONLY_FIRST_REPLICA", Aggregation::ONLY_FIRST_REPLICA}};
  const Variable v = variable(strategy, vector({1, 2}),
                              {.synchronization = synchronizations.at(synchronization),
                               .aggregation = aggregations.at(aggregation)});
  if (synchronization != "ON_READ") return v;
  int factor = 1;
  for (const Tensor& component : v.components()) component.detach().mul_(factor++);
  return v;
}

TABLE("reduce_variable/") {
  const Strategy s = strategy_named(input[0]);
  const Variable v = one_and_two(s, input[3], input[4]);
  return encode(s.reduce(input[1].get<std::string>(), v, axis_of(input[2])));
}

CASE("reduce/mirrored_value_SUM") {
  const Strategy s = two();
  return encode(s.reduce("SUM", s.extended().reduce_to("SUM", per(s, {1, 2}), per(s, {0, 0}))));
}

CASE("reduce/mirrored_value_SUM_axis0") {
  const Strategy s = two();
  const auto p = per(s, {vector({1, 2}), vector({2, 3})});
  return encode(s.reduce("SUM", s.extended().reduce_to("SUM", p, p), 0));
}

CASE("reduce/nest_MEAN_none") {
  const Strategy s = two();
  const auto integers = per(s, {scalar(1, at::kLong), scalar(2, at::kLong)});
  const auto nest = std::pair{
      per(s, {1, 4}), std::map<std::string, std::vector<PerReplica<Tensor>>>{{"a", {integers}}}};
  return encode(s.reduce("MEAN", nest));
}

DIFFERS("reduce/nest_axis0", "7.2: nests work leaf by leaf, with an axis too",
        encode(std::pair{scalar(6), scalar(9)})) {
  const Strategy s = two();
  const auto nest =
      std::pair{per(s, {vector({1}), vector({2, 3})}), per(s, {vector({4}), vector({5})})};
  return encode(s.reduce("SUM", nest, 0));
}

CASE("reduce/nest_one_device") {
  const auto nest = std::pair{scalar(1), std::tuple{scalar(2, at::kInt)}};
  return named({"a", "b"}, one_device().reduce("SUM", nest));
}

CASE("reduce/nest_one_replica_mirrored") {
  return encode(mirrored(1).reduce("MEAN", std::pair{scalar(1), std::vector{scalar(2, at::kInt)}}));
}

CASE("reduce/python_int_MEAN") { return encode(two().reduce("MEAN", 3)); }
CASE("reduce/python_int_SUM_one_device") { return encode(one_device().reduce("SUM", 3)); }

/// [[r + 1]] at row r % 2 of 3x1.
Tensor slices_of_replica() {
  return at::sparse_coo_tensor(at::full({1, 1}, id() % 2, at::kLong), (rid() + 1).reshape({1, 1}),
                               {3, 1});
}

CASE("reduce/indexed_slices_SUM") {
  const Strategy s = three();
  return encode(s.reduce("SUM", s.run(slices_of_replica)));
}

CASE("reduce/indexed_slices_MEAN") {
  const Strategy s = two();
  return encode(s.reduce("MEAN", s.run(slices_of_replica)));
}

/// The own one of a table's values.
Tensor own_of(const Json& values, const Json& input, std::size_t dtype_at) {
  const auto dtype =
      input.size() > dtype_at ? decode_dtype(input[dtype_at].get<std::string>()) : at::kFloat;
  return decode_tensor(values[id()], dtype);
}

TABLE("all_reduce_table/") {
  return encode(strategy_named(input[0]).run([&] {
    const ReduceOp op(input[1].get<std::string>());
    return get_replica_context().all_reduce(op, own_of(input[2], input, 3));
  }));
}

CASE("all_reduce/nest_mixed_dtypes") {
  return all_reduce(two(), "SUM", [] {
    return std::pair{rid() + 1, std::vector{rid(at::kDouble)}};
  });
}

CASE("all_reduce/nest_float_and_int32") {
  return all_reduce(two(), "SUM", [] { return std::pair{rid() + 1, rid(at::kInt)}; });
}

CASE("all_reduce/nest_3") {
  const auto nest = [] { return std::pair{rid(), std::tuple{at::stack({rid(), scalar(2)})}}; };
  const Json result =
      encode(three().run([&] { return get_replica_context().all_reduce("MEAN", nest()); }));
  const Json inner{{"c", result["items"][1]["items"][0]}};
  return {{"a", result["items"][0]}, {"b", inner}};
}

CASE("all_reduce/indexed_slices_MEAN") { return all_reduce(two(), "MEAN", slices_of_replica); }
CASE("all_reduce/indexed_slices_3") { return all_reduce(three(), "SUM", slices_of_replica); }

CASE("all_reduce/indexed_slices_lengths") {
  return all_reduce(two(), "SUM", [] {
    const int n = id() + 1;
    return at::sparse_coo_tensor(at::arange(n).reshape({1, n}), at::ones({n, 1}) * n, {3, 1});
  });
}

CASE("all_reduce/indexed_slices_and_dense") {
  return all_reduce(two(), "SUM", [] { return std::vector{rid() + 1, slices_of_replica()}; });
}

CASE("all_reduce/nest_one_device") {
  return named({"a", "b"}, one_device().run([] {
    return get_replica_context().all_reduce("MEAN",
                                            std::pair{scalar(1), std::vector{scalar(2, at::kInt)}});
  }));
}

CASE("all_reduce/empty_nest") {
  return all_reduce(two(), "SUM", [] { return std::vector<Tensor>(); });
}

CASE("all_reduce/dtypes_differ") {
  return all_reduce(two(), "SUM", [] { return scalar(1, id() == 0 ? at::kFloat : at::kInt); });
}

CASE("all_reduce/twice") {
  return all_reduce(two(), "SUM",
                    [] { return get_replica_context().all_reduce("SUM", rid() + 1); });
}

CASE("all_reduce_grad/nest") {
  return encode(two().run([] {
    const Tensor x = at::stack({rid() + 1, rid() + 2}).requires_grad_();
    const auto [a, b] = get_replica_context().all_reduce("MEAN", std::pair{x, x * x});
    const Tensor y = a.sum() + b.sum() * (rid() + 1);
    return std::tuple{y.detach(), torch::autograd::grad({y}, {x})[0]};
  }));
}

CASE("all_reduce_grad/variable") {
  const Strategy s = two();
  const Variable v = variable(s, 3);
  return encode(s.run([&] {
    const Tensor y = get_replica_context().all_reduce("SUM", v * (rid() + 1));
    return std::tuple{y.detach(), torch::autograd::grad({y}, {v.handle()})[0]};
  }));
}

DIFFERS("gather/m2_uint8", "8.1: whatever LibTorch can concatenate",
        encode(vector({1, 2, 3}, at::kByte))) {
  const Strategy s = two();
  return encode(s.gather(per(s, {vector({1}, at::kByte), vector({2, 3}, at::kByte)}), 0));
}

DIFFERS("gather/cs_scalar", "8.2: a ValueError, and 0.2: in every strategy", fails("ValueError")) {
  const Strategy s = central();
  return encode(s.gather(per(s, {1, 2}), 0));
}

CASE("gather/mirrored_variable") {
  const Strategy s = two();
  return encode(s.gather(variable(s, vector({1, 2})), 0));
}

CASE("gather/on_read_variable") {
  const Strategy s = two();
  const Variable v =
      variable(s, vector({0, 1}),
               {.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::MEAN});
  v.components()[1].detach().add_(2);
  return encode(s.gather(v, 0));
}

CASE("gather/mirrored_value") {
  const Strategy s = two();
  const auto p = per(s, {vector({1}), vector({2})});
  return encode(s.gather(s.extended().reduce_to("SUM", p, p), 0));
}

CASE("gather/of_run_results") {
  const Strategy s = three();
  return encode(s.gather(s.run([] { return at::stack({rid(), rid() * rid()}); }), 0));
}

Json all_gather_case(const Json& input) {
  return encode(strategy_named(input[0]).run([&] {
    return get_replica_context().all_gather(own_of(input[1], input, 3),
                                            input[2].get<std::int64_t>());
  }));
}

TABLE("all_gather_table/") { return all_gather_case(input); }

DIFFERS("all_gather_table/m2_bool", "8.1: whatever LibTorch can concatenate",
        per_replica({vector({1, 0}, at::kBool), vector({1, 0}, at::kBool)})) {
  return all_gather_case(input);
}

DIFFERS("all_gather_table/m2_axis_neg1", "8.2: negative axes count from the end",
        per_replica({vector({1, 2}).reshape({1, 2}), vector({1, 2}).reshape({1, 2})})) {
  return all_gather_case(input);
}

CASE("all_gather/indexed_slices") { return all_gather(two(), slices_of_replica); }
CASE("all_gather/indexed_slices_in_nest") {
  return all_gather(two(), [] { return std::vector{rid().reshape({1}), slices_of_replica()}; });
}

CASE("all_gather/nested_dtypes") {
  return all_gather(three(), [] {
    const Tensor integer = rid(at::kLong);
    return std::pair{rid().reshape({1}),
                     std::map<std::string, Tensor>{{"k", at::stack({integer, integer})}}};
  });
}

CASE("all_gather/in_cross_replica") {
  const Strategy s = two();
  const auto scope = s.scope();
  return encode(get_replica_context().all_gather(vector({1}), 0));
}

CASE("all_gather/only_one_replica_calls") {
  return encode(two().run(
      [] { return id() == 0 ? get_replica_context().all_gather(vector({1}), 0) : vector({0}); }));
}

TABLE("all_gather_grad/") {
  return encode(strategy_named(input[0]).run([&] {
    const Tensor x = own_of(input[1], input, 3).requires_grad_();
    const Tensor y =
        get_replica_context().all_gather(x, input[2].get<std::int64_t>()) * (rid() + 1);
    return std::tuple{y.detach(), torch::autograd::grad({y}, {x}, {at::ones_like(y)})[0]};
  }));
}

// Sparse rows in the other calls and strategies.

Json reduce_slices(const Strategy& s, ReduceOp op, const Axis& axis) {
  return encode(s.reduce(op, s.run(slices_of_replica), axis));
}

CASE("sparse/reduce_SUM_axis0") { return reduce_slices(two(), "SUM", 0); }
CASE("sparse/reduce_MEAN_axis0") { return reduce_slices(two(), "MEAN", 0); }
CASE("sparse/reduce_SUM_both_axes") { return reduce_slices(three(), "SUM", {0, 1}); }
CASE("sparse/reduce_one_device") { return reduce_slices(one_device(), "SUM", {}); }
CASE("sparse/reduce_cs") { return reduce_slices(central(), "MEAN", {}); }

Json gather_slices(const Strategy& s, std::int64_t axis) {
  return encode(s.gather(s.run(slices_of_replica), axis));
}

DIFFERS("sparse/gather_one_device", "8.3: made dense, and 0.2: in every strategy",
        encode(vector({1, 0, 0}).reshape({3, 1}))) {
  return gather_slices(one_device(), 0);
}
CASE("sparse/gather_cs") { return gather_slices(central(), 0); }
CASE("sparse/gather_3") { return gather_slices(three(), 1); }

CASE("sparse/all_reduce_one_device") { return all_reduce(one_device(), "MEAN", slices_of_replica); }
CASE("sparse/all_reduce_cs") { return all_reduce(central(), "MEAN", slices_of_replica); }

CASE("sparse/all_reduce_float64") {
  return all_reduce(two(), "MEAN", [] {
    return at::sparse_coo_tensor(at::full({1, 1}, 2, at::kLong),
                                 (rid(at::kDouble) + 1).reshape({1, 1}), {3, 1});
  });
}

CASE("sparse/all_gather_one_device") { return all_gather(one_device(), slices_of_replica); }

CASE("sparse/reduce_sparse_and_dense") {
  const Strategy s = two();
  const auto p = s.run([] { return id() == 0 ? slices_of_replica() : at::ones({3, 1}); });
  return encode(s.reduce("SUM", p));
}

}  // namespace
}  // namespace cohort::oracle::reductions_cases
