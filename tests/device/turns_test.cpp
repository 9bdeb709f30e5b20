#include "cohort/device/turns.h"

#include <gtest/gtest.h>

#include <chrono>

namespace cohort {
namespace {

/// Members 0, 1 and 2 share a slot, member 3 has one.
class TakingTurns : public testing::Test {
 protected:
  /// Whether kTurn lies ready for the member.
  bool gets_turn(int member) {
    return turns.wait(member, std::chrono::steady_clock::now()) == Turns::kTurn;
  }

  Turns turns{{0, 0, 0, 1}};
};

TEST_F(TakingTurns, AFreeSlotGoesToTheFirstThatIsReady) {
  turns.ready(1);
  EXPECT_TRUE(gets_turn(1));
  EXPECT_TRUE(turns.holds(1));
  EXPECT_FALSE(turns.holds(0));
}

TEST_F(TakingTurns, ATakenSlotGoesToTheLowestThatIsReady) {
  turns.seize(1);
  turns.ready(2);
  turns.ready(0);
  EXPECT_FALSE(gets_turn(0));
  turns.give_up(1);
  EXPECT_TRUE(gets_turn(0));
  EXPECT_FALSE(gets_turn(2));
  turns.give_up(0);
  EXPECT_TRUE(gets_turn(2));
}

TEST_F(TakingTurns, WhoDoesNotHoldTheSlotGivesNothingUp) {
  turns.seize(1);
  turns.ready(2);
  turns.give_up(0);
  EXPECT_TRUE(turns.holds(1));
  EXPECT_FALSE(gets_turn(2));
}

TEST_F(TakingTurns, WhoWaitsKnowsForWhom) {
  EXPECT_FALSE(turns.waits_for(0));
  turns.seize(1);
  turns.ready(0);
  turns.ready(2);
  EXPECT_EQ(turns.waits_for(0)->holder, 1);
  EXPECT_TRUE(turns.waits_for(0)->is_next);
  EXPECT_FALSE(turns.waits_for(2)->is_next);
  const auto before = turns.waits_for(2)->number;
  turns.give_up(1);
  EXPECT_EQ(turns.waits_for(2)->holder, 0);
  EXPECT_NE(turns.waits_for(2)->number, before);
  EXPECT_FALSE(turns.waits_for(0)) << "has got it";
}

TEST_F(TakingTurns, WhoWithdrawsIsPassedOver) {
  turns.seize(1);
  turns.ready(0);
  turns.ready(2);
  EXPECT_TRUE(turns.withdraw(0));
  EXPECT_FALSE(turns.withdraw(0)) << "is no longer ready";
  turns.give_up(1);
  EXPECT_FALSE(gets_turn(0));
  EXPECT_TRUE(gets_turn(2));
  EXPECT_FALSE(turns.withdraw(2)) << "has got its turn";
}

TEST_F(TakingTurns, ASlotOfOnesOwnIsAlwaysFree) {
  EXPECT_FALSE(turns.shared(3));
  EXPECT_TRUE(turns.holds(3));
  turns.ready(3);
  EXPECT_TRUE(gets_turn(3));
}

}  // namespace
}  // namespace cohort
