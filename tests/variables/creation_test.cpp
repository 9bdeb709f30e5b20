#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

struct VariableCreation : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
};
ON_ALL_LAYOUTS(VariableCreation);

TEST(VariableCreation, OutsideOfScopesItIsPlainAndNobodysOwn) {
  const Variable v(2.0f);
  EXPECT_STREQ(v.kind_name(), "Variable");
  EXPECT_EQ(v.owner(), nullptr);
  EXPECT_EQ(v.name(), "Variable");
  EXPECT_EQ(v.synchronization(), AUTO);
  EXPECT_EQ(v.aggregation(), A::NONE);
  EXPECT_TRUE(v.trainable());
  EXPECT_TRUE(v.is_initialized());
  EXPECT_EQ(number(v), 2.0);
  EXPECT_TRUE(default_strategy().extended().variable_created_in_scope(v));
}

TEST_ON_EACH_WORKER(VariableCreation, OutsideOfScopesItIsThisWorkersOwn) {
  const Variable v(2.0f + first_here);
  EXPECT_STREQ(v.kind_name(), "Variable");
  EXPECT_EQ(number(v), 2 + first_here);
}

TEST_ON_EACH_WORKER(VariableCreation, StartsWithTheChiefsValueOnAllReplicas) {
  for (const auto synchronization : {ON_WRITE, ON_READ}) {
    for (const A aggregation : kAggregations) {
      const Variable v = make(synchronization, aggregation, at::scalar_tensor(5.0f + first_here));
      EXPECT_EQ(components(v), here(5));
    }
  }
}

TEST_ON_EACH_WORKER(VariableCreation, StartsWithTheChiefsValueOfEveryType) {
  const auto scope = strategy.scope();
  for (const auto dtype : {at::kInt, at::kLong, at::kHalf, at::kDouble, at::kComplexFloat}) {
    const Variable v(at::full({2, 3}, first_here + 5).to(dtype));
    for (const at::Tensor& component : v.components()) {
      EXPECT_TRUE(at::equal(component, at::full({2, 3}, 5).to(dtype))) << dtype;
    }
  }
  const Variable truth(first_here == 0), empty(at::zeros({0, 3}));
  EXPECT_EQ(components(truth), here(1));
  EXPECT_EQ(empty.shape(), (std::vector<std::int64_t>{0, 3}));
  const Variable wide(at::full({2, 3}, first_here + 5).t(), {.dtype = at::kDouble});
  EXPECT_EQ(numbers(wide.read_value()), Numbers(6, 5)) << "from other strides and another dtype";
}

TEST_ON_EACH_WORKER(VariableCreation, DifferentVariablesOnAnotherWorkerAreAnErrorOnAll) {
  if (workers == 1) return;
  const auto scope = strategy.scope();
  const bool other = is_here(last);
  EXPECT_FAILS(Variable(1.0f, {.name = other ? "a" : "b"}), InvalidArgument, "Variable a");
  EXPECT_FAILS(Variable(1.0f, {.name = other ? "a" : "b"}), InvalidArgument, "Variable b");
  EXPECT_FAILS(Variable(at::zeros({other ? 3 : 2})), InvalidArgument, "[3]");
  EXPECT_FAILS(Variable(1.0f, {.dtype = other ? at::kHalf : at::kDouble}), InvalidArgument, "Half");
  EXPECT_EQ(components(Variable(1.0f)), here(1)) << "works afterwards";
}

TEST_ON_EACH_WORKER(VariableCreation, AfterAFailedRunEndsAlikeOnAllWorkers) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_RUN_FAILS(strategy.run([] { throw ValueError("step", "boom"); }), ValueError, "boom");
    const std::string failure = failure_of([&] { make(ON_WRITE, A::SUM); });
    begin_next_run();
    const int failed = failure == "nothing" ? 0 : 1;
    const int all = strategy.reduce("SUM", strategy.run([&] { return failed; })).item<int>();
    EXPECT_EQ(all, failed * n) << failure;
  }
}

TEST_ON_EACH_WORKER(VariableCreation, TheKindTellsTheSynchronization) {
  EXPECT_STREQ(make(AUTO, A::SUM).kind_name(), "MirroredVariable");
  EXPECT_STREQ(make(ON_READ, A::SUM).kind_name(), "SyncOnReadVariable");
}

