#pragma once

#include <functional>
#include <optional>
#include <string>

namespace cohort {

/// How many cores the process may use at the same time, at least 1: the cores of its affinity mask
/// (`taskset`, Slurm), or fewer where a cgroup's CPU quota (`docker run --cpus`, Kubernetes limits)
/// gives less time than that. A quota of 2.5 cores counts as 3.
///
/// Looks anew each time, which costs a few file reads. May be called from any thread.
int allowed_cores();

/// Gives a file's contents, or nothing if it cannot be read.
using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;

/// The CPU quota, in cores, of the cgroup that the process is in and of those above it: the
/// smallest counts. Nothing if there is no limit, or no cgroup. Knows version 1 and 2, and both
/// mounted side by side; finds them through `/proc/self/mountinfo` and `/proc/self/cgroup`.
/// All that it sees of the machine comes through `read`.
std::optional<double> cgroup_cpu_quota(const ReadFile& read);

}  // namespace cohort
