#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::cluster {

/// What a TPU system consists of.
struct TPUSystemMetadata {
  int num_cores = 0;
  int num_hosts = 0;
  int num_of_cores_per_host = 0;

  /// "/job:localhost/replica:0/task:0/device:TPU:0" and so on, one for each core.
  std::vector<std::string> devices;
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
class TPUClusterResolver {
 public:
  using ClusterSpec = std::map<std::string, std::vector<std::string>>;

  /// `tpu` is "local:XxYxZxC", the sizes of the mesh along x, y and z and the cores of a chip; or
  /// "local", a chip with a core for each CPU slot that there is now (logical_devices.h); or
  /// "grpc://host:port", several with commas between them, a task each. Where it is empty, the
  /// environment is asked: KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, then TPU_NAME.
  ///
  /// Throws ValueError for sizes that are not four positive numbers or more than `kMaxCpuDevices`
  /// cores in all, for nothing at all, and for the name of a TPU, which nobody here can look up.
  explicit TPUClusterResolver(std::string_view tpu, std::string_view job_name = "worker");

  /// Throws ValueError for no TPU, and NotImplementedError for several.
  explicit TPUClusterResolver(const std::vector<std::string>& tpus,
                              std::string_view job_name = "worker");

  /// The text that the resolver was made from.
  const std::string& tpu() const { return tpu_; }

  /// The sizes along x, y and z, and the cores of a chip. Throws RuntimeError for a system that is
  /// not simulated: what to do instead.
  const std::vector<int>& mesh_shape() const;

  /// The addresses of each job's tasks; none for a simulated system.
  ClusterSpec cluster_spec() const;

  /// The address to talk to, of a task or of this one: "grpc://host:port". "" for a simulated
  /// system, as for every TPU that is attached to the machine itself. Throws ValueError for a task
  /// that does not exist.
  std::string master() const { return master(job_name_, 0); }
  std::string master(const std::string& task_type, int task_id) const;

  /// The job that the TPU's tasks belong to, and this process's place in it.
  const std::string& get_job_name() const { return job_name_; }
  const std::string& task_type() const { return job_name_; }
  int task_id() const { return 0; }

  /// Always "".
  std::string environment() const { return ""; }

  /// {"TPU": the number of cores of a task}. Throws as `mesh_shape`.
  std::map<std::string, int> num_accelerators() const;

  /// Throws as `mesh_shape`.
  TPUSystemMetadata get_tpu_system_metadata() const;

 private:
  int num_cores() const;

  std::string tpu_;
  std::string job_name_;
  std::vector<int> mesh_shape_;         // empty: not simulated
  std::vector<std::string> addresses_;  // of the tasks
};

}  // namespace cohort::cluster
