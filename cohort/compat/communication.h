#pragma once

#include <cstdint>
#include <optional>

#include "cohort/collectives/communication_options.h"

namespace cohort::compat {

/// `CommunicationOptions` as TensorFlow 2.3 called them; stands wherever those are wanted.
class CollectiveHints {
 public:
  /// Throws ValueError for negative bytes or a timeout that is not positive.
  explicit CollectiveHints(std::int64_t bytes_per_pack = 0,
                           std::optional<double> timeout_seconds = std::nullopt);

  operator const CommunicationOptions&() const { return options_; }  // NOLINT

 private:
  CommunicationOptions options_;
};

/// `CommunicationImplementation` as TensorFlow 2.0 to 2.3 called it: AUTO, RING, NCCL.
class CollectiveCommunication : public CommunicationImplementation {
 public:
  CollectiveCommunication(Kind kind);  // NOLINT(google-explicit-constructor)
};

}  // namespace cohort::compat
