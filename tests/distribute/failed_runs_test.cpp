#include "cohort/distribute/failed_runs.h"

#include <gtest/gtest.h>

namespace cohort::detail {
namespace {

TEST(FailedRuns, AreThoseThatWereAdded) {
  FailedRuns runs;
  runs.add(3);
  EXPECT_TRUE(runs.contains(3));
  EXPECT_FALSE(runs.contains(2));
  EXPECT_FALSE(runs.contains(4));
  EXPECT_FALSE(runs.contains(0)) << "no run";
}

TEST(FailedRuns, AreRememberedUpToANumber) {
  FailedRuns runs;
  const std::uint64_t many = 5 * FailedRuns::kRemembered;
  for (std::uint64_t run = 2; run <= many; run += 2) runs.add(run);
  EXPECT_EQ(runs.remembered(), FailedRuns::kRemembered);
  EXPECT_TRUE(runs.contains(many));
  EXPECT_FALSE(runs.contains(many - 1)) << "went well";
}

TEST(FailedRuns, FromBeforeThoseRememberedCountAsFailed) {
  FailedRuns runs;
  for (std::uint64_t run = 1; run <= 2 * FailedRuns::kRemembered; ++run) runs.add(2 * run);
  EXPECT_TRUE(runs.contains(2));
  EXPECT_TRUE(runs.contains(3));
}

}  // namespace
}  // namespace cohort::detail
