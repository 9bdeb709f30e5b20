#include "cohort/collectives/chunks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace cohort::collectives {
namespace {

TEST(ChunkCounter, HandsOutEveryElementOnce) {
  ChunkCounter chunks(10, 4);
  EXPECT_EQ(chunks.claim(), (Range{0, 4}));
  EXPECT_EQ(chunks.claim(), (Range{4, 8}));
  EXPECT_EQ(chunks.claim(), (Range{8, 10}));
  EXPECT_EQ(chunks.claim(), std::nullopt);
  EXPECT_EQ(chunks.claim(), std::nullopt);
}

TEST(ChunkCounter, IsFinishedWhenEveryChunkIsDone) {
  ChunkCounter chunks(8, 4);
  while (chunks.claim()) {
  }
  EXPECT_FALSE(chunks.finished());
  EXPECT_FALSE(chunks.done());
  EXPECT_FALSE(chunks.finished());
  EXPECT_TRUE(chunks.done());
  EXPECT_TRUE(chunks.finished());
}

TEST(ChunkCounter, OfNothingIsFinishedAtOnce) {
  ChunkCounter chunks(0, 4);
  EXPECT_EQ(chunks.claim(), std::nullopt);
  EXPECT_TRUE(chunks.finished());
}

TEST(ChunkCounter, RefusesEmptyChunks) { EXPECT_THROW(ChunkCounter(10, 0), ValueError); }

TEST(ChunkCounter, ShowsAllWritesToWhoSeesItFinished) {
  for (int round = 0; round < 50; ++round) {
    std::vector<int> visits(1000);
    ChunkCounter chunks(1000, 7);
    std::atomic<int> lasts = 0;
    const auto work = [&] {
      while (const auto range = chunks.claim()) {
        for (int64_t i = range->begin; i < range->end; ++i) ++visits[i];
        if (chunks.done()) ++lasts;
      }
    };
    {
      const std::jthread one(work), two(work);
      while (!chunks.finished()) std::this_thread::yield();
      EXPECT_EQ(visits, std::vector<int>(1000, 1));
    }
    EXPECT_EQ(lasts, 1);
  }
}

}  // namespace
}  // namespace cohort::collectives
