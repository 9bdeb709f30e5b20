#include "cohort/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace cohort {
namespace {

using ::testing::EndsWith;
using ::testing::StrEq;

TEST(Cat, JoinsItsArgumentsAsStreamsPrintThem) {
  EXPECT_EQ(cat("replica ", 3, " of ", 8u, ": ", 0.5), "replica 3 of 8: 0.5");
}

TEST(Error, TextNamesTheCallBeforeWhatIsWrong) {
  const ValueError error("strategy.reduce", "axis: expected 0 or 1, got 2");
  EXPECT_THAT(error.what(), StrEq("[strategy.reduce] axis: expected 0 or 1, got 2"));
}

TEST(Error, KindIsNamedAsTensorFlowSpellsIt) {
  EXPECT_EQ(ValueError("f", "x").kind(), "ValueError");
  EXPECT_EQ(DeadlineExceeded("f", "x").kind(), "DeadlineExceeded");
}

TEST(Error, OneKindIsNotCaughtAsAnother) {
  const auto throw_unavailable = [] { throw Unavailable("all_reduce", "worker 3 is gone"); };
  EXPECT_THROW(throw_unavailable(), Unavailable);
  try {
    throw_unavailable();
  } catch (const Cancelled&) {
    FAIL() << "caught as Cancelled";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "Unavailable");
  }
}

TEST(Error, IsAStandardException) {
  try {
    throw KeyError("variables", "no variable named bias");
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), EndsWith("no variable named bias"));
  }
}

TEST(Error, NotesFollowTheTextInTheOrderAdded) {
  RuntimeError error("merge_call", "not in a replica");
  error.add_note("replica 1");
  error.add_note("step 41");
  EXPECT_THAT(error.what(), StrEq("[merge_call] not in a replica (replica 1) (step 41)"));
}

TEST(Error, TheSameNoteIsAddedOnce) {
  RuntimeError error("merge_call", "not in a replica");
  error.add_note("replica 1");
  error.add_note("replica 1");
  EXPECT_THAT(error.what(), StrEq("[merge_call] not in a replica (replica 1)"));
}

}  // namespace
}  // namespace cohort
