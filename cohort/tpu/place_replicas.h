#pragma once

#include <vector>

#include "cohort/tpu/device_assignment.h"

namespace cohort::tpu {

/// The places of each replica's logical cores, as [replica][logical core]: what
/// `DeviceAssignment::build` promises, with its errors.
std::vector<std::vector<Coordinates>> place_replicas(const Topology& topology,
                                                     const AssignmentOptions& options);

}  // namespace cohort::tpu
