#include "cohort/device/allowed_cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

namespace cohort {
namespace {

enum class CgroupVersion { V1, V2 };

/// A mounted cgroup hierarchy that can limit the CPU. `root` is the cgroup that shows at `point`;
/// in a container it is often the container's own.
struct Mount {
  CgroupVersion version;
  std::string root;
  std::string point;
};

bool has_word(const std::string& comma_separated, std::string_view word) {
  std::istringstream words(comma_separated);
  for (std::string each; std::getline(words, each, ',');) {
    if (each == word) return true;
  }
  return false;
}

/// A line of mountinfo reads `36 35 98:0 /root /point rw,noatime [optional …] - type source
/// options`.
std::optional<Mount> parse_mount(const std::string& line) {
  const auto separator = line.find(" - ");
  if (separator == std::string::npos) return std::nullopt;
  std::istringstream before(line.substr(0, separator)), after(line.substr(separator + 3));
  std::string id, parent, device, root, point, type, source, options;
  before >> id >> parent >> device >> root >> point;
  after >> type >> source >> options;
  if (type == "cgroup2") return Mount{CgroupVersion::V2, root, point};
  if (type == "cgroup" && has_word(options, "cpu")) return Mount{CgroupVersion::V1, root, point};
  return std::nullopt;
}

/// A line of /proc/self/cgroup reads `hierarchy:controllers:path`; version 2 has no controllers.
std::optional<std::string> cgroup_path(const std::string& contents, CgroupVersion version) {
  std::istringstream lines(contents);
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool matches =
        version == CgroupVersion::V2 ? controllers.empty() : has_word(controllers, "cpu");
    if (matches) return line.substr(second + 1);
  }
  return std::nullopt;
}

/// The directories of `path` and of the cgroups above it, up to the mount point.
std::vector<std::string> directories(const Mount& mount, std::string path) {
  const std::string root = mount.root == "/" ? "" : mount.root;
  const bool is_below =
      path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
  path = is_below ? path.substr(root.size()) : "";  // elsewhere: only the mount point is visible
  std::vector<std::string> result;
  for (; !path.empty() && path != "/"; path.resize(path.rfind('/'))) {
    result.push_back(mount.point + path);
  }
  result.push_back(mount.point);
  return result;
}

/// Both versions give microseconds of CPU time per period. No limit is `max` in version 2 and -1
/// in version 1.
std::optional<double> quota_of(const std::string& quota, const std::string& period) {
  double time = 0, length = 0;
  if (!(std::istringstream(quota) >> time) || !(std::istringstream(period) >> length)) {
    return std::nullopt;
  }
  if (time <= 0 || length <= 0) return std::nullopt;
  return time / length;
}

std::optional<double> read_quota(const ReadFile& read, CgroupVersion version,
                                 const std::string& directory) {
  if (version == CgroupVersion::V1) {
    return quota_of(read(directory + "/cpu.cfs_quota_us").value_or(""),
                    read(directory + "/cpu.cfs_period_us").value_or(""));
  }
  std::istringstream words(read(directory + "/cpu.max").value_or(""));
  std::string quota, period;
  words >> quota >> period;
  return quota_of(quota, period);
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// The kernel refuses a mask with fewer bits than the machine has cores, hence the growing sizes.
int cores_of_affinity() {
  for (int bits = CPU_SETSIZE; bits <= (1 << 20); bits *= 2) {
    const std::size_t bytes = CPU_ALLOC_SIZE(bits);
    cpu_set_t* const mask = CPU_ALLOC(bits);
    const bool known = mask != nullptr && sched_getaffinity(getpid(), bytes, mask) == 0;
    const int cores = known ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (cores > 0) return cores;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

std::optional<double> cgroup_cpu_quota(const ReadFile& read) {
  const std::string cgroups = read("/proc/self/cgroup").value_or("");
  std::istringstream mounts(read("/proc/self/mountinfo").value_or(""));
  std::optional<double> smallest;
  for (std::string line; std::getline(mounts, line);) {
    const auto mount = parse_mount(line);
    const auto path = mount ? cgroup_path(cgroups, mount->version) : std::nullopt;
    if (!path) continue;
    for (const auto& directory : directories(*mount, *path)) {
      const auto quota = read_quota(read, mount->version, directory);
      if (quota && (!smallest || *quota < *smallest)) smallest = quota;
    }
  }
  return smallest;
}

int allowed_cores() {
  const double quota = cgroup_cpu_quota(read_file).value_or(1 << 20);
  const int by_quota = static_cast<int>(std::ceil(std::min(quota, double{1 << 20})));
  return std::max(1, std::min(cores_of_affinity(), by_quota));
}

}  // namespace cohort
