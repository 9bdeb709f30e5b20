#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/cluster/cluster_resolver.h"

namespace cohort::cluster {

/// What a TPU system consists of.
struct TPUSystemMetadata {
  int num_cores = 0;
  int num_hosts = 0;
  int num_of_cores_per_host = 0;

  /// "/job:localhost/replica:0/task:0/device:TPU:0" and so on, one for each core.
  std::vector<std::string> devices;
};

/// What a TPUClusterResolver knows besides the TPU's name.
struct TPUClusterResolverOptions {
  /// Where the cloud is to look for a TPU that is given by name. Where they are empty, TPU_CONFIG's
  /// are taken together with its name.
  std::string zone = {};
  std::string project = {};

  /// The job that the TPU's tasks belong to.
  std::string job_name = "worker";

  /// A job of one task beside the TPU's: the process that tells them what to do. Both or none.
  std::string coordinator_name = {};
  std::string coordinator_address = {};
};

/// Finds the TPU system that a program runs on. Here only a simulated one can be used: a mesh of
/// chips whose cores are this machine's, all in one task.
///
///     cluster::TPUClusterResolver resolver("local:2x2x1x2");   // 2x2x1 chips with 2 cores each
///     const auto topology = tpu::initialize_system(resolver);
///
/// The addresses of a real one are understood, but nothing here can connect to it.
///
/// A constant object may be used from several threads.
class TPUClusterResolver : public ClusterResolver {
 private:
  struct NoName {
    NoName() = delete;
  };

 public:
  using Options = TPUClusterResolverOptions;

  /// Asks the environment for the TPU: KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, then TPU_NAME, then
  /// TPU_CONFIG, a JSON object with "tpu_node_name" and, where they matter, "project" and "zone".
  TPUClusterResolver() : TPUClusterResolver("") {}

  /// `tpu` is "local:XxYxZxC", the sizes of the mesh along x, y and z and the cores of a chip; or
  /// "local", a chip with a core for each CPU slot that there is now (logical_devices.h); or
  /// "grpc://host:port", several with commas between them, a task each. "" and nullptr ask the
  /// environment.
  ///
  /// Throws ValueError for sizes that are not four positive numbers or more than `kMaxCpuDevices`
  /// cores in all, for an address without a host, for nothing at all, for the name of a TPU, which
  /// nobody here can look up, and for a coordinator without its address.
  template <std::convertible_to<std::string_view> Text>
  explicit TPUClusterResolver(const Text& tpu, const Options& options = {})
      : TPUClusterResolver(std::vector{text_of(tpu)}, options) {}

  /// A list of one TPU, also as `TPUClusterResolver({"local"})`. Throws ValueError for no TPU, and
  /// NotImplementedError for several.
  explicit TPUClusterResolver(const std::vector<std::string>& tpus, const Options& options = {});
  template <std::convertible_to<std::string_view> Text, std::size_t n>
  explicit TPUClusterResolver(const Text (&tpus)[n], const Options& options = {})
      : TPUClusterResolver(texts_of(tpus), options) {}
  explicit TPUClusterResolver(std::initializer_list<NoName> /* {} */, const Options& options = {})
      : TPUClusterResolver(std::vector<std::string>(), options) {}

  /// `tpu`, or a vector of one, with nothing but the name of its job.
  template <class TPU, std::convertible_to<std::string_view> Text>
  TPUClusterResolver(const TPU& tpu, const Text& job_name)
      : TPUClusterResolver(tpu, Options{.job_name = text_of(job_name)}) {}

  /// The text that the resolver was made from, or that the environment had.
  const std::string& tpu() const { return tpu_; }

  /// "" where neither the options nor TPU_CONFIG have it.
  const std::string& zone() const { return options_.zone; }
  const std::string& project() const { return options_.project; }

  /// The sizes along x, y and z, and the cores of a chip. Throws RuntimeError for a system that is
  /// not simulated: what to do instead.
  const std::vector<int>& mesh_shape() const;

  /// The addresses of the TPU's tasks and of the coordinator; none for a simulated system.
  ClusterSpec cluster_spec() const override;

  /// The address of a task, or of `task_type()` and `task_id()` unless both are given:
  /// "grpc://host:port", whatever the `rpc_layer`. "" for a simulated system, as for every TPU that
  /// is attached to the machine itself. Throws ValueError for a task that does not exist.
  using ClusterResolver::master;
  std::string master(const std::optional<std::string>& task_type, std::optional<int> task_id,
                     const std::optional<std::string>& rpc_layer) const override;

  /// The job that the TPU's tasks belong to. This process is its task 0 unless it is told
  /// otherwise: `set_task_id` is another task of the job, and `set_task_type` another name of the
  /// job, for all its tasks, unless it is the coordinator's.
  std::string get_job_name() const;

  /// Always "grpc".
  std::string rpc_layer() const override { return "grpc"; }

  /// {"TPU": the number of cores of a task}. Empty for tasks that are not the TPU's. Throws as
  /// `mesh_shape`.
  using ClusterResolver::num_accelerators;
  std::map<std::string, int> num_accelerators(const std::optional<std::string>& task_type,
                                              std::optional<int> task_id) const override;

  /// Throws as `mesh_shape`.
  TPUSystemMetadata get_tpu_system_metadata() const;

 private:
  static std::string text_of(const char* text) { return text ? text : ""; }
  static std::string text_of(std::string_view text) { return std::string(text); }
  template <class Text, std::size_t n>
  static std::vector<std::string> texts_of(const Text (&list)[n]) {
    std::vector<std::string> texts;
    for (const Text& each : list) texts.push_back(text_of(each));
    return texts;
  }

  int num_cores() const;

  std::string tpu_;
  Options options_;
  std::vector<int> mesh_shape_;         // empty: not simulated
  std::vector<std::string> addresses_;  // of the tasks
};

}  // namespace cohort::cluster
