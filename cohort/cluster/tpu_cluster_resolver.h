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

/// Finds the TPU system that a program runs on. Here this is always a simulated one: a mesh of
/// chips whose cores are this machine's, all in one task.
///
///     cluster::TPUClusterResolver resolver("local:2x2x1x2");   // 2x2x1 chips with 2 cores each
///     const auto topology = tpu::initialize_system(resolver);
///
/// The cluster has this process only, so there is no other task to name and no address to ask for.
///
/// A constant object may be used from several threads.
class TPUClusterResolver {
 public:
  /// `tpu` is "local:XxYxZxC", the sizes of the mesh along x, y and z and the cores of a chip; or
  /// "local", a chip with a core for each CPU slot that there is now (logical_devices.h).
  ///
  /// Throws ValueError for sizes that are not four positive numbers or more than `kMaxCpuDevices`
  /// cores in all, and for anything else, such as the name or the address of a TPU: there is none
  /// here.
  explicit TPUClusterResolver(std::string_view tpu, std::string_view job_name = "worker");

  /// The text that the resolver was made from.
  const std::string& tpu() const { return tpu_; }

  /// The sizes along x, y and z, and the cores of a chip.
  const std::vector<int>& mesh_shape() const { return mesh_shape_; }

  /// The address to talk to: "", as for every TPU that is attached to the machine itself.
  std::string master() const { return ""; }

  /// The job that the TPU's tasks belong to, and this process's place in it.
  const std::string& get_job_name() const { return job_name_; }
  const std::string& task_type() const { return job_name_; }
  int task_id() const { return 0; }

  /// Always "".
  std::string environment() const { return ""; }

  /// {"TPU": the number of cores of a task}.
  std::map<std::string, int> num_accelerators() const;

  TPUSystemMetadata get_tpu_system_metadata() const;

 private:
  int num_cores() const;

  std::string tpu_;
  std::string job_name_;
  std::vector<int> mesh_shape_;
};

}  // namespace cohort::cluster
