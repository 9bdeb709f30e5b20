// Variables and strategies in the scope or run of another strategy.

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using testing::HasSubstr;

struct MixedStrategies : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;

  /// Expects the phrase that TensorFlow uses, the call that was made, and what to do.
  template <class F>
  static void expect_mixed(const char* call, F&& fn) {
    const std::string failure = failure_of(fn);
    EXPECT_THAT(failure, HasSubstr(cat("RuntimeError: [", call,
                                       "] Mixing different tf.distribute.Strategy objects")));
    EXPECT_THAT(failure, HasSubstr("auto scope = strategy.scope()"));
  }

  const VariableWords other = one_device();
  const Variable v = make(Synchronization::AUTO, Aggregation::MEAN, at::ones({2}));
  const PerReplica<at::Tensor> all = ids();
};
ON_ALL_LAYOUTS(MixedStrategies);

TEST_ON_EACH_WORKER(MixedStrategies, AVariableNamesTheCallInTheScopeOfAnother) {
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
  expect_mixed("extended.read_var", [&] { extended().read_var(v); });
}

TEST_ON_EACH_WORKER(MixedStrategies, AVariableNamesTheCallInTheRunOfAnother) {
  expect_mixed("variable.assign_sub", [&] { other.strategy.run([&] { v.assign_sub(1); }); });
}

TEST_ON_EACH_WORKER(MixedStrategies, AVariableOfAnotherNamesTheCallInARun) {
  constexpr const char* kMixing = "Mixing different tf.distribute.Strategy objects";
  const Variable w = other.make(Synchronization::AUTO, Aggregation::MEAN);
  EXPECT_RUN_FAILS(strategy.run([&] { w.assign(1); }), RuntimeError,
                   cat("[variable.assign] ", kMixing));
  EXPECT_RUN_FAILS(strategy.run([&] { v.assign_add(w.value()); }), RuntimeError,
                   cat("[variable.value] ", kMixing));
  EXPECT_EQ(components(v), here(1));
}

TEST_ON_EACH_WORKER(MixedStrategies, AStrategyNamesTheCallInTheScopeOfAnother) {
  const auto scope = other.strategy.scope();
  expect_mixed("strategy.run", [&] { strategy.run([] {}); });
  expect_mixed("strategy.reduce", [&] { strategy.reduce("SUM", all); });
  expect_mixed("strategy.gather", [&] { strategy.gather(all, 0); });
  expect_mixed("strategy.scope", [&] { static_cast<void>(strategy.scope()); });
  expect_mixed("extended.reduce_to", [&] { extended().reduce_to("SUM", all, "cpu:0"); });
  expect_mixed("extended.update", [&] { extended().update(v, [](at::Tensor&) {}); });
  expect_mixed("extended.colocate_vars_with",
               [&] { static_cast<void>(extended().colocate_vars_with(v)); });
}

}  // namespace
}  // namespace cohort
