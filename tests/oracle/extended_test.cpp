// StrategyExtended, devices and the cross-device algorithms: rules 9 and 12, and 13.3.

#include <map>

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

// Further strategies, dtypes and results.

const VariableOptions kOnReadSum{.synchronization = Synchronization::ON_READ,
                                 .aggregation = Aggregation::SUM};

/// The components; the only copy of a variable that is stored once.
Json stored(const Variable& variable) {
  const Json all = components(variable);
  return variable.devices()->size() == 1 ? Json::array({all[0]}) : all;
}

CASE("properties/default_n") {
  const Strategy s = default_strategy();
  const StrategyExtended& e = s.extended();
  return {{"worker_devices", attempt([&] { return e.worker_devices(); })},
          {"parameter_devices", attempt([&] { return e.parameter_devices(); })},
          {"experimental_between_graph", attempt([&] { return e.between_graph(); })},
          {"experimental_should_init", attempt([&] { return e.should_init(); })},
          {"should_checkpoint", e.should_checkpoint()},
          {"should_save_summary", e.should_save_summary()},
          {"experimental_require_static_shapes", e.require_static_shapes()},
          {"n", s.num_replicas_in_sync()},
          {"cluster_resolver", s.cluster_resolver() ? Json(true) : Json()}};
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

// reduce_to and batch_reduce_to

/// The values of a table's row, one for each replica.
PerReplica<Tensor> values_of(const Strategy& s, const Json& row, at::ScalarType dtype) {
  std::vector<Tensor> values;
  for (const Json& value : row) values.push_back(decode_tensor(value, dtype));
  return per(s, values);
}

at::ScalarType dtype_at(const Json& input, std::size_t at) {
  return input.size() > at ? decode_dtype(input[at].get<std::string>()) : at::kFloat;
}

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

/// [[r + 1]] at row r of 3x1.
PerReplica<Tensor> slices_of(const Strategy& s) {
  return s.run([] {
    return at::sparse_coo_tensor(rid(at::kLong).reshape({1, 1}), (rid() + 1).reshape({1, 1}),
                                 {3, 1});
  });
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

Json batch_reduce(const Strategy& s, const std::string& op, const Json& rows,
                  at::ScalarType dtype) {
  Batch batch;
  for (const Json& row : rows) {
    const auto p = values_of(s, row, dtype);
    batch.emplace_back(p, p);
  }
  return encode(s.extended().batch_reduce_to(op, batch));
}

TABLE("batch_table/") {
  return batch_reduce(strategy_named(input[0]), input[1], input[2], dtype_at(input, 3));
}

Json mirrored_pair(double value, at::ScalarType dtype) {
  return encode(Mirrored<Tensor>({scalar(value, dtype), scalar(value, dtype)}));
}

DIFFERS("batch_table/m2_int32_SUM", "9.2: int32 alone; 0.3: identity is never looked at",
        Json::array({mirrored_pair(3, at::kInt), mirrored_pair(7, at::kInt)})) {
  return batch_reduce(two(), input[1], input[2], at::kInt);
}

DIFFERS("batch_table/m2_int32_MEAN", "9.2: int32 alone; 0.3: identity is never looked at",
        Json::array({mirrored_pair(1.5, at::kDouble), mirrored_pair(4, at::kDouble)})) {
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

// Variables.

CASE("colocate/own") {
  const Strategy s = two();
  const auto scope = s.scope();
  const Variable v(1.f);
  const auto colocated = s.extended().colocate_vars_with(v);
  const Variable w(2.f);
  return Json::array({w.kind_name(), components(w), encode((*w.devices())[1])});
}

CASE("colocate/outside_of_scope") {
  const Strategy s = two();
  const Variable v = variable(s, 1);
  const auto colocated = s.extended().colocate_vars_with(v);
  return 1;
}

CASE("colocate/other_strategys_variable") {
  const Strategy s = two();
  const Variable v = variable(three(), 1);
  const auto scope = s.scope();
  const auto colocated = s.extended().colocate_vars_with(v);
  return Variable(1.f).name();
}

CASE("colocate/in_replica") {
  const Strategy s = two();
  const Variable v = variable(s, 1);
  return encode(s.run([&] {
    const auto colocated = s.extended().colocate_vars_with(v);
    return 1;
  }));
}

CASE("colocate/one_device") {
  const Strategy s = one_device();
  const auto scope = s.scope();
  const Variable v(1.f);
  const auto colocated = s.extended().colocate_vars_with(v);
  return encode(Variable(2.f).device());
}

/// Whether the strategy says that it made each of these.
Json created(const Strategy& s, const std::vector<Variable>& variables) {
  Json all = Json::array();
  for (const Variable& v : variables) all.push_back(s.extended().variable_created_in_scope(v));
  return all;
}

CASE("created_in_scope/one") {
  const Strategy s = one_device();
  return created(s, {variable(s, 1), Variable(1.f), variable(two(), 1)});
}

CASE("created_in_scope/default") {
  return created(default_strategy(),
                 {Variable(1.f), variable(one_device(), 1), variable(central(), 1)});
}

CASE("created_in_scope/on_read") {
  const Strategy s = two();
  const Variable v = variable(s, 1, kOnReadSum);
  return Json::array({created(s, {v})[0], created(three(), {v})[0]});
}

TABLE("read_var_table/") {
  static const std::map<std::string, Aggregation> aggregations{
      {"NONE", Aggregation::NONE},
      {"MEAN", Aggregation::MEAN},
      {"ONLY_FIRST_REPLICA", Aggregation::ONLY_FIRST_REPLICA}};
  const Strategy s = three();
  const Variable v = variable(s, 0,
                              {.synchronization = input[0] == "ON_READ" ? Synchronization::ON_READ
                                                                        : Synchronization::ON_WRITE,
                               .aggregation = aggregations.at(input[1])});
  set_components(v, {3, 4, 8});
  return encode(s.extended().read_var(v));
}

CASE("call_for_each_replica/args") {
  const Strategy s = three();
  return encode(s.extended().call_for_each_replica(
      [](const Tensor& x, double y) {
        return std::pair{x + y, rid()};
      },
      per(s, {1, 2, 3}), 10.));
}

CASE("call_for_each_replica/in_replica") {
  const Strategy s = two();
  s.run([&] { s.extended().call_for_each_replica([] { return rid(); }); });
  return nullptr;
}

CASE("call_for_each_replica/one_device") {
  return encode(one_device().extended().call_for_each_replica([](const Tensor& x) { return x + 1; },
                                                              scalar(1)));
}

// Devices.

DIFFERS("device/tpu", "13.3: unknown devices are refused", fails("ValueError", "TPU")) {
  return canonicalize("/device:TPU:3");
}

DIFFERS("device/negative_index", "13.3: unknown devices are refused", fails("ValueError", "-1")) {
  return canonicalize("/cpu:-1");
}

CASE("device/mirrored_duplicates") {
  MirroredStrategy({"CPU:0", "/cpu:0"});
  return nullptr;
}

CASE("device/mirrored_empty_list") {
  return MirroredStrategy(std::vector<Device>()).num_replicas_in_sync();
}

CASE("device/mirrored_order") {
  return encode(MirroredStrategy({"CPU:2", "CPU:0"}).extended().worker_devices());
}

CASE("device/mirrored_mixed_jobs") {
  MirroredStrategy({"/job:localhost/cpu:0", "/job:worker/task:0/cpu:0"});
  return nullptr;
}

CASE("device/cs_default_parameter_device") {
  const Strategy s = CentralStorageStrategy({.compute_devices = {"CPU:1"}});
  return Json::array({encode(s.extended().worker_devices()),
                      encode(s.extended().parameter_devices()), s.num_replicas_in_sync()});
}

// Cross-device algorithms.

TABLE("packs/") {
  std::vector<std::int64_t> bytes;
  for (const Json& floats : input[0]) bytes.push_back(4 * floats.get<std::int64_t>());
  return packs(bytes, input[1].get<std::int64_t>());
}

CASE("cross_device/reduce_to_device") {
  const Strategy s = with_ops(3, std::make_shared<ReductionToOneDevice>(
                                     ReductionToOneDevice::Options{.reduce_to_device = "CPU:1"}));
  const auto p = per(s, {1, 2, 6});
  return Json::array(
      {encode(s.extended().reduce_to("SUM", p, p)), encode(s.extended().reduce_to("MEAN", p, p))});
}

CASE("cross_device/reduce_to_other_device") {
  const Strategy s = with_ops(2, std::make_shared<ReductionToOneDevice>(
                                     ReductionToOneDevice::Options{.reduce_to_device = "CPU:1"}));
  return encode(s.reduce("SUM", per(s, {1, 2})));
}

Json reduce_with_ops(const Json& input) {
  static const std::map<std::string, std::function<std::shared_ptr<CrossDeviceOps>()>> all{
      {"one", [] { return std::make_shared<ReductionToOneDevice>(); }},
      {"hierarchical", [] { return std::make_shared<HierarchicalCopyAllReduce>(); }},
      {"hierarchical0", [] { return std::make_shared<HierarchicalCopyAllReduce>(0); }},
      {"hierarchical3", [] { return std::make_shared<HierarchicalCopyAllReduce>(3); }}};
  const Strategy s = with_ops(input[1].get<int>(), all.at(input[0])());
  return batch_reduce(s, input[2], input[3], dtype_at(input, 4));
}

TABLE("ops/") { return reduce_with_ops(input); }

DIFFERS("ops/hierarchical_3_SUM", "12.4: numerically a plain sum",
        Json::array({encode(Mirrored<Tensor>({scalar(7), scalar(7), scalar(7)}))})) {
  return reduce_with_ops(input);
}

TABLE("options/") {
  CommunicationOptions options{.bytes_per_pack = input[1].get<std::int64_t>(),
                               .implementation = input[0].get<std::string>()};
  if (!input[2].is_null()) options.timeout = std::chrono::seconds(input[2].get<int>());
  options.validate();
  return fields_of(options);
}

CASE("cross_device/options_merge_implementation") {
  const CommunicationOptions ring{.implementation = "RING"};
  return Json::array({fields_of(ring.merged_with({.bytes_per_pack = 3})),
                      fields_of(ring.merged_with({.implementation = "NCCL"}))});
}

CASE("cross_device/broadcast_variable") {
  const Variable like = variable(two(), 1);
  return encode(
      Mirrored<Tensor>(ReductionToOneDevice().broadcast(vector({3, 4}), *like.devices())));
}

CASE("cross_device/hierarchical_sparse") {
  const Strategy s = with_ops(2, std::make_shared<HierarchicalCopyAllReduce>());
  const auto p = slices_of(s);
  return encode(s.extended().reduce_to("SUM", p, p));
}

}  // namespace
}  // namespace cohort::oracle
