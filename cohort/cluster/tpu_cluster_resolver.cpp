#include "cohort/cluster/tpu_cluster_resolver.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <system_error>

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

std::vector<int> mesh_of(std::string_view tpu) {
  constexpr std::string_view kLocal = "local", kSimulated = "local:";
  if (tpu == kLocal) {
    return {1, 1, 1, static_cast<int>(list_logical_devices(DeviceType::CPU).size())};
  }
  if (tpu.starts_with(kSimulated)) return parse_mesh(tpu, tpu.substr(kSimulated.size()));
  const std::string what = tpu.empty() ? "Please provide a TPU Name: there is no TPU here to find"
                                       : cat("there is no TPU here to connect to as \"", tpu, '"');
  throw ValueError(kResolver, cat(what, "; this machine's cores simulate one for ", kForm));
}

}  // namespace

TPUClusterResolver::TPUClusterResolver(std::string_view tpu, std::string_view job_name)
    : tpu_(tpu), job_name_(job_name), mesh_shape_(mesh_of(tpu)) {}

int TPUClusterResolver::num_cores() const {
  int cores = 1;
  for (const int size : mesh_shape_) cores *= size;
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
