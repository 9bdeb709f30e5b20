#include "cohort/cluster/cluster_resolver.h"

#include "cohort/base/error.h"

namespace cohort::cluster {
namespace {

std::string jobs_of(const ClusterResolver::ClusterSpec& spec) {
  std::string jobs;
  for (const auto& [job, tasks] : spec) jobs += cat(jobs.empty() ? "'" : " or '", job, '\'');
  return jobs.empty() ? "none, as the cluster is empty" : jobs;
}

}  // namespace

std::string task_address(const ClusterResolver::ClusterSpec& spec, const std::string& task_type,
                         int task_id) {
  const auto job = spec.find(task_type);
  if (job == spec.end()) {
    throw ValueError("cluster_resolver.master",
                     cat("No such job in cluster: '", task_type, "': expected ", jobs_of(spec)));
  }
  const auto& tasks = job->second;
  if (task_id < 0 || task_id >= static_cast<int>(tasks.size())) {
    throw ValueError("cluster_resolver.master",
                     cat("No task with index ", task_id, " in job '", task_type,
                         "': expected one of ", tasks.size(), ", from 0"));
  }
  return tasks[task_id];
}

std::string master_url(const std::string& address, const std::string& rpc_layer) {
  return rpc_layer.empty() ? address : cat(rpc_layer, "://", address);
}

}  // namespace cohort::cluster
