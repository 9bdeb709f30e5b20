#pragma once

namespace cohort {

/// Whether Cohort may change settings of the whole process; process_settings.h says which.
enum class ProcessSettings { APPLY, LEAVE_ALONE };

/// What a program may say about the process it runs in. Every field has a working default.
struct Configuration {
  /// The number of CPU slots: how many replicas may compute on the CPU at the same time. 0 means
  /// `COHORT_CPU_DEVICES`, else one for each core that the process may use. Raise it to try a
  /// program for eight devices on a laptop; more slots than cores gain no speed.
  int cpu_devices = 0;

  /// Say LEAVE_ALONE where Cohort is a guest: in a server, a plug-in, a program that sets up its
  /// allocator and its BLAS itself. `COHORT_PROCESS_SETTINGS=leave` says the same.
  ProcessSettings process_settings = ProcessSettings::APPLY;
};

/// Replaces the configuration. Strategies made afterwards follow it; those made before keep the
/// devices they have, and process settings already made stay. A field left out is the default
/// again.
///
///     cohort::configure({.cpu_devices = 8});
///
/// Throws ValueError for a number of devices below 0 or above `kMaxCpuDevices`; nothing has changed
/// then. May be called from any thread.
void configure(const Configuration& configuration);

/// The configuration as `configure` left it. The environment is not in it.
Configuration current_configuration();

inline constexpr int kMaxCpuDevices = 4096;

}  // namespace cohort
