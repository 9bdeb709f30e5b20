#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

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

TEST(VariableCreation, TheStrategyDecidesTheKind) {
  EXPECT_STREQ(two_replicas().make(AUTO, A::SUM).kind_name(), "MirroredVariable");
  EXPECT_STREQ(two_replicas().make(ON_READ, A::SUM).kind_name(), "SyncOnReadVariable");
  EXPECT_STREQ(central_storage().make(AUTO, A::SUM).kind_name(), "AggregatingVariable");
  EXPECT_STREQ(central_storage().make(ON_READ, A::SUM).kind_name(), "AggregatingVariable");
  EXPECT_STREQ(one_device().make(ON_READ, A::SUM).kind_name(), "Variable");
  const VariableWords alone(CentralStorageStrategy({.compute_devices = {"cpu:1"}}));
  EXPECT_STREQ(alone.make(AUTO, A::SUM).kind_name(), "Variable");
  EXPECT_EQ(alone.make(AUTO, A::SUM).device(), "cpu:1");
}

TEST(VariableCreation, TheStrategyIsItsOwner) {
  for (const VariableWords& world : {two_replicas(), central_storage(), one_device()}) {
    const Variable v = world.make(AUTO, A::NONE);
    EXPECT_EQ(v.owner(), &world.strategy.extended());
    EXPECT_TRUE(world.strategy.extended().variable_created_in_scope(v));
    EXPECT_FALSE(default_strategy().extended().variable_created_in_scope(v));
  }
}

TEST(VariableCreation, WithCopiesAutoBecomesOnWriteAndNoneIsRefused) {
  EXPECT_EQ(two_replicas().make(AUTO, A::NONE).synchronization(), ON_WRITE);
  EXPECT_FAILS(two_replicas().make(NONE, A::MEAN), ValueError,
               "`NONE` variable synchronization mode is not supported");
  EXPECT_EQ(one_device().make(NONE, A::NONE).synchronization(), NONE);
  EXPECT_EQ(central_storage().make(NONE, A::NONE).synchronization(), NONE);
  EXPECT_EQ(central_storage().make(AUTO, A::NONE).synchronization(), AUTO);
}

TEST(VariableCreation, UnknownEnumeratorsAreRefusedWithTheVariablesName) {
  const auto synchronization = static_cast<Synchronization>(7);
  EXPECT_FAILS(Variable(1.0f, {.name = "vv", .synchronization = synchronization}), ValueError,
               "Invalid variable synchronization mode: 7 for variable: vv");
  EXPECT_FAILS(Variable(1.0f, {.name = "vv", .aggregation = static_cast<A>(-1)}), ValueError,
               "Invalid variable aggregation mode: -1 for variable: vv");
}

TEST(VariableCreation, TheMeanOfIntegersIsRefusedWhereThereAreCopies) {
  const at::Tensor one = at::scalar_tensor(1, at::kInt);
  for (const auto synchronization : {ON_WRITE, ON_READ}) {
    EXPECT_FAILS(two_replicas().make(synchronization, A::MEAN, one), ValueError,
                 "aggregation=MEAN and a non-floating dtype");
  }
  EXPECT_EQ(number(one_device().make(AUTO, A::MEAN, one)), 1);
  EXPECT_EQ(number(central_storage().make(AUTO, A::MEAN, one)), 1);
  EXPECT_EQ(number(two_replicas().make(ON_WRITE, A::SUM, one)), 1);
}

TEST(VariableCreation, OnReadIsNotTrainableUnlessToldSo) {
  const VariableWords world = two_replicas();
  EXPECT_FALSE(world.make(ON_READ, A::SUM).trainable());
  EXPECT_FALSE(central_storage().make(ON_READ, A::SUM).trainable());
  EXPECT_FALSE(one_device().make(ON_READ, A::SUM).trainable());
  EXPECT_TRUE(world.make(ON_WRITE, A::SUM).trainable());
  const auto scope = world.strategy.scope();
  EXPECT_TRUE(Variable(1.0f, {.trainable = true, .synchronization = ON_READ}).trainable());
}

TEST(VariableCreation, IntegersAreTrainableInNameOnly) {
  const Variable v = two_replicas().make(AUTO, A::SUM, at::scalar_tensor(1, at::kInt));
  EXPECT_TRUE(v.trainable());
  EXPECT_FALSE(v.components()[0].requires_grad());
}

TEST(VariableCreation, TellsNameShapeAndDtype) {
  const VariableWords world = two_replicas();
  const auto scope = world.strategy.scope();
  const Variable v(at::zeros({2, 3}), {.name = "v", .dtype = at::kDouble});
  EXPECT_EQ(v.name(), "v");
  EXPECT_EQ(v.component_name(0), "v");
  EXPECT_EQ(v.component_name(1), "v/replica_1");
  EXPECT_EQ(v.shape(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(v.dtype(), at::kDouble);
}

TEST(VariableCreation, NamesNeedNotBeUnique) {
  const Variable a(1.0f, {.name = "w"}), b(1.0f, {.name = "w"});
  EXPECT_EQ(a.name(), b.name());
  EXPECT_FALSE(a == b);
}

TEST(VariableCreation, CallsAnInitializerOnceAndCopiesItsValue) {
  const VariableWords world = two_replicas();
  const auto scope = world.strategy.scope();
  int calls = 0;
  const Variable v([&] {
    ++calls;
    return at::rand({});
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(components(v)[0], components(v)[1]);
}

TEST(VariableCreation, DoesNotTouchTheInitialTensor) {
  const at::Tensor initial = at::zeros({2});
  const Variable v(initial);
  v.assign(at::ones({2}));
  EXPECT_EQ(numbers(initial), (Numbers{0, 0}));
}

TEST(VariableCreation, RefusesASparseOrUndefinedInitialValue) {
  EXPECT_FAILS(Variable(at::Tensor()), ValueError, "undefined");
  EXPECT_FAILS(Variable(at::eye(2).to_sparse()), ValueError, "sparse");
}

TEST(VariableCreation, InAnotherStrategysScopeInsideTheDefaultScopeIsMixing) {
  const auto outer = default_strategy().scope();
  const Variable plain(1.0f);
  const VariableWords world = two_replicas();
  const auto inner = world.strategy.scope();
  EXPECT_FAILS(Variable(1.0f), RuntimeError, "Mixing different");
}

TEST(VariableCreation, AThreadOfTheUserMakesPlainOnes) {
  const VariableWords world = two_replicas();
  const auto scope = world.strategy.scope();
  std::string kind;
  std::thread([&] { kind = Variable(1.0f).kind_name(); }).join();
  EXPECT_EQ(kind, "Variable");
}

TEST(VariableCreation, PrintsOneLineForEachCopy) {
  const VariableWords world = two_replicas();
  const auto scope = world.strategy.scope();
  EXPECT_EQ(cat(Variable(1.0f, {.name = "w"})),
            "MirroredVariable:{\n"
            "  0: <cohort::Variable 'w' shape=[] dtype=Float, value=1>\n"
            "  1: <cohort::Variable 'w/replica_1' shape=[] dtype=Float, value=1>\n"
            "}");
}

TEST(VariableCreation, APlainOnePrintsAsItsOnlyCopy) {
  EXPECT_EQ(cat(Variable(2.5f)), "<cohort::Variable 'Variable' shape=[] dtype=Float, value=2.5>");
}

}  // namespace
}  // namespace cohort
