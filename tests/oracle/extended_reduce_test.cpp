// StrategyExtended: reduce_to, batch_reduce_to and broadcast_to. Rule 9.

#include "tests/oracle/extended.h"

namespace cohort::oracle::extended_reduce_cases {
namespace {

ORACLE_THEME("extended");

// reduce_to

DIFFERS("reduce_to/own_value", "9.1: on the value's devices",
        Json::array({mirrored_json(1.5), encode(std::vector<Device>{"CPU:0", "CPU:1"})})) {
  const Strategy s = two();
  const auto p = per(s, {1, 2});
  const auto mean = s.extended().reduce_to("MEAN", p, p);
  return encode(std::pair{mean, *mean.devices()});
}

CASE("reduce_to/variable") {
  const Strategy s = two();
  const Variable v = variable(s, 9);
  const Json sum = encode(s.extended().reduce_to("SUM", per(s, {1, 2}), v));
  return Json::array({sum, components(v)});
}

CASE("reduce_to/variable_on_more_devices") {
  const Strategy s = two();
  return encode(s.extended().reduce_to("SUM", per(s, {1, 2}), variable(three(), 9)));
}

CASE("reduce_to/tensor_destination") {
  const Strategy s = two();
  const auto sum = s.extended().reduce_to("SUM", per(s, {1, 2}), scalar(0));
  return Json::array({class_of(sum), encode(sum)});
}

NOT_EXPRESSIBLE("reduce_to/list_destination", "a list is no destination: arguments.cpp");
NOT_EXPRESSIBLE("reduce_to/variable_aggregation_op", "not a ReduceOp: arguments.cpp");

CASE("reduce_to/none_destination") {
  const Strategy s = two();
  return encode(s.extended().reduce_to("SUM", per(s, {1, 2}), Destinations(DeviceList())));
}

DIFFERS("reduce_to/mirrored_value_mean", "9.1: mirrored to the destinations",
        encode(Mirrored<Tensor>({scalar(3)}))) {
  const Strategy s = two();
  return encode(s.extended().reduce_to("MEAN", mirrored_sum(s), "CPU:0"));
}

CASE("reduce_to/mirrored_value_sum") {
  const Strategy s = two();
  return encode(s.extended().reduce_to("SUM", mirrored_sum(s), "CPU:0"));
}

CASE("reduce_to/plain_tensor_mean") {
  return encode(two().extended().reduce_to("MEAN", scalar(1), "CPU:1"));
}

CASE("reduce_to/plain_tensor_mean_to_variable") {
  const Strategy s = two();
  return encode(s.extended().reduce_to("MEAN", scalar(1), variable(s, 1)));
}

CASE("reduce_to/one_device") {
  return encode(one_device().extended().reduce_to("SUM", scalar(1), "CPU:0"));
}

CASE("reduce_to/cs_to_variable") {
  const Strategy s = central();
  const auto sum = s.extended().reduce_to("SUM", per(s, {1, 2}), variable(s, 1));
  return Json::array({class_of(sum), encode(sum)});
}

CASE("reduce_to/cs_to_own") {
  const Strategy s = central();
  const auto p = per(s, {1, 2});
  return encode(s.extended().reduce_to("MEAN", p, p));
}

CASE("reduce_to/three_replicas_mean") {
  const Strategy s = three();
  const auto p = per(s, {1, 2, 6});
  return encode(s.extended().reduce_to("MEAN", p, p));
}

// batch_reduce_to

CASE("batch_reduce_to/mean_order_kept") {
  const Strategy s = two();
  Batch batch;
  for (const double k : {1., 2., 3.}) {
    const auto p = per(s, {k, 3 * k});
    batch.emplace_back(p, p);
  }
  return encode(s.extended().batch_reduce_to("MEAN", batch));
}

CASE("batch_reduce_to/different_destinations") {
  const Strategy s = two();
  const auto p = per(s, {1, 2}), q = per(s, {3, 4});
  return encode(s.extended().batch_reduce_to("SUM", Batch{{p, p}, {q, "CPU:0"}}));
}

CASE("batch_reduce_to/all_to_device_string") {
  const Strategy s = two();
  const Batch batch{{per(s, {1, 2}), "CPU:0"}, {per(s, {3, 4}), "CPU:0"}};
  return encode(s.extended().batch_reduce_to("SUM", batch));
}

CASE("batch_reduce_to/empty") { return encode(two().extended().batch_reduce_to("SUM", Batch{})); }

NOT_EXPRESSIBLE("batch_reduce_to/plain_tensor_among", "the values of a batch have one type");

CASE("batch_reduce_to/one_device") {
  const std::vector<std::pair<Tensor, Destinations>> batch{{scalar(1), "CPU:0"},
                                                           {scalar(2), "CPU:0"}};
  return encode(one_device().extended().batch_reduce_to("SUM", batch));
}

// broadcast_to

CASE("broadcast_to/variable_destination") {
  const Strategy s = two();
  return encode(s.extended().broadcast_to(scalar(4), variable(s, 1)));
}

CASE("broadcast_to/device_string") {
  const auto copies = two().extended().broadcast_to(scalar(4), "CPU:1");
  return Json::array({class_of(copies), encode(copies)});
}

CASE("broadcast_to/python_float") { return encode(two().extended().broadcast_to(4., "CPU:1")); }

CASE("broadcast_to/none_destination") {
  return encode(two().extended().broadcast_to(scalar(4), Destinations(DeviceList())));
}

NOT_EXPRESSIBLE("broadcast_to/list_destination", "a list is no destination: arguments.cpp");
NOT_EXPRESSIBLE("broadcast_to/v2_strategy_has_it", "asks Python for the names of methods");

TABLE("reduce_to_table/") {
  const Strategy s = strategy_named(input[0]);
  const auto p = values_of(s, input[2], dtype_at(input, 4));
  const auto destinations = [&]() -> Destinations {
    if (input[3] == "self") return p;
    if (input[3] == "variable") return variable(s, 1);
    return Device(input[3].get<std::string>());
  };
  return encode(s.extended().reduce_to(input[1].get<std::string>(), p, destinations()));
}

CASE("reduce_to/plain_tensor_sum") {
  return encode(two().extended().reduce_to("SUM", scalar(1), "CPU:1"));
}

DIFFERS("reduce_to/mirrored_variable_mean", "9.1: mirrored to the destinations",
        encode(Mirrored<Tensor>({scalar(3)}))) {
  const Strategy s = two();
  return encode(s.extended().reduce_to("MEAN", variable(s, 3), "CPU:0"));
}

CASE("reduce_to/mirrored_variable_sum") {
  const Strategy s = two();
  return encode(s.extended().reduce_to("SUM", variable(s, 3), "CPU:0"));
}

CASE("reduce_to/on_read_variable") {
  const Strategy s = two();
  const Variable v = variable(
      s, 0, {.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::MEAN});
  set_components(v, {3, 4});
  return Json::array({encode(s.extended().reduce_to("SUM", v, "CPU:0")),
                      encode(s.extended().reduce_to("MEAN", v, "CPU:0"))});
}

CASE("reduce_to/indexed_slices") {
  const Strategy s = two();
  const auto p = slices_of(s);
  const Variable v = variable(s, at::zeros({3, 1}));
  return Json::array(
      {encode(s.extended().reduce_to("SUM", p, v)), encode(s.extended().reduce_to("MEAN", p, v))});
}

CASE("reduce_to/in_replica") {
  const Strategy s = two();
  return encode(s.run([&] { return s.extended().reduce_to("SUM", rid(), "CPU:0").get(); }));
}

CASE("reduce_to/in_other_scope") {
  const Strategy s = two(), other = three();
  const auto p = per(s, {1, 2});
  const auto scope = other.scope();
  return encode(s.extended().reduce_to("SUM", p, "CPU:0"));
}

CASE("reduce_to/enum_op") {
  const Strategy s = two();
  return encode(s.extended().reduce_to(ReduceOp::MEAN, per(s, {1, 2}), "CPU:0"));
}

TABLE("batch_table/") {
  return batch_reduce(strategy_named(input[0]), input[1], input[2], dtype_at(input, 3));
}

DIFFERS("batch_table/m2_int32_SUM", "9.2: int32 alone; 0.3: identity is never looked at",
        Json::array({mirrored_json(3, at::kInt), mirrored_json(7, at::kInt)})) {
  return batch_reduce(two(), input[1], input[2], at::kInt);
}

DIFFERS("batch_table/m2_int32_MEAN", "9.2: int32 alone; 0.3: identity is never looked at",
        Json::array({mirrored_json(1.5, at::kDouble), mirrored_json(4, at::kDouble)})) {
  return batch_reduce(two(), input[1], input[2], at::kInt);
}

CASE("batch_reduce_to/float_and_int32") {
  const Strategy s = two();
  const auto p = per(s, {1, 2});
  const auto q = per(s, {scalar(3, at::kInt), scalar(4, at::kInt)});
  return encode(s.extended().batch_reduce_to("SUM", Batch{{p, p}, {q, q}}));
}

CASE("batch_reduce_to/float_and_float64") {
  const Strategy s = two();
  const auto p = per(s, {1, 2});
  const auto q = per(s, {scalar(3, at::kDouble), scalar(4, at::kDouble)});
  return encode(s.extended().batch_reduce_to("MEAN", Batch{{p, p}, {q, q}}));
}

CASE("batch_reduce_to/to_variables") {
  const Strategy s = two();
  const Batch batch{{per(s, {1, 2}), variable(s, 1)}, {per(s, {3, 4}), variable(s, 1)}};
  return encode(s.extended().batch_reduce_to("SUM", batch));
}

CASE("batch_reduce_to/indexed_slices_among") {
  const Strategy s = two();
  const auto p = per(s, {1, 2}), q = slices_of(s);
  return encode(s.extended().batch_reduce_to("SUM", Batch{{p, p}, {q, q}}));
}

CASE("batch_reduce_to/mirrored_values_mean") {
  const Strategy s = two();
  const auto p = per(s, {1, 2});
  const std::vector<std::pair<Mirrored<Tensor>, Destinations>> batch{{mirrored_sum(s), p},
                                                                     {mirrored_sum(s), p}};
  return encode(s.extended().batch_reduce_to("MEAN", batch));
}

using PlainBatch = std::vector<std::pair<Tensor, Destinations>>;

CASE("batch_reduce_to/in_replica") {
  const Strategy s = two();
  s.run([&] { s.extended().batch_reduce_to("SUM", PlainBatch{{rid(), "CPU:0"}}); });
  return nullptr;
}

CASE("batch_reduce_to/default_empty") {
  return encode(default_strategy().extended().batch_reduce_to("SUM", PlainBatch{}));
}

// broadcast_to

CASE("broadcast_to/own_value") {
  const Strategy s = three();
  return encode(s.extended().broadcast_to(vector({4, 5}), per(s, {0, 0, 0})));
}

CASE("broadcast_to/int64") {
  const Strategy s = two();
  return encode(s.extended().broadcast_to(scalar(4, at::kLong), variable(s, 1)));
}

CASE("broadcast_to/default_device") {
  return encode(default_strategy().extended().broadcast_to(scalar(2), "CPU:0"));
}

CASE("broadcast_to/in_replica") {
  const Strategy s = two();
  s.run([&] { s.extended().broadcast_to(scalar(2), "CPU:0"); });
  return nullptr;
}

}  // namespace
}  // namespace cohort::oracle::extended_reduce_cases
