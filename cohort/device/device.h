#pragma once

#include <c10/core/Device.h>

#include <compare>
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace cohort {

/// LibTorch's own enumeration; Cohort uses `CPU` and `CUDA` of it.
using c10::DeviceType;

/// The name of a place where a replica computes: an execution slot of the CPU, or a GPU.
///
/// A device is a value: copy it, compare it, print it, use it as a key. Making one checks the text
/// but not the machine; `resolve_devices` (logical_devices.h) asks whether the device exists.
///
/// Text is accepted as LibTorch and as TensorFlow spell it, device types in any case:
///
///     cpu:0   cuda:1   gpu:1   CPU:0   cpu                      // no index means 0
///     /cpu:0   /gpu:1   /device:CPU:0
///     /job:worker/task:1   /job:worker/replica:0/task:1/device:GPU:0
///
/// `*` in place of a number or a job means "not given". What is not given is filled in: job
/// localhost, replica 0, task 0, CPU, index 0. Two devices are equal when they are after that,
/// however they were spelled: `Device("gpu:0") == Device("/device:GPU:0")`.
///
/// Strings convert, so that lists of devices read well:
///
///     cohort::MirroredStrategy strategy({"cpu:0", "cpu:1"});
///     if (device == "cpu:0") …
///
/// A constant object may be used from several threads.
class Device {
 public:
  /// The first slot of the CPU.
  Device() = default;

  /// A device of this process. Throws ValueError for a type other than CPU and CUDA, or index < 0.
  Device(DeviceType type, int index);

  /// These mean `parse(text)`.
  Device(const char* text);         // NOLINT(google-explicit-constructor)
  Device(const std::string& text);  // NOLINT(google-explicit-constructor)
  Device(std::string_view text);    // NOLINT(google-explicit-constructor)

  /// Throws ValueError, with the accepted forms, for text that is malformed or empty.
  static Device parse(std::string_view text);

  DeviceType type() const noexcept { return type_; }
  int index() const noexcept { return index_; }

  /// True for job localhost, replica 0, task 0: a process that is alone.
  bool is_local() const noexcept { return job_ == "localhost" && replica_ == 0 && task_ == 0; }

  /// The task that owns the device.
  const std::string& job() const noexcept { return job_; }
  int replica() const noexcept { return replica_; }
  int task() const noexcept { return task_; }

  /// TensorFlow's full form: `/job:localhost/replica:0/task:0/device:CPU:0`.
  std::string name() const;

  /// LibTorch's form, without the task: `cpu:0`, `cuda:1`.
  std::string short_name() const;

  /// The text that the device was made from; `short_name()` if there was none.
  std::string spelled() const;

  /// The same device in another task. Throws ValueError for a bad job name or a negative task.
  Device on_task(std::string_view job, int task) const;

  /// Where tensors of this device live. LibTorch knows only one CPU, so that all CPU slots give
  /// plain `cpu`; `cuda:1` gives `cuda:1`. The task has no say in it.
  c10::Device torch_device() const;

  friend bool operator==(const Device& a, const Device& b) noexcept;
  /// By job, replica, task, type and index: the order of a job's devices.
  friend std::strong_ordering operator<=>(const Device& a, const Device& b) noexcept;
  /// Prints `short_name()`, or `name()` if the device is not this process's own.
  friend std::ostream& operator<<(std::ostream& out, const Device& device);

 private:
  friend std::string canonicalize(std::string_view device, std::string_view default_device);
  static Device complete(std::string_view text, std::string_view default_device);

  DeviceType type_ = DeviceType::CPU;
  int index_ = 0;
  int replica_ = 0;
  int task_ = 0;
  std::string job_ = "localhost";
  std::string spelled_;
};

/// The full form of `device`, part by part: what `device` says, else what `default_device` says,
/// else job localhost, replica 0, task 0, CPU, index 0. Either may be empty, and says nothing then.
/// Throws ValueError for malformed text.
///
///     canonicalize("/job:worker/task:1", "/gpu:0")   // /job:worker/replica:0/task:1/device:GPU:0
std::string canonicalize(std::string_view device, std::string_view default_device = {});

}  // namespace cohort

template <>
struct std::hash<cohort::Device> {
  std::size_t operator()(const cohort::Device& device) const noexcept;
};
