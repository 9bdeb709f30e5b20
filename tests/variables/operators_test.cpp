#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

struct VariableOperators : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
};
ON_ALL_LAYOUTS(VariableOperators);

TEST_ON_EACH_WORKER(VariableOperators, CalculateWithTensorsNumbersAndVariables) {
  const auto scope = strategy.scope();
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

TEST_ON_EACH_WORKER(VariableOperators, ConvertToNumbersAndTensors) {
  const Variable v = make(AUTO, A::NONE, at::scalar_tensor(1.5f));
  EXPECT_TRUE(static_cast<bool>(v));
  EXPECT_EQ(static_cast<float>(v), 1.5f);
  EXPECT_EQ(static_cast<double>(v), 1.5);
  EXPECT_EQ(static_cast<std::int64_t>(v), 1);
  EXPECT_EQ(number(at::exp(at::Tensor(v))), std::exp(1.5f));
  EXPECT_EQ(number(at::add(v, v)), 3);
}

TEST(VariableOperators, CalculateWithBits) {
  const Variable v(at::tensor({6, 5, 4})), w(at::tensor({3, 3, 3}));
  EXPECT_EQ(numbers(v & w), (Numbers{2, 1, 0}));
  EXPECT_EQ(numbers(v | 1), (Numbers{7, 5, 5}));
  EXPECT_EQ(numbers(1 ^ v), (Numbers{7, 4, 5}));
  EXPECT_EQ(numbers(~v), (Numbers{-7, -6, -5}));
  EXPECT_EQ(numbers(~Variable(at::ones({1}, at::kBool))), (Numbers{0}));
}

TEST_ON_EACH_WORKER(VariableOperators, TakePartsByIndex) {
  const Variable v = make(AUTO, A::NONE, at::tensor({1.0f, 2.0f, 3.0f}));
  EXPECT_EQ(number(v[1]), 2);
  EXPECT_EQ(number(v[-1]), 3);
  EXPECT_EQ(number(v[at::scalar_tensor(2, at::kLong)]), 3);
  EXPECT_EQ(numbers(strategy.run([&] { return v[0].clone(); })), here(1));
  static_assert(!std::is_assignable_v<decltype(v[0]), at::Tensor>);
  static_assert(!std::is_assignable_v<decltype(v[0]), double>);
}

TEST_ON_EACH_WORKER(VariableOperators, WithAnEqualsSignAssignToAllCopies) {
  const Variable v = make(AUTO, A::NONE, at::tensor({8.0f, 6.0f}));
  v += at::tensor({1.0f, 1.0f});
  v -= 1;
  v *= v;
  v /= 2;
  v %= 20;
  EXPECT_EQ(numbers(v), (Numbers{12, 18}));
  EXPECT_EQ(components(v), here(12));
  const Variable bits = make(AUTO, A::NONE, at::tensor({5, 6}));
  bits &= 4;
  bits |= bits;
  bits ^= 1;
  EXPECT_EQ(numbers(bits), (Numbers{5, 5}));
}

TEST(VariableOperators, WithAnEqualsSignRepeatSmallerTensors) {
  const Variable v(at::zeros({2, 2}));
  v += at::tensor({1.0f, 2.0f});
  v -= 1.0;
  EXPECT_EQ(numbers(v), (Numbers{0, 1, 0, 1}));
  EXPECT_FAILS(v += at::ones({3}), InvalidArgument, "variable.assign_add");
  EXPECT_FAILS(Variable(1) += 0.5, TypeError, "variable.assign_add");
}

TEST_ON_EACH_WORKER(VariableOperators, WithAnEqualsSignAggregateInReplicas) {
  const Variable sum = make(AUTO, A::SUM, at::ones({2}));
  const Variable mean = make(AUTO, A::MEAN, at::ones({2}));
  const auto all = ids();
  strategy.run(
      [&](const at::Tensor& id) {
        sum += id;
        mean -= id;
        mean *= id + 1;
        sum += all;
      },
      all);
  EXPECT_EQ(numbers(sum), Numbers(2, 1 + 2 * sum_of_ids()));
  EXPECT_EQ(numbers(mean), Numbers(2, (1 - mean_of_ids()) * (1 + mean_of_ids())));
  const Variable none = make(AUTO, A::NONE);
  EXPECT_RUN_FAILS(strategy.run([&] { none += 1; }), ValueError, "aggregation method");
  EXPECT_FAILS(none += all, TypeError, "mirrored across replicas");
}

TEST_ON_EACH_WORKER(VariableOperators, OfMirroredTensors) {
  const Mirrored<at::Tensor> m =
      extended().broadcast_to(at::tensor({1, 2, 3}) + first_here, "cpu:0");  // the chief's
  EXPECT_EQ(numbers(-m), (Numbers{-1, -2, -3}));
  EXPECT_EQ(numbers(~m), (Numbers{-2, -3, -4}));
  EXPECT_EQ(number(m[1]), 2);
  EXPECT_EQ(number(m[at::scalar_tensor(2, at::kLong)]), 3);
  EXPECT_EQ(numbers(m + 1), (Numbers{2, 3, 4}));
  EXPECT_EQ(numbers(m & 1), (Numbers{1, 0, 1}));
}

TEST(VariableOperators, AVariableThatIsATemporaryGivesCopies) {
  const auto make = [] { return Variable(at::ones({3}), {.name = "a name that is not short"}); };
  std::int64_t elements = 0;
  for (const at::Tensor& component : make().components()) elements += component.numel();
  for (const std::int64_t size : make().sizes()) elements += size;
  const at::Tensor& primary = make().primary();
  const std::string& name = make().name();
  const DeviceList& devices = make().devices();
  EXPECT_EQ(elements + primary.numel(), 9);
  EXPECT_EQ(name, "a name that is not short");
  EXPECT_EQ(devices->size(), 1u);
}

}  // namespace
}  // namespace cohort
