#pragma once

#include <chrono>
#include <optional>

#include "cohort/device/parker.h"

namespace cohort {

/// How long a thread waits for others.
struct WaitLimits {
  using Seconds = std::chrono::duration<double>;

  /// A longer wait fails; none waits for ever.
  std::optional<Seconds> timeout = {};

  /// After this long the log names who is missing, and again after every further twice as long.
  Seconds warn_after = std::chrono::seconds(30);
};

/// Tells a thread that waits when its wait has lasted too long.
///
///     WaitClock clock(limits);
///     while (parker.wait(patience, clock.next()) == 0) {
///       if (clock.due() == WaitClock::TIMEOUT) throw …;
///     }
class WaitClock {
 public:
  enum Due { NOTHING, WARNING, TIMEOUT };

  /// The wait begins now.
  explicit WaitClock(const WaitLimits& limits) : limits_(limits) { restart(); }
  void restart();

  const WaitLimits& limits() const { return limits_; }

  /// When something comes due next.
  Parker::Deadline next() const;

  /// What has come due, once; it comes due again later if the wait goes on.
  Due due();

  /// How long the wait has lasted.
  WaitLimits::Seconds waited() const;

 private:
  using Time = std::chrono::steady_clock::time_point;

  WaitLimits limits_;
  Time begin_, warning_;
  std::optional<Time> timeout_;
};

}  // namespace cohort
