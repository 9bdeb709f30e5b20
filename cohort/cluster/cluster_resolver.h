#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cohort {

/// Says which processes a program consists of, where they are, and which of them this one is. One
/// class for each way to find out; `strategy.cluster_resolver()` hands out the strategy's own.
///
///     if (strategy.cluster_resolver()->task_type() == "worker") { … }   // only on workers
///
/// A task is a process: a job, such as "worker", and its number there, from 0. Arguments that are
/// left out, or std::nullopt, mean "any", or this process where there can be only one.
///
/// A constant object may be used from several threads.
class ClusterResolver {
 public:
  /// The addresses of each job's tasks, "host:port".
  using ClusterSpec = std::map<std::string, std::vector<std::string>>;

  virtual ~ClusterResolver() = default;

  /// Every task; none where the program is one process.
  virtual ClusterSpec cluster_spec() const = 0;

  /// Where to talk to a task: "rpc_layer://host:port", or "host:port" without an `rpc_layer`. ""
  /// where the program is one process. Throws ValueError for a task that does not exist.
  virtual std::string master(const std::optional<std::string>& task_type,
                             std::optional<int> task_id,
                             const std::optional<std::string>& rpc_layer) const = 0;
  std::string master(const std::optional<std::string>& task_type,
                     std::optional<int> task_id) const {
    return master(task_type, task_id, std::nullopt);
  }
  std::string master() const { return master(std::nullopt, std::nullopt, std::nullopt); }

  /// How many accelerators of each kind a task has: {"TPU": 8}. Empty for a task without any, and
  /// for one that does not exist.
  virtual std::map<std::string, int> num_accelerators(const std::optional<std::string>& task_type,
                                                      std::optional<int> task_id) const = 0;
  std::map<std::string, int> num_accelerators() const {
    return num_accelerators(std::nullopt, std::nullopt);
  }

  /// The environment that the program runs in, such as "google"; "" for no special one.
  virtual std::string environment() const { return ""; }

  /// Which task this process is. "" and -1 where the resolver does not know.
  virtual std::string task_type() const { return task_type_; }
  virtual int task_id() const { return task_id_; }

  /// Says it to the resolver. `cluster_spec` does not change, but where a class says so.
  virtual void set_task_type(std::string task_type) { task_type_ = std::move(task_type); }
  virtual void set_task_id(int task_id) { task_id_ = task_id; }

  /// How tasks are talked to, such as "grpc"; "" where the resolver does not know.
  virtual std::string rpc_layer() const { return ""; }

 protected:
  ClusterResolver() = default;
  ClusterResolver(std::string task_type, int task_id)
      : task_type_(std::move(task_type)), task_id_(task_id) {}

  // Only whole resolvers are copied.
  ClusterResolver(const ClusterResolver&) = default;
  ClusterResolver(ClusterResolver&&) = default;
  ClusterResolver& operator=(const ClusterResolver&) = default;
  ClusterResolver& operator=(ClusterResolver&&) = default;

 private:
  std::string task_type_;
  int task_id_ = -1;
};

namespace cluster {

using cohort::ClusterResolver;

/// The address of a task. Throws ValueError if `spec` has no such job, or the job no such task.
std::string task_address(const ClusterResolver::ClusterSpec& spec, const std::string& task_type,
                         int task_id);

/// "rpc_layer://address"; the address alone where `rpc_layer` is empty.
std::string master_url(const std::string& address, const std::string& rpc_layer);

}  // namespace cluster
}  // namespace cohort
