// StrategyExtended, devices and the cross-device algorithms: rules 9 and 12, and 13.3.

#include "cohort/collectives/cross_device_all_reduce.h"
#include "cohort/collectives/packs.h"
#include "tests/oracle/oracle.h"
#include "tests/oracle/strategies.h"

namespace cohort::oracle {
namespace {

ORACLE_THEME("extended");

TABLE("properties/") {
  const Strategy s = strategy_named(input[0]);
  const StrategyExtended& e = s.extended();
  std::vector<std::string> parameters;
  for (const Device& device : e.parameter_devices()) {
    parameters.push_back(input[0] == "cs" ? device.spelled() : device.name());
  }
  return {{"worker_devices", encode(e.worker_devices())},
          {"parameter_devices", parameters},
          {"experimental_between_graph", e.between_graph()},
          {"experimental_should_init", e.should_init()},
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

/// TensorFlow's word for a value that is not mirrored; Cohort's is a Mirrored of one.
template <class T>
const char* class_of(const Mirrored<T>& value) {
  return value.size() == 1 ? "EagerTensor" : "Mirrored";
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

// reduce_to

DIFFERS("reduce_to/own_value", "9.1: on the value's devices",
        Json::array({encode(Mirrored<Tensor>({scalar(1.5), scalar(1.5)})),
                     encode(std::vector<Device>{"CPU:0", "CPU:1"})})) {
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

Mirrored<Tensor> mirrored_sum(const Strategy& strategy) {
  const auto p = per(strategy, {1, 2});
  return strategy.extended().reduce_to("SUM", p, p);
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

using Batch = std::vector<std::pair<PerReplica<Tensor>, Destinations>>;

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

// Variables.

CASE("colocate/plain_variable") {
  const Variable v(1.f);
  const Strategy s = two();
  const auto scope = s.scope();
  const auto colocated = s.extended().colocate_vars_with(v);
  return encode(Variable(1.f));
}

CASE("colocate/cs") {
  const Strategy s = central();
  const auto scope = s.scope();
  const Variable v(1.f);
  const auto colocated = s.extended().colocate_vars_with(v);
  return encode(Variable(2.f).device());
}

CASE("colocate/in_other_scope") {
  const Strategy s = two(), other = three();
  const Variable v = variable(s, 1);
  const auto scope = other.scope();
  const auto colocated = s.extended().colocate_vars_with(v);
  return 1;
}

CASE("created_in_scope/own") {
  const Strategy s = two();
  return s.extended().variable_created_in_scope(variable(s, 1));
}

CASE("created_in_scope/other") {
  return two().extended().variable_created_in_scope(variable(three(), 1));
}

CASE("created_in_scope/default_of_mirrored") {
  return default_strategy().extended().variable_created_in_scope(variable(two(), 1));
}

CASE("created_in_scope/cs") {
  const Strategy s = central();
  return Json::array({s.extended().variable_created_in_scope(variable(s, 1)),
                      s.extended().variable_created_in_scope(Variable(1.f))});
}

CASE("read_var/on_read_sum") {
  const Strategy s = two();
  const Variable v = variable(
      s, 0, {.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::SUM});
  set_components(v, {3, 4});
  return encode(s.extended().read_var(v));
}

CASE("read_var/mirrored") {
  const Strategy s = two();
  return encode(s.extended().read_var(variable(s, 5)));
}

CASE("call_for_each_replica/kwargs_none") {
  return encode(two().extended().call_for_each_replica([] { return rid(); }));
}

// Devices.

TABLE("device/") {
  return canonicalize(input[0].get<std::string>(),
                      input.size() > 1 ? input[1].get<std::string>() : "");
}

CASE("device/mirrored_default") { return encode(MirroredStrategy().extended().worker_devices()); }

DIFFERS("device/mirrored_unknown_device", "13.3: unknown devices are refused",
        fails("ValueError", "CPU:9")) {
  MirroredStrategy({"CPU:0", "CPU:9"});
  return nullptr;
}

CASE("device/mirrored_other_job") {
  MirroredStrategy({"/job:worker/task:0/cpu:0", "/job:worker/task:1/cpu:0"});
  return nullptr;
}

NOT_EXPRESSIBLE("device/mirrored_string_argument", "a string is no list: arguments.cpp");

DIFFERS("device/one_device_bad", "13.3: unknown devices are refused",
        fails("ValueError", "CPU:7")) {
  OneDeviceStrategy("CPU:7");
  return nullptr;
}

// Cross-device algorithms.

Strategy with_ops(int n, std::shared_ptr<CrossDeviceOps> ops) {
  std::vector<Device> devices;
  for (int i = 0; i < n; ++i) devices.emplace_back(DeviceType::CPU, i);
  return MirroredStrategy({.devices = devices, .cross_device_ops = std::move(ops)});
}

Strategy with_largest() {
  return with_ops(2, std::make_shared<ReductionToOneDevice>(ReductionToOneDevice::Options{
                         .accumulation_fn = [](std::span<const Tensor> values) {
                           return at::stack({values.data(), values.size()}).amax(0);
                         }}));
}

Json mirrored_json(double value) {
  return encode(Mirrored<Tensor>({scalar(value), scalar(value)}));
}

DIFFERS("cross_device/reduction_to_one_device_accumulate", "12.3: accumulation_fn always counts",
        Json::array({mirrored_json(5), mirrored_json(2.5)})) {
  const Strategy s = with_largest();
  const auto p = per(s, {1, 5});
  return Json::array(
      {encode(s.extended().reduce_to("SUM", p, p)), encode(s.extended().reduce_to("MEAN", p, p))});
}

DIFFERS("cross_device/reduction_to_one_device_accumulate_placed",
        "12.3: accumulation_fn always counts",
        Json::array({mirrored_json(5), mirrored_json(2.5), per_replica({5, 5}),
                     encode(scalar(5))})) {
  const Strategy s = with_largest();
  const auto p = s.run([] { return rid() * 4 + 1; });
  return Json::array(
      {encode(s.extended().reduce_to("SUM", p, p)), encode(s.extended().reduce_to("MEAN", p, p)),
       encode(s.run([](const Tensor& x) { return get_replica_context().all_reduce("SUM", x); }, p)),
       encode(s.reduce("SUM", p))});
}

CASE("cross_device/hierarchical_copy") {
  const Strategy s = with_ops(4, std::make_shared<HierarchicalCopyAllReduce>());
  const auto p = per(s, {1, 2, 4, 8});
  return Json::array(
      {encode(s.extended().reduce_to("SUM", p, p)), encode(s.extended().reduce_to("MEAN", p, p))});
}

CASE("cross_device/num_packs_negative") {
  HierarchicalCopyAllReduce(-1);
  return nullptr;
}

CASE("cross_device/num_packs_zero") { return HierarchicalCopyAllReduce(0).name(); }

CASE("cross_device/broadcast") {
  const auto like = per(two(), {0, 0});
  return encode(Mirrored<Tensor>(ReductionToOneDevice().broadcast(scalar(3), *like.devices())));
}

CASE("cross_device/broadcast_single_device") {
  const std::vector<Device> device{"CPU:1"};
  const Mirrored<Tensor> copies(ReductionToOneDevice().broadcast(scalar(3), device));
  return Json::array({class_of(copies), encode(copies)});
}

CASE("cross_device/batch_reduce_direct") {
  const std::vector<std::vector<Tensor>> values{{scalar(1), scalar(2)}, {scalar(10), scalar(30)}};
  const std::vector<Device> devices{"CPU:0", "CPU:1"};
  Json results = Json::array();
  for (auto& result : ReductionToOneDevice().batch_reduce("MEAN", values, devices)) {
    results.push_back(encode(Mirrored<Tensor>(std::move(result))));
  }
  return results;
}

CASE("cross_device/options_negative_bytes") {
  CommunicationOptions{.bytes_per_pack = -1}.validate();
  return nullptr;
}

Json fields_of(const CommunicationOptions& options) {
  const Json timeout = options.timeout ? Json(options.timeout->count()) : Json();
  return Json::array({options.bytes_per_pack, timeout, options.implementation.name()});
}

CASE("cross_device/options_defaults") { return fields_of({}); }

CASE("cross_device/options_merge") {
  const CommunicationOptions a{.bytes_per_pack = 5, .timeout = std::chrono::seconds(1)};
  const CommunicationOptions b{.timeout = std::chrono::seconds(2)};
  return fields_of(a.merged_with(b));
}

CASE("cross_device/options_merge_none") {
  return CommunicationOptions{.bytes_per_pack = 5}.merged_with({}).bytes_per_pack;
}

CASE("cross_device/options_merge_default_does_not_reset") {
  const CommunicationOptions a{.bytes_per_pack = 5}, b{.bytes_per_pack = 0};
  return a.merged_with(b).bytes_per_pack;
}

Json packs(const std::vector<std::int64_t>& bytes, std::int64_t limit) {
  Json packs = Json::array();
  for (const auto& pack : collectives::packs_by_size(bytes, limit)) {
    Json sizes = Json::array();
    for (const std::size_t i : pack) sizes.push_back(bytes[i]);
    packs.push_back(sizes);
  }
  return packs;
}

CASE("cross_device/packs_128_32_800_4_limit_200") { return packs({128, 32, 800, 4}, 200); }
CASE("cross_device/packs_limit_0") { return packs({128, 32, 4}, 0); }
CASE("cross_device/packs_limit_1_each_alone") { return packs({4, 4, 4}, 1); }

NOT_EXPRESSIBLE("cross_device/collective_keys_unknown_group",
                "replicas meet in the order of their calls: there are no keys to mistake");

CASE("cross_device/select_cross_device_ops") {
  const std::vector<Device> devices{"CPU:0", "CPU:1"};
  return select_cross_device_ops(devices)->name();
}

CASE("cross_device/packs_in_strategy") {
  const Strategy s = with_ops(2, std::make_shared<HierarchicalCopyAllReduce>(2));
  Batch batch;
  for (const auto& p :
       {per(s, {vector({1}), vector({2})}), per(s, {vector({1, 2, 3}), vector({10, 20, 30})}),
        per(s, {vector({5, 6}), vector({7, 8})})}) {
    batch.emplace_back(p, p);
  }
  return encode(s.extended().batch_reduce_to("SUM", batch));
}

CASE("cross_device/collective_group_size_not_multiple") {
  CollectiveAllReduce({"CPU:0", "CPU:1"}, 3);
  return nullptr;
}

}  // namespace
}  // namespace cohort::oracle
