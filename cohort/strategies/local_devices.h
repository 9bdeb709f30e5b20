#pragma once

#include <string>
#include <vector>

#include "cohort/device/device.h"

namespace cohort {

/// The devices as a strategy of one machine takes them: none means all GPUs, else all logical CPU
/// devices. Throws ValueError for one that does not exist, or that belongs to another task while
/// others do not; RuntimeError if all of them belong to other tasks.
std::vector<Device> local_devices(const char* strategy, std::vector<Device> devices);

/// The same, each device once. Throws ValueError for one that is named twice.
std::vector<Device> distinct_local_devices(const char* strategy, std::vector<Device> devices);

/// "cpu:0, cpu:1".
std::string names_of(const std::vector<Device>& devices);

/// What a strategy with several replicas does to the process once: settings, and a warning when
/// its BLAS is slow.
void prepare_process();

}  // namespace cohort
