#include "cohort/device/wait_clock.h"

#include <algorithm>

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

/// Much longer waits than a process lives would overflow the clock.
Clock::time_point later(Clock::time_point time, WaitLimits::Seconds wait) {
  constexpr WaitLimits::Seconds kLongest{1e9};
  return time + std::chrono::duration_cast<Clock::duration>(std::min(wait, kLongest));
}

}  // namespace

void WaitClock::restart() {
  begin_ = Clock::now();
  warning_ = later(begin_, limits_.warn_after);
  if (limits_.timeout) timeout_ = later(begin_, *limits_.timeout);
}

Parker::Deadline WaitClock::next() const {
  return timeout_ ? std::min(*timeout_, warning_) : warning_;
}

WaitClock::Due WaitClock::due() {
  const auto now = Clock::now();
  if (timeout_ && now >= *timeout_) {
    timeout_ = later(now, *limits_.timeout);
    return TIMEOUT;
  }
  if (now < warning_) return NOTHING;
  warning_ = later(now, 2 * limits_.warn_after);
  return WARNING;
}

WaitLimits::Seconds WaitClock::waited() const { return Clock::now() - begin_; }

}  // namespace cohort
