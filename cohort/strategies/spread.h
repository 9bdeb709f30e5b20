#pragma once

#include <vector>

#include "cohort/distribute/strategy_extended.h"

namespace cohort {

/// Where replicas and their logical devices lie.
struct Spread {
  ReplicaLayout layout;
  /// Of each copy of the layout; empty where replicas have one logical device.
  std::vector<std::vector<Device>> logical_devices;
};

/// Deals the logical devices of all replicas out to the devices, in blocks: those of one replica
/// lie side by side. Several may share a device, whose results do not depend on that. No number of
/// replicas means as many as have `per_replica` devices each, and at least one.
///
/// Throws ValueError unless `per_replica` is positive, and for devices that do not divide into
/// replicas.
Spread spread(const char* strategy, std::vector<Device> devices, int replicas, int per_replica);

/// The same for the replicas that this worker has of a world.
Spread spread(const char* strategy, std::vector<Device> devices, std::shared_ptr<World> world,
              int per_replica);

}  // namespace cohort
