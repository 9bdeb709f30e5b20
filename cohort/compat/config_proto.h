#pragma once

#include "cohort/distribute/strategy.h"

namespace cohort::compat {

/// What strategies of one machine set of TensorFlow 1's `tf.ConfigProto`. Cohort has no sessions,
/// so that nothing reads it: a program that is moved over can delete its use later.
struct ConfigProto {
  /// Whether sessions of one process keep their variables apart.
  bool isolate_session_state = false;
};

/// A copy of the configuration, changed for use with the strategy: strategies that distribute
/// variables isolate the state of sessions.
ConfigProto update_config_proto(const Strategy& strategy, const ConfigProto& config);

}  // namespace cohort::compat