TEST(VariableCreation, TheStrategyDecidesTheKind) {
  configure({.cpu_devices = 8});
  EXPECT_STREQ(central_storage().make(AUTO, A::SUM).kind_name(), "AggregatingVariable");
  EXPECT_STREQ(central_storage().make(ON_READ, A::SUM).kind_name(), "AggregatingVariable");
  EXPECT_STREQ(one_device().make(ON_READ, A::SUM).kind_name(), "Variable");
  const VariableWords alone(CentralStorageStrategy({.compute_devices = {"cpu:1"}}));
  EXPECT_STREQ(alone.make(AUTO, A::SUM).kind_name(), "Variable");
  EXPECT_EQ(alone.make(AUTO, A::SUM).device(), "cpu:1");
}

void expect_owned(const StrategyExtended& extended, const Variable& v) {
  EXPECT_EQ(v.owner(), &extended);
  EXPECT_TRUE(extended.variable_created_in_scope(v));
  EXPECT_FALSE(default_strategy().extended().variable_created_in_scope(v));
}

TEST_ON_EACH_WORKER(VariableCreation, TheStrategyIsItsOwner) {
  expect_owned(extended(), make(AUTO, A::NONE));
}

TEST(VariableCreation, CentralStorageAndOneDeviceAreOwnersToo) {
  for (const VariableWords& world : {central_storage(), one_device()}) {
    expect_owned(world.strategy.extended(), world.make(AUTO, A::NONE));
  }
}

TEST_ON_EACH_WORKER(VariableCreation, WithCopiesAutoBecomesOnWriteAndNoneIsRefused) {
  EXPECT_EQ(make(AUTO, A::NONE).synchronization(), ON_WRITE);
  EXPECT_FAILS(make(NONE, A::MEAN), ValueError,
               "`NONE` variable synchronization mode is not supported");
}

TEST(VariableCreation, WithoutCopiesTheSynchronizationIsKept) {
  EXPECT_EQ(one_device().make(NONE, A::NONE).synchronization(), NONE);
  EXPECT_EQ(central_storage().make(NONE, A::NONE).synchronization(), NONE);
  EXPECT_EQ(central_storage().make(AUTO, A::NONE).synchronization(), AUTO);
}

void expect_unknown_enumerators_refused() {
  const auto synchronization = static_cast<Synchronization>(7);
  EXPECT_FAILS(Variable(1.0f, {.name = "vv", .synchronization = synchronization}), ValueError,
               "Invalid variable synchronization mode: 7 for variable: vv");
  EXPECT_FAILS(Variable(1.0f, {.name = "vv", .aggregation = static_cast<A>(-1)}), ValueError,
               "Invalid variable aggregation mode: -1 for variable: vv");
}

TEST_ON_EACH_WORKER(VariableCreation, UnknownEnumeratorsAreRefusedWithTheVariablesName) {
  expect_unknown_enumerators_refused();
  const auto scope = strategy.scope();
  expect_unknown_enumerators_refused();
}

TEST_ON_EACH_WORKER(VariableCreation, TheMeanOfIntegersIsRefusedWhereThereAreCopies) {
  const at::Tensor one = at::scalar_tensor(1, at::kInt);
  for (const auto synchronization : {ON_WRITE, ON_READ}) {
    EXPECT_FAILS(make(synchronization, A::MEAN, one), ValueError,
                 "aggregation=MEAN and a non-floating dtype");
  }
  EXPECT_EQ(number(make(ON_WRITE, A::SUM, one)), 1);
}

TEST(VariableCreation, IntegersMayHaveAMeanWhereThereAreNoCopies) {
  const at::Tensor one = at::scalar_tensor(1, at::kInt);
  EXPECT_EQ(number(one_device().make(AUTO, A::MEAN, one)), 1);
  EXPECT_EQ(number(central_storage().make(AUTO, A::MEAN, one)), 1);
}

TEST_ON_EACH_WORKER(VariableCreation, OnReadIsNotTrainableUnlessToldSo) {
  EXPECT_FALSE(make(ON_READ, A::SUM).trainable());
  EXPECT_TRUE(make(ON_WRITE, A::SUM).trainable());
  const auto scope = strategy.scope();
  EXPECT_TRUE(Variable(1.0f, {.trainable = true, .synchronization = ON_READ}).trainable());
}

TEST(VariableCreation, OnReadIsNotTrainableWithoutCopiesEither) {
  EXPECT_FALSE(central_storage().make(ON_READ, A::SUM).trainable());
  EXPECT_FALSE(one_device().make(ON_READ, A::SUM).trainable());
}

