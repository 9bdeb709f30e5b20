// Devices and the cross-device algorithms: rules 12 and 13.3.

#include <map>

#include "cohort/collectives/cross_device_all_reduce.h"
#include "cohort/collectives/packs.h"
#include "tests/oracle/extended.h"

namespace cohort::oracle::extended_devices_cases {
namespace {

ORACLE_THEME("extended");

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
}  // namespace cohort::oracle::extended_devices_cases
