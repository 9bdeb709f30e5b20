#pragma once

#include <gtest/gtest.h>

#include <string>

#include "cohort/base/error.h"

namespace cohort {

/// "ValueError: [where] text" of what fn throws; "nothing" if it does not.
template <class F>
std::string failure_of(F&& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.kind() + ": " + error.what();
  }
  return "nothing";
}

/// Expects that the statement throws exactly this class, with these words in its text.
#define EXPECT_FAILS(statement, Kind, words)                              \
  do {                                                                    \
    const std::string failure = ::cohort::failure_of([&] { statement; }); \
    EXPECT_EQ(failure.substr(0, failure.find(':')), #Kind) << failure;    \
    EXPECT_NE(failure.find(words), std::string::npos) << failure;         \
  } while (false)

}  // namespace cohort
