#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "cohort/device/wait_clock.h"

namespace cohort {

/// Which engine moves the bytes of a collective.
class CommunicationImplementation {
 public:
  enum Kind { AUTO, RING, NCCL };

  constexpr CommunicationImplementation(Kind kind) : kind_(kind) {}  // NOLINT
  /// In any case; throws ValueError for a name other than AUTO, RING and NCCL.
  CommunicationImplementation(std::string_view name);  // NOLINT
  CommunicationImplementation(const char* name)        // NOLINT
      : CommunicationImplementation(std::string_view(name)) {}
  CommunicationImplementation(const std::string& name)  // NOLINT
      : CommunicationImplementation(std::string_view(name)) {}

  constexpr operator Kind() const { return kind_; }  // NOLINT
  const char* name() const;

 private:
  Kind kind_;
};

/// How a collective is to be carried out. Never changes a result, only how fast it comes.
struct CommunicationOptions {
  /// Gradients are packed until a pack holds more than this many bytes; 0 means one pack. Smaller
  /// packs start earlier, larger ones cost fewer messages.
  std::int64_t bytes_per_pack = 0;

  /// A replica that waits longer for others fails with DeadlineExceeded, which names those that
  /// have not come. None waits for ever. Replicas that share a device take turns: allow for what
  /// all of them compute between two collectives.
  std::optional<std::chrono::duration<double>> timeout = {};

  /// After this long, and then after every further twice as long, a warning names who is missing
  /// and what the others wait in. Raise it where replicas compute for minutes between collectives,
  /// lower it to look for a hang.
  std::chrono::duration<double> warn_after = kWarnAfter;
  static constexpr std::chrono::duration<double> kWarnAfter = std::chrono::seconds(30);

  /// AUTO takes NCCL between GPUs and RING elsewhere.
  CommunicationImplementation implementation = CommunicationImplementation::AUTO;

  /// Throws ValueError for negative bytes or a time that is not positive.
  void validate() const;

  WaitLimits wait_limits() const { return {timeout, warn_after}; }

  /// These options with the fields of `other` that are not at their defaults.
  CommunicationOptions merged_with(const CommunicationOptions& other) const;
};

}  // namespace cohort
