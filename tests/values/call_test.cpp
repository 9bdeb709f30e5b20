#include "cohort/values/call.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace cohort {
namespace {

const auto joined = [](int number, const std::string& text) {
  return text + std::to_string(number);
};

TEST(NestCall, GivesArgumentsAsTheyAreToAFunctionThatTakesThem) {
  EXPECT_EQ(nest::call(joined, 1, "a"), "a1");
  const auto whole = [](const std::pair<int, int>& pair) { return pair.first * pair.second; };
  EXPECT_EQ(nest::call(whole, std::pair(2, 3)), 6);
}

TEST(NestCall, GivesThePartsOfATupleOrPairToAFunctionThatTakesThose) {
  EXPECT_EQ(nest::call(joined, std::pair(1, std::string("a"))), "a1");
  EXPECT_EQ(nest::call(joined, std::tuple(1, std::string("a"))), "a1");
  const auto sum = [](int a, int b, int c) { return a + b + c; };
  EXPECT_EQ(nest::call(sum, std::pair(1, 2), 3), 6);
  EXPECT_EQ(nest::call(sum, 1, std::tuple(2, 3)), 6);
}

TEST(NestCall, DoesNotCopyTheParts) {
  const std::pair<std::string, int> pair("text", 1);
  const auto is_same = [&](const std::string& text, int) { return &text == &pair.first; };
  EXPECT_TRUE(nest::call(is_same, pair));
}

TEST(NestCall, KnowsWhatAFunctionTakes) {
  static_assert(nest::Takes<decltype(joined), int, std::string>);
  static_assert(nest::Takes<decltype(joined), std::pair<int, std::string>>);
  static_assert(!nest::Takes<decltype(joined), int>);
  static_assert(!nest::Takes<decltype(joined), std::pair<std::string, int>>);
  static_assert(!nest::Takes<decltype(joined), std::tuple<int>>);
}

}  // namespace
}  // namespace cohort
