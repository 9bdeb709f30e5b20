#include "cohort/cluster/tpu_cluster_resolver.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>

#include "cohort/base/error.h"
#include "cohort/cluster/tpu_environment.h"
#include "cohort/device/logical_devices.h"

namespace cohort::cluster {
namespace {

constexpr const char* kResolver = "TPUClusterResolver";
constexpr const char* kForm =
    "\"local:XxYxZxC\", chips along x, y and z and the cores of a chip, such as \"local:2x2x1x2\"";
constexpr const char* kInstead = "this machine's cores simulate one for ";
constexpr std::size_t kMeshAxes = 4;

/// The numbers in "2x2x1x2"; nothing if there are not four, all positive.
std::optional<std::vector<int>> sizes_in(std::string_view text) {
  std::vector<int> sizes;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data();; ++at) {
    int size = 0;
    const auto [after, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1) return std::nullopt;
    sizes.push_back(size);
    at = after;
    if (at == end) break;
    if (*at != 'x') return std::nullopt;
  }
  if (sizes.size() != kMeshAxes) return std::nullopt;
  return sizes;
}

std::vector<int> parse_mesh(std::string_view tpu, std::string_view mesh) {
  const auto sizes = sizes_in(mesh);
  if (!sizes) {
    throw ValueError(kResolver, cat("malformed mesh: expected ", kForm, ", got \"", tpu, '"'));
  }
  std::int64_t cores = 1;
  for (const int size : *sizes) {
    cores *= size;
    if (cores <= kMaxCpuDevices) continue;
    throw ValueError(kResolver, cat('"', tpu, "\" has too many cores: this machine simulates ",
                                    kMaxCpuDevices, " at most"));
  }
  return *sizes;
}

constexpr std::string_view kAddress = "grpc://";

/// The mesh to simulate; none for an address.
std::vector<int> mesh_of(std::string_view tpu) {
  constexpr std::string_view kLocal = "local", kSimulated = "local:";
  if (tpu == kLocal) {
    return {1, 1, 1, static_cast<int>(list_logical_devices(DeviceType::CPU).size())};
  }
  if (tpu.starts_with(kSimulated)) return parse_mesh(tpu, tpu.substr(kSimulated.size()));
  if (tpu.starts_with(kAddress)) return {};
  throw ValueError(kResolver, cat("there is no TPU here to look up the name \"", tpu, "\" for; ",
                                  kInstead, kForm));
}

/// The tasks of "grpc://host:port,host:port"; a port that is missing is the usual one.
std::vector<std::string> addresses_in(std::string_view tpu) {
  std::vector<std::string> addresses;
  if (!tpu.starts_with(kAddress)) return addresses;
  for (std::size_t from = 0, comma = 0; comma != std::string_view::npos; from = comma + 1) {
    comma = tpu.find(',', from);
    std::string_view each = tpu.substr(from, comma - from);
    if (each.starts_with(kAddress)) each.remove_prefix(kAddress.size());
    if (each.empty() || each.starts_with(':') || each.ends_with(':')) {
      throw ValueError(kResolver,
                       cat("malformed address: expected \"grpc://host:port\", or several "
                           "with commas between them, got \"",
                           tpu, '"'));
    }
    addresses.push_back(cat(each, each.find(':') == std::string_view::npos ? ":8470" : ""));
  }
  return addresses;
}

const std::string& the_only_one(const std::vector<std::string>& tpus) {
  if (tpus.empty()) {
    throw ValueError(
        kResolver, cat("At least one TPU must be specified, got an empty list; ", kInstead, kForm));
  }
  if (tpus.size() == 1) return tpus[0];
  throw NotImplementedError(
      kResolver, cat("Using multiple TPUs in a single session is not yet implemented, got ",
                     tpus.size(), ": name one"));
}

TPUClusterResolverOptions checked(TPUClusterResolverOptions options) {
  if (options.job_name.empty()) {
    throw ValueError(kResolver, "expected a job_name such as \"worker\", got \"\"");
  }
  if (options.coordinator_name.empty() != options.coordinator_address.empty()) {
    throw ValueError(kResolver,
                     cat("expected a coordinator_name and a coordinator_address, or none of them, "
                         "got \"",
                         options.coordinator_name, "\" and \"", options.coordinator_address,
                         "\": nothing here starts a coordinator, so say where it is"));
  }
  if (options.coordinator_name == options.job_name) {
    throw ValueError(kResolver, cat("expected a coordinator_name that is not the job_name, got \"",
                                    options.job_name, "\" for both"));
  }
  return options;
}

}  // namespace

TPUClusterResolver::TPUClusterResolver(const std::vector<std::string>& tpus, const Options& options)
    : ClusterResolver(options.job_name, 0), tpu_(the_only_one(tpus)), options_(checked(options)) {
  if (tpu_.empty()) {
    const TPUInEnvironment found = tpu_in_environment();
    tpu_ = found.tpu;
    if (options_.zone.empty()) options_.zone = found.zone;
    if (options_.project.empty()) options_.project = found.project;
  }
  mesh_shape_ = mesh_of(tpu_);
  addresses_ = addresses_in(tpu_);
}

const std::vector<int>& TPUClusterResolver::mesh_shape() const {
  if (!mesh_shape_.empty()) return mesh_shape_;
  throw RuntimeError(
      kResolver, cat("the TPU at ", tpu_,
                     " can't be reached: there is no TPU here to connect with; ", kInstead, kForm));
}

TPUClusterResolver::ClusterSpec TPUClusterResolver::cluster_spec() const {
  if (addresses_.empty()) return {};
  ClusterSpec spec{{get_job_name(), addresses_}};
  if (!options_.coordinator_name.empty()) {
    spec[options_.coordinator_name] = {options_.coordinator_address};
  }
  return spec;
}

std::string TPUClusterResolver::master(const std::optional<std::string>& type,
                                       std::optional<int> id,
                                       const std::optional<std::string>& /*rpc_layer*/) const {
  if (addresses_.empty()) return "";
  const bool given = type && id;
  return master_url(
      task_address(cluster_spec(), given ? *type : task_type(), given ? *id : task_id()),
      rpc_layer());
}

std::string TPUClusterResolver::get_job_name() const {
  const std::string type = task_type();
  return type == options_.coordinator_name ? options_.job_name : type;
}

int TPUClusterResolver::num_cores() const {
  int cores = 1;
  for (const int size : mesh_shape()) cores *= size;
  return cores;
}

std::map<std::string, int> TPUClusterResolver::num_accelerators(
    const std::optional<std::string>& type, std::optional<int> id) const {
  const int cores = num_cores();  // of the only task that there is
  if (type.value_or(get_job_name()) != get_job_name() || id.value_or(0) != 0) return {};
  return {{"TPU", cores}};
}

TPUSystemMetadata TPUClusterResolver::get_tpu_system_metadata() const {
  TPUSystemMetadata metadata{.num_cores = num_cores(),
                             .num_hosts = 1,
                             .num_of_cores_per_host = num_cores(),
                             .devices = {}};
  for (int core = 0; core < metadata.num_cores; ++core) {
    metadata.devices.push_back(cat("/job:localhost/replica:0/task:0/device:TPU:", core));
  }
  return metadata;
}

}  // namespace cohort::cluster
