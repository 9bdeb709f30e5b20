#pragma once

#include <optional>

#include "cohort/data/dataset.h"

namespace cohort {

/// How many input pipelines there are.
enum class InputReplicationMode {
  PER_WORKER,   ///< One for each worker; its elements go to the worker's replicas in turn.
  PER_REPLICA,  ///< One for each replica.
};

/// How a strategy brings a dataset to its replicas.
struct InputOptions {
  /// Elements are put on the devices of their replicas; false leaves them on the host.
  bool fetch_to_device = true;
  InputReplicationMode replication_mode = InputReplicationMode::PER_WORKER;
  /// The pipeline itself runs on the replica's device. Needs PER_REPLICA, and not fetch_to_device.
  bool place_dataset_on_device = false;
  /// How many steps are made ahead, in the background; 0: none.
  int per_replica_buffer_size = 2;
  /// Wins over the dataset's own options.
  std::optional<data::AutoShardPolicy> auto_shard = {};
};

}  // namespace cohort
