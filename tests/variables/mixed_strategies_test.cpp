// Variables and strategies in the scope or run of another strategy.

#include <gmock/gmock.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

class MixedStrategies : public testing::Test {
 protected:
  /// Expects the phrase that TensorFlow uses, the call that was made, and what to do.
  template <class F>
  static void expect_mixed(const char* call, F&& fn) {
    const std::string failure = failure_of(fn);
    using testing::HasSubstr;
    EXPECT_THAT(failure, HasSubstr(cat("RuntimeError: [", call,
                                       "] Mixing different tf.distribute.Strategy objects")));
    EXPECT_THAT(failure, HasSubstr("auto scope = strategy.scope()"));
  }

  const VariableWords own = two_replicas(), other = one_device();
  const Variable v = own.make(Synchronization::AUTO, Aggregation::MEAN, at::ones({2}));
  const PerReplica<at::Tensor> ids = own.strategy.run([] { return VariableWords::id(); });
};

TEST_F(MixedStrategies, AVariableNamesTheCallInTheScopeOfAnother) {
  const auto scope = other.strategy.scope();
  expect_mixed("variable.value", [&] { v.value(); });
  expect_mixed("variable.value", [&] { v + 1; });
  expect_mixed("variable.value", [&] { v[0]; });
  expect_mixed("variable.read_value", [&] { v.read_value(); });
  expect_mixed("variable.assign", [&] { v.assign(1); });
  expect_mixed("variable.assign_add", [&] { v += 1; });
  expect_mixed("variable.scatter_add", [&] {
    v.scatter_add({.values = at::ones({1}), .indices = at::zeros({1}, at::kLong)});
  });
  expect_mixed("extended.read_var", [&] { own.strategy.extended().read_var(v); });
}

TEST_F(MixedStrategies, AVariableNamesTheCallInTheRunOfAnother) {
  expect_mixed("variable.assign_sub", [&] { other.strategy.run([&] { v.assign_sub(1); }); });
}

TEST_F(MixedStrategies, AStrategyNamesTheCallInTheScopeOfAnother) {
  const auto scope = other.strategy.scope();
  StrategyExtended& extended = own.strategy.extended();
  expect_mixed("strategy.run", [&] { own.strategy.run([] {}); });
  expect_mixed("strategy.reduce", [&] { own.strategy.reduce("SUM", ids); });
  expect_mixed("strategy.gather", [&] { own.strategy.gather(ids, 0); });
  expect_mixed("strategy.scope", [&] { static_cast<void>(own.strategy.scope()); });
  expect_mixed("extended.reduce_to", [&] { extended.reduce_to("SUM", ids, "cpu:0"); });
  expect_mixed("extended.update", [&] { extended.update(v, [](at::Tensor&) {}); });
  expect_mixed("extended.colocate_vars_with",
               [&] { static_cast<void>(extended.colocate_vars_with(v)); });
}

}  // namespace
}  // namespace cohort
