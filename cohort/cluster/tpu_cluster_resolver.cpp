#include "cohort/cluster/tpu_cluster_resolver.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <sstream>
#include <system_error>

#include "cohort/base/environment.h"
#include "cohort/base/error.h"
#include "cohort/device/logical_devices.h"

namespace cohort::cluster {
namespace {

constexpr const char* kResolver = "TPUClusterResolver";
constexpr const char* kForm =
    "\"local:XxYxZxC\", chips along x, y and z and the cores of a chip, such as \"local:2x2x1x2\"";
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
  const std::string what = tpu.empty()
                               ? "Please provide a TPU Name: there is no TPU here to find"
                               : cat("there is no TPU here to look up the name \"", tpu, "\" for");
  throw ValueError(kResolver, cat(what, "; this machine's cores simulate one for ", kForm));
}

/// The tasks of "grpc://host:port,host:port"; a port that is missing is the usual one.
std::vector<std::string> addresses_in(std::string_view tpu) {
  std::vector<std::string> addresses;
  if (!tpu.starts_with(kAddress)) return addresses;
  std::istringstream list(std::string(tpu.substr(kAddress.size())));
  for (std::string each; std::getline(list, each, ',');) {
    if (each.starts_with(kAddress)) each.erase(0, kAddress.size());
    addresses.push_back(each.find(':') == std::string::npos ? each + ":8470" : each);
  }
  return addresses;
}

std::string named_or_from_environment(std::string_view tpu) {
  if (!tpu.empty()) return std::string(tpu);
  for (const char* name : {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"}) {
    if (const auto text = environment::text(name)) return *text;
  }
  return "";
}

std::string the_only_one(const std::vector<std::string>& tpus) {
  if (tpus.empty()) throw ValueError(kResolver, "At least one TPU must be specified");
  if (tpus.size() == 1) return tpus[0];
  throw NotImplementedError(
      kResolver, "Using multiple TPUs in a single session is not yet implemented: name one");
}

}  // namespace

TPUClusterResolver::TPUClusterResolver(std::string_view tpu, std::string_view job_name)
    : tpu_(named_or_from_environment(tpu)),
      job_name_(job_name),
      mesh_shape_(mesh_of(tpu_)),
      addresses_(addresses_in(tpu_)) {}

TPUClusterResolver::TPUClusterResolver(const std::vector<std::string>& tpus,
                                       std::string_view job_name)
    : TPUClusterResolver(the_only_one(tpus), job_name) {}

const std::vector<int>& TPUClusterResolver::mesh_shape() const {
  if (!mesh_shape_.empty()) return mesh_shape_;
  throw RuntimeError(kResolver, cat("the TPU at ", tpu_,
                                    " can't be reached: there is no TPU here to connect with; "
                                    "this machine's cores simulate one for ",
                                    kForm));
}

TPUClusterResolver::ClusterSpec TPUClusterResolver::cluster_spec() const {
  if (addresses_.empty()) return {};
  return {{job_name_, addresses_}};
}

std::string TPUClusterResolver::master(const std::string& task_type, int task_id) const {
  if (addresses_.empty()) return "";
  if (task_type != job_name_) {
    throw ValueError(kResolver,
                     cat("No such job in cluster: '", task_type, "', expected '", job_name_, '\''));
  }
  if (task_id < 0 || task_id >= static_cast<int>(addresses_.size())) {
    throw ValueError(kResolver, cat("No task with index ", task_id, " in job '", task_type,
                                    "': expected 0 to ", addresses_.size() - 1));
  }
  return cat(kAddress, addresses_[task_id]);
}

int TPUClusterResolver::num_cores() const {
  int cores = 1;
  for (const int size : mesh_shape()) cores *= size;
  return cores;
}

std::map<std::string, int> TPUClusterResolver::num_accelerators() const {
  return {{"TPU", num_cores()}};
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
