#include "cohort/device/wait_clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace cohort {
namespace {

using Seconds = WaitLimits::Seconds;

constexpr Seconds kAtOnce{0}, kNever{1e12};

TEST(WaitClock, NothingIsDueBeforeItsTime) {
  WaitClock clock({.timeout = kNever, .warn_after = kNever});
  EXPECT_EQ(clock.due(), WaitClock::NOTHING);
  EXPECT_GT(*clock.next(), std::chrono::steady_clock::now());
  EXPECT_GE(clock.waited().count(), 0);
}

TEST(WaitClock, WithoutATimeoutThereAreWarningsOnly) {
  WaitClock clock({.warn_after = kAtOnce});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(clock.due(), WaitClock::WARNING);
}

TEST(WaitClock, WarnsAgainAfterTwiceTheTimeBeforeTheFirstWarning) {
  EXPECT_EQ(WaitLimits().warn_after, std::chrono::seconds(30)) << "and then every minute";
  constexpr Seconds kSoon{1. / 64};
  WaitClock clock({.warn_after = kSoon});
  for (int warning = 0; warning < 3; ++warning) {
    std::this_thread::sleep_until(*clock.next());
    const auto before = std::chrono::steady_clock::now();
    EXPECT_EQ(clock.due(), WaitClock::WARNING);
    const auto after = std::chrono::steady_clock::now();
    EXPECT_GE(Seconds(*clock.next() - before).count(), 2 * kSoon.count());
    EXPECT_LE(Seconds(*clock.next() - after).count(), 2 * kSoon.count());
  }
}

TEST(WaitClock, ATimeoutComesBeforeAWarning) {
  WaitClock clock({.timeout = kAtOnce, .warn_after = kAtOnce});
  EXPECT_EQ(clock.due(), WaitClock::TIMEOUT);
  WaitClock soon({.timeout = kAtOnce, .warn_after = kNever});
  EXPECT_LE(*soon.next(), std::chrono::steady_clock::now());
}

TEST(WaitClock, StartsAnew) {
  const Seconds hour = std::chrono::hours(1);
  WaitClock clock({.timeout = hour, .warn_after = kNever});
  const auto before = *clock.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  clock.restart();
  EXPECT_GT(*clock.next(), before);
}

}  // namespace
}  // namespace cohort