TEST_ON_EACH_WORKER(VariableCreation, IntegersAreTrainableInNameOnly) {
  const Variable v = make(AUTO, A::SUM, at::scalar_tensor(1, at::kInt));
  EXPECT_TRUE(v.trainable());
  EXPECT_FALSE(v.components()[0].requires_grad());
}

TEST_ON_EACH_WORKER(VariableCreation, TellsNameShapeAndDtype) {
  const auto scope = strategy.scope();
  const Variable v(at::zeros({2, 3}), {.name = "v", .dtype = at::kDouble});
  EXPECT_EQ(v.name(), "v");
  EXPECT_EQ(v.component_name(0), "v");
  EXPECT_EQ(v.component_name(1), "v/replica_1");
  EXPECT_EQ(v.shape(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(v.dtype(), at::kDouble);
}

void expect_names_not_unique() {
  const Variable a(1.0f, {.name = "w"}), b(1.0f, {.name = "w"});
  EXPECT_EQ(a.name(), b.name());
  EXPECT_FALSE(a == b);
}

TEST_ON_EACH_WORKER(VariableCreation, NamesNeedNotBeUnique) {
  expect_names_not_unique();
  const auto scope = strategy.scope();
  expect_names_not_unique();
}

TEST_ON_EACH_WORKER(VariableCreation, CallsAnInitializerOnceAWorkerAndCopiesTheChiefsValue) {
  const auto scope = strategy.scope();
  int calls = 0;
  seed_thread(first_here);
  const Variable v([&] {
    ++calls;
    return at::rand({});
  });
  EXPECT_EQ(calls, 1);
  const auto values = strategy.run([&] { return v.value().reshape({1}); });
  EXPECT_THAT(numbers(strategy.gather(values, 0)), testing::Each(components(v)[0]));
}

void expect_initial_tensor_kept(float x) {
  const at::Tensor initial = at::full({2}, x);
  const Variable v(initial);
  EXPECT_EQ(numbers(initial), Numbers(2, x));
  v.assign(at::full({2}, 7.0f));
  EXPECT_EQ(numbers(initial), Numbers(2, x));
}

TEST_ON_EACH_WORKER(VariableCreation, DoesNotTouchTheInitialTensor) {
  expect_initial_tensor_kept(first_here);
  const auto scope = strategy.scope();
  expect_initial_tensor_kept(first_here);
}

void expect_initial_values_refused() {
  EXPECT_FAILS(Variable(at::Tensor()), ValueError, "undefined");
  EXPECT_FAILS(Variable(at::eye(2).to_sparse()), ValueError, "sparse");
}

TEST_ON_EACH_WORKER(VariableCreation, RefusesASparseOrUndefinedInitialValue) {
  expect_initial_values_refused();
  const auto scope = strategy.scope();
  expect_initial_values_refused();
}

TEST_ON_EACH_WORKER(VariableCreation, InAnotherStrategysScopeInsideTheDefaultScopeIsMixing) {
  const auto outer = default_strategy().scope();
  const Variable plain(1.0f);
  const auto inner = strategy.scope();
  EXPECT_FAILS(Variable(1.0f), RuntimeError, "Mixing different");
}

TEST_ON_EACH_WORKER(VariableCreation, AThreadOfTheUserMakesPlainOnes) {
  const auto scope = strategy.scope();
  std::string kind;
  std::thread([&] { kind = Variable(1.0f).kind_name(); }).join();
  EXPECT_EQ(kind, "Variable");
}

TEST_ON_EACH_WORKER(VariableCreation, PrintsOneLineForEachLocalComponent) {
  const auto scope = strategy.scope();
  const Variable v(1.0f, {.name = "w"});
  std::string text = "MirroredVariable:{\n";
  for (int i = 0; i < n_here; ++i) {
    text += cat("  ", i, ": <cohort::Variable 'w", i > 0 ? cat("/replica_", i) : "",
                "' shape=[] dtype=Float, value=1>\n");
  }
  EXPECT_EQ(cat(v), text + "}");
}

TEST(VariableCreation, APlainOnePrintsAsItsOnlyCopy) {
  EXPECT_EQ(cat(Variable(2.5f)), "<cohort::Variable 'Variable' shape=[] dtype=Float, value=2.5>");
}

}  // namespace
}  // namespace cohort
