// Cluster resolvers, TPU topologies and how replicas are assigned to their cores: rules 13, 15 and
// 16.

#include <string>
#include <vector>

#include "cohort/cluster/tpu_cluster_resolver.h"
#include "cohort/strategies/tpu_strategy.h"
#include "cohort/tpu/device_assignment.h"
#include "cohort/tpu/topology.h"
#include "tests/base/scoped_environment.h"
#include "tests/oracle/oracle.h"
#include "tests/oracle/strategies.h"

namespace cohort::oracle::resolvers_cases {
namespace {

ORACLE_THEME("resolvers");

using cluster::TPUClusterResolver;
using tpu::AssignmentOptions;
using tpu::DeviceAssignment;
using tpu::DeviceOrderMode;
using tpu::Topology;

const std::vector<int> kSmall{2, 2, 1, 2};

// TPU resolvers.

Json tpu_of(const TPUClusterResolver& resolver) {
  return {{"env", resolver.environment()},   {"id", resolver.task_id()},
          {"master", resolver.master()},     {"rpc", resolver.rpc_layer()},
          {"spec", resolver.cluster_spec()}, {"type", resolver.task_type()}};
}
/// What TensorFlow prints, with the layer that its addresses have where it lacks the attribute.
Json tpu_at(const Json& addresses) {
  return {{"env", ""},
          {"id", 0},
          {"master", "grpc://10.1.2.3:8470"},
          {"rpc", "grpc"},
          {"spec", {{"worker", addresses}}},
          {"type", "worker"}};
}
constexpr const char* kRpcLayer = "16.1: every resolver has an rpc_layer";

DIFFERS("tpu_resolver/grpc_address", kRpcLayer, tpu_at({"10.1.2.3:8470"})) {
  return tpu_of(TPUClusterResolver(input[0].get<std::string>()));
}
DIFFERS("tpu_resolver/grpc_two_addresses", kRpcLayer, tpu_at({"10.1.2.3:8470", "10.1.2.4:8470"})) {
  return tpu_of(TPUClusterResolver(input[0].get<std::string>()));
}
CASE("tpu_resolver/master_arguments") {
  const TPUClusterResolver resolver("grpc://10.1.2.3:8470,10.1.2.4:8470");
  return {resolver.master(), resolver.master("worker", 1),
          attempt([&] { return resolver.master("worker", 5); })};
}
CASE("tpu_resolver/two_names") { return TPUClusterResolver({"a", "b"}).tpu(); }

DIFFERS("tpu_strategy/no_tpu", "16.9: \"local\" is simulated, with a core for each CPU slot", 4) {
  return TPUStrategy(TPUClusterResolver("local")).num_replicas_in_sync();
}
DIFFERS("base/assign_to_logical_device_on_mirrored", "15.11: on every strategy",
        encode(scalar(1))) {
  return encode(mirrored(1).assign_to_logical_device(scalar(1), 0));
}
CASE("run_options/defaults") {
  const RunOptions options;
  return {options.enable_dynamic_batch_size, options.bucketizing_dynamic_shape,
          options.xla_options ? Json("set") : Json()};
}

// Topologies.

Json make_topology(const std::vector<int>& mesh_shape) {
  const Topology topology(mesh_shape, {{{0, 0, 0, 0}}});
  return topology.num_tasks();
}

CASE("topology/bad_mesh_shape") { return make_topology({2, 2, 1}); }
CASE("topology/bad_mesh_zero") { return make_topology({2, 0, 1, 1}); }

CASE("topology/fields") {
  const Topology t = Topology::full_mesh(kSmall, 2);
  return {{"rank", t.mesh_rank()},
          {"tasks", t.num_tasks()},
          {"per_task", t.num_tpus_per_task()},
          {"shape", t.mesh_shape()},
          {"task_ordinal", t.task_ordinal_at_coordinates({0, 1, 0, 0})},
          {"ordinal", t.tpu_device_ordinal_at_coordinates({1, 1, 0, 1})},
          {"cpu", t.cpu_device_name_at_coordinates({0, 1, 0, 0})},
          {"tpu", t.tpu_device_name_at_coordinates({0, 1, 0, 0}, "w")},
          {"missing", t.missing_devices()}};
}

CASE("topology/serialize_roundtrip") {
  const Topology t = Topology::full_mesh(kSmall, 2);
  const Topology u = Topology::parse(t.serialized());
  return Json::array(
      {u.mesh_shape(), u.device_coordinates() == t.device_coordinates(), u.num_tasks()});
}

// Assignments.

DeviceOrderMode order_named(const std::string& name) {
  if (name == "RING") return DeviceOrderMode::RING;
  return name == "MESH" ? DeviceOrderMode::MESH : DeviceOrderMode::AUTO;
}

TABLE("assignment/") {
  AssignmentOptions options{.num_replicas = input[1], .order = order_named(input[4])};
  if (!input[2].is_null()) options.computation_shape = input[2].get<std::vector<int>>();
  if (!input[3].is_null()) options.computation_stride = input[3].get<std::vector<int>>();
  return DeviceAssignment::build(Topology::full_mesh(input[0]), options).core_assignment();
}

CASE("assignment/lookups") {
  const auto a = DeviceAssignment::build(Topology::full_mesh(kSmall),
                                         {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
  return {{"n", a.num_replicas()},
          {"per", a.num_cores_per_replica()},
          {"tpu", a.tpu_device(1, 1)},
          {"tpu_job", a.tpu_device(0, 0, "j")},
          {"host", a.host_device(2, 0)},
          {"host_job", a.host_device(2, 0, "j")},
          {"ord", a.tpu_ordinal(3, 1)},
          {"coord", a.coordinates(2, 0)},
          {"lookup", a.lookup_replicas(0, 0)},
          {"lookup_bad", attempt([&] { return a.lookup_replicas(5, 0); })}};
}

CASE("assignment/missing_devices") {
  const Topology t({2, 2, 1, 1}, {{{0, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}}});
  const auto build = [&](const AssignmentOptions& options) {
    return attempt([&] { return DeviceAssignment::build(t, options).core_assignment(); });
  };
  return Json::array({t.missing_devices(), build({.num_replicas = 2}), build({.num_replicas = 4}),
                      build({.computation_stride = {2, 1, 1, 1}})});
}

NOT_EXPRESSIBLE("device_assignment/bad_rank", "the type of the argument has three levels");

// Other strategies.

CASE("mirrored/tf_config_ignored") {
  const ScopedEnvironment environment(
      "TF_CONFIG",
      R"({"cluster": {"worker": ["h0:1", "h1:2"]}, "task": {"type": "worker", "index": 1}})");
  const Strategy s = two();
  return Json::array({s.num_replicas_in_sync(), encode(s.extended().worker_devices())});
}

// Other resolvers.

PENDING("tf_config/two_workers", "cluster resolver");
PENDING("tf_config/chief_worker_ps", "cluster resolver");
PENDING("tf_config/single_task", "cluster resolver");
PENDING("tf_config/no_task", "cluster resolver");
PENDING("tf_config/sparse_jobs", "cluster resolver");
PENDING("tf_config/index_out_of_range", "cluster resolver");
PENDING("tf_config/rpc_layer", "cluster resolver");
PENDING("tf_config/session_master", "cluster resolver");
PENDING("tf_config/malformed", "cluster resolver");
PENDING("tf_config/empty_string", "cluster resolver");
PENDING("tf_config/cluster_not_object", "cluster resolver");
PENDING("tf_config/constructor_overrides", "cluster resolver");
PENDING("tf_config/setters", "cluster resolver");
PENDING("tf_config/master_arguments", "cluster resolver");

PENDING("simple/basic", "cluster resolver");
PENDING("simple/spec_dict", "cluster resolver");
PENDING("simple/master_not_string", "cluster resolver");
PENDING("simple/unknown_job_and_index", "cluster resolver");

PENDING("cluster_spec/methods", "cluster resolver");
PENDING("cluster_spec/bad_type", "cluster resolver");
PENDING("cluster_spec/bad_address", "cluster resolver");

PENDING("union/dense_concatenated", "cluster resolver");
PENDING("union/none", "cluster resolver");
PENDING("union/wrong_type", "cluster resolver");
PENDING("union/sparse_merged", "cluster resolver");
PENDING("union/sparse_collision", "cluster resolver");
PENDING("union/constructor_overrides", "cluster resolver");
PENDING("union/task_id_zero_override", "cluster resolver");
PENDING("union/master_arguments", "cluster resolver");

PENDING("slurm/jobs", "cluster resolver");
PENDING("slurm/gpus", "cluster resolver");
PENDING("slurm/gpus_one_each", "cluster resolver");
PENDING("slurm/too_many_tasks", "cluster resolver");
PENDING("slurm/too_few_tasks", "cluster resolver");
PENDING("slurm/missing_procid", "cluster resolver");
PENDING("slurm/missing_nodelist", "cluster resolver");
PENDING("slurm/bad_hostlist_suffix", "cluster resolver");
PENDING("slurm/mixed_list", "cluster resolver");
PENDING("slurm/rpc_layer", "cluster resolver");

PENDING("sagemaker/two", "cluster resolver");

PENDING("kubernetes/no_client_library", "cluster resolver");

PENDING("gce/no_client_library", "cluster resolver");

PENDING("validate/ok", "cluster resolver");
PENDING("validate/disallowed_job", "cluster resolver");
PENDING("validate/own_type_missing", "cluster resolver");
PENDING("validate/two_chiefs", "cluster resolver");
PENDING("validate/two_evaluators", "cluster resolver");
PENDING("validate/id_too_big", "cluster resolver");
PENDING("validate/no_chief_one_worker", "cluster resolver");

PENDING("worker_util/counts", "cluster resolver");

PENDING("mwms/disallowed_job", "cluster resolver");
PENDING("mwms/only_ps", "cluster resolver");
PENDING("mwms/empty", "cluster resolver");
PENDING("mwms/late_construction_in_cluster", "cluster resolver");
PENDING("mwms/bad_communication_options", "cluster resolver");
PENDING("mwms/bad_resolver", "cluster resolver");
PENDING("mwms/local_variable_kind", "cluster resolver");
PENDING("mwms/resolver_without_task", "cluster resolver");

}  // namespace
}  // namespace cohort::oracle::resolvers_cases
