#include "cohort/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::log {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

/// Collects what is logged during a test, and puts the log back as it was.
class Log : public ::testing::Test {
 protected:
  Log()
      : sink_before_(set_sink([this](Level level, std::string_view message) {
          lines_.emplace_back(level, std::string(message));
        })),
        level_before_(set_level(Level::INFO)) {}

  ~Log() override {
    set_sink(std::move(sink_before_));
    set_level(level_before_);
  }

  std::vector<std::pair<Level, std::string>> lines_;

 private:
  Sink sink_before_;
  Level level_before_;
};

TEST_F(Log, LinesCarryTheirLevelAndJoinTheirParts) {
  info("step ", 1);
  warning("slow worker ", 2);
  error("lost worker ", 3);
  EXPECT_THAT(lines_,
              ElementsAre(Pair(Level::INFO, "step 1"), Pair(Level::WARNING, "slow worker 2"),
                          Pair(Level::ERROR, "lost worker 3")));
}

TEST_F(Log, LinesBelowTheLevelAreNotWritten) {
  set_level(Level::WARNING);
  info("chatter");
  warning("trouble");
  EXPECT_THAT(lines_, ElementsAre(Pair(Level::WARNING, "trouble")));
}

TEST_F(Log, OffSilencesErrorsToo) {
  set_level(Level::OFF);
  error("trouble");
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(Log, SettersReturnWhatWasSetBefore) {
  EXPECT_EQ(set_level(Level::ERROR), Level::INFO);
  EXPECT_EQ(set_level(Level::INFO), Level::ERROR);

  int seen = 0;
  const Sink collector = set_sink([&](Level, std::string_view) { ++seen; });
  warning("to the counter");
  set_sink(collector);
  warning("to the collector again");
  EXPECT_EQ(seen, 1);
  EXPECT_THAT(lines_, ElementsAre(Pair(Level::WARNING, "to the collector again")));
}

TEST_F(Log, AnEmptySinkMeansStandardError) {
  const Sink collector = set_sink({});
  ::testing::internal::CaptureStderr();
  warning("no fast BLAS");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "cohort WARNING: no fast BLAS\n");
  set_sink(collector);
}

TEST_F(Log, ThreadsDoNotLoseEachOthersLines) {
  constexpr int kThreads = 4;
  constexpr int kLines = 250;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kLines; ++i) info("thread ", t, " line ", i);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(lines_, SizeIs(kThreads * kLines));
}

TEST(LogFirst, IsTrueOnceForEachKey) {
  EXPECT_TRUE(first("log_test once"));
  EXPECT_FALSE(first("log_test once"));
  EXPECT_TRUE(first("log_test another"));
}

TEST(LogFirst, IsTrueForAsManyCallsAsAskedFor) {
  EXPECT_TRUE(first("log_test twice", 2));
  EXPECT_TRUE(first("log_test twice", 2));
  EXPECT_FALSE(first("log_test twice", 2));
}

}  // namespace
}  // namespace cohort::log
