#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

TEST(VariableOperators, CalculateWithTensorsNumbersAndVariables) {
  const World world = two_replicas();
  const auto scope = world.strategy.scope();
  const Variable v(at::tensor({1.0f, 2.0f, 3.0f})), w(at::tensor({2.0f, 2.0f, 2.0f}));
  EXPECT_EQ(numbers(v + w), (Numbers{3, 4, 5}));
  EXPECT_EQ(numbers(v - 1), (Numbers{0, 1, 2}));
  EXPECT_EQ(numbers(6 / v), (Numbers{6, 3, 2}));
  EXPECT_EQ(numbers(v * at::tensor({0.0f, 1.0f, 2.0f})), (Numbers{0, 2, 6}));
  EXPECT_EQ(numbers(at::tensor({0.0f, 1.0f, 2.0f}) * v), (Numbers{0, 2, 6}));
  EXPECT_EQ(numbers(v % 2), (Numbers{1, 0, 1}));
  EXPECT_EQ(numbers(-v), (Numbers{-1, -2, -3}));
}

TEST(VariableOperators, CompareElementByElementExceptTwoVariables) {
  const Variable v(at::tensor({1.0f, 2.0f, 3.0f})), same = v, other = v.deep_copy();
  EXPECT_EQ(numbers(v < 2), (Numbers{1, 0, 0}));
  EXPECT_EQ(numbers(v >= other), (Numbers{1, 1, 1}));
  EXPECT_EQ(numbers(v == 2), (Numbers{0, 1, 0}));
  EXPECT_EQ(numbers(v != at::tensor({1.0f, 2.0f, 0.0f})), (Numbers{0, 0, 1}));
  EXPECT_TRUE(v == same);
  EXPECT_FALSE(v == other);
  EXPECT_TRUE(v != other);
}

TEST(VariableOperators, ConvertToNumbersAndTensors) {
  const World world = two_replicas();
  const Variable v = world.make(Synchronization::AUTO, Aggregation::NONE, at::scalar_tensor(1.5f));
  EXPECT_TRUE(static_cast<bool>(v));
  EXPECT_EQ(static_cast<float>(v), 1.5f);
  EXPECT_EQ(static_cast<double>(v), 1.5);
  EXPECT_EQ(static_cast<std::int64_t>(v), 1);
  EXPECT_EQ(number(at::exp(at::Tensor(v))), std::exp(1.5f));
  EXPECT_EQ(number(at::add(v, v)), 3);
}

}  // namespace
}  // namespace cohort
