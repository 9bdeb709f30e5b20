// Contexts, scopes and their guards.

#include "cohort/distribute/context.h"

#include <functional>
#include <map>

#include "cohort/variables/creation.h"
#include "cohort/variables/update.h"
#include "tests/base/captured_log.h"
#include "tests/distribute/layouts.h"

namespace cohort {
namespace {

using testing::Each;

/// "default", "cross-replica" or "replica", as the queries tell.
std::string where() {
  if (in_cross_replica_context()) {
    EXPECT_EQ(replica_context_or_null(), nullptr);
    return "cross-replica";
  }
  EXPECT_NE(replica_context_or_null(), nullptr);
  return has_strategy() ? "replica" : "default";
}

struct Contexts : OnLayouts {
  using OnLayouts::OnLayouts;
  const Strategy other = mirrored(3);
  void after() { EXPECT_EQ(where(), "default"); }
};
ON_ALL_LAYOUTS(Contexts);

TEST_ON_EACH_WORKER(Contexts, OutsideOfEverythingTheDefaultStrategyHasOneReplica) {
  EXPECT_EQ(where(), "default");
  EXPECT_EQ(get_strategy(), default_strategy());
  EXPECT_EQ(get_replica_context().replica_id_in_sync_group(), 0);
  EXPECT_EQ(get_replica_context().num_replicas_in_sync(), 1);
}

TEST_ON_EACH_WORKER(Contexts, AScopeIsCrossReplica) {
  const auto scope = strategy.scope();
  EXPECT_EQ(where(), "cross-replica");
  EXPECT_EQ(get_strategy(), strategy);
  EXPECT_FAILS(get_replica_context(), RuntimeError, "[get_replica_context] there is no replica");
  EXPECT_FAILS(get_replica_context(), RuntimeError, "replica_context_or_null()");
}

TEST_ON_EACH_WORKER(Contexts, AFunctionThatRunsIsInAReplica) {
  strategy.run([&] {
    EXPECT_EQ(where(), "replica");
    EXPECT_EQ(get_strategy(), strategy);
    EXPECT_EQ(get_replica_context().num_replicas_in_sync(), n);
    EXPECT_EQ(get_replica_context().strategy(), strategy);
    require_replica_context(get_replica_context());
  });
}

TEST_ON_EACH_WORKER(Contexts, AMergeFunctionIsCrossReplicaAndTheReplicaComesBack) {
  strategy.run([&] {
    get_replica_context().merge_call([&](Strategy& merged) {
      EXPECT_EQ(where(), "cross-replica");
      EXPECT_EQ(merged, strategy);
    });
    EXPECT_EQ(where(), "replica");
  });
}

TEST_ON_EACH_WORKER(Contexts, AMergeFunctionOfTheDefaultReplicaHasStillNoStrategy) {
  get_replica_context().merge_call([](Strategy& merged) {
    EXPECT_EQ(merged, default_strategy());
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_FALSE(has_strategy());
  });
}

TEST_ON_EACH_WORKER(Contexts, RunInsideOfRunSaysToUseMergeCall) {
  EXPECT_RUN_FAILS(strategy.run([&] { strategy.run([] {}); }), RuntimeError,
                   "[strategy.run] Method requires being in cross-replica context");
}

TEST_ON_EACH_WORKER(Contexts, WhatNeedsCrossReplicaContextIsRefusedInAReplica) {
  const at::Tensor x = at::ones({1});
  const std::vector<std::pair<at::Tensor, Destinations>> pairs{{x, "cpu:0"}, {x, "cpu:0"}};
  StrategyExtended& extended = strategy.extended();
  const std::map<std::string, std::function<void()>> calls{
      {"strategy.reduce", [&] { strategy.reduce("SUM", x); }},
      {"strategy.gather", [&] { strategy.gather(x, 0); }},
      {"strategy.scope", [&] { const auto scope = strategy.scope(); }},
      {"strategy.distribute_values_from_function",
       [&] { strategy.distribute_values_from_function([](const ValueContext&) { return 1; }); }},
      {"extended.reduce_to", [&] { extended.reduce_to("SUM", x, "cpu:0"); }},
      {"extended.batch_reduce_to", [&] { extended.batch_reduce_to("SUM", pairs); }},
      {"extended.broadcast_to", [&] { extended.broadcast_to(x, "cpu:0"); }},
      {"extended.update_non_slot",
       [&] { extended.update_non_slot({"cpu:0"}, [] { ADD_FAILURE(); }); }}};
  for (const auto& each : calls) {
    EXPECT_RUN_FAILS(strategy.run(each.second), RuntimeError,
                     cat('[', each.first, "] Method requires being in cross-replica context"));
  }
  EXPECT_RUN_FAILS(strategy.run(calls.at("strategy.gather")), RuntimeError, "all_gather");
}

TEST_ON_EACH_WORKER(Contexts, AnotherStrategysCallsAreRefusedInAScope) {
  const auto refused = [](const std::string& call) {
    return cat('[', call, "] Mixing different tf.distribute.Strategy objects");
  };
  const auto scope = other.scope();
  EXPECT_FAILS(strategy.run([] {}), RuntimeError, refused("strategy.run"));
  EXPECT_FAILS(strategy.reduce("SUM", at::ones({1})), RuntimeError, refused("strategy.reduce"));
  EXPECT_FAILS((void)strategy.scope(), RuntimeError, refused("strategy.scope"));
}

TEST_ON_EACH_WORKER(Contexts, CollectivesBelongToTheOwnReplica) {
  std::atomic<ReplicaContext*> stale = nullptr;
  strategy.run([&] {
    if (id() == first_here) stale = &get_replica_context();
  });
  const auto use = [&] { stale.load()->all_reduce("SUM", at::ones({1})); };
  EXPECT_FAILS(use(), RuntimeError,
               "[replica_context.all_reduce] Mismatching tf.distribute.Strategy");
  EXPECT_FAILS(other.run(use), RuntimeError,
               "[replica_context.all_reduce] Mismatching tf.distribute.Strategy");
  const auto scope = strategy.scope();
  EXPECT_FAILS(use(), RuntimeError, "[replica_context.all_reduce] Need to be inside");
}

// Scopes.

class Scopes : public testing::Test {
 protected:
  const Strategy strategy = mirrored(2);
  void TearDown() override { EXPECT_EQ(where(), "default"); }
};

TEST_F(Scopes, NestInAnyInterleaving) {
  auto a = strategy.scope();
  {
    const auto b = strategy.scope();
    a.enter();
    EXPECT_EQ(a.depth(), 2);
    EXPECT_EQ(where(), "cross-replica");
    a.exit();
  }
  EXPECT_EQ(where(), "cross-replica");
}

TEST_F(Scopes, MayBeEnteredAgainAfterTheyWereLeft) {
  auto scope = strategy.scope();
  scope.exit();
  EXPECT_EQ(where(), "default");
  EXPECT_EQ(scope.enter(), strategy);
  EXPECT_EQ(where(), "cross-replica");
}

TEST_F(Scopes, MayBeMoved) {
  auto scope = [&] { return strategy.scope(); }();
  const auto moved = std::move(scope);
  EXPECT_EQ(where(), "cross-replica");
}

TEST_F(Scopes, MustNotBeLeftOnceTooOften) {
  auto scope = strategy.scope();
  scope.exit();
  EXPECT_FAILS(scope.exit(), RuntimeError, "[scope.exit] Variable scope nesting error");
}

TEST_F(Scopes, MustNotBeLeftBeforeTheGuardsInside) {
  auto outer = strategy.scope();
  {
    const VariableCreatorScope creator(
        [](const NextCreator& next, VariableRequest request) { return next(std::move(request)); });
    EXPECT_FAILS(outer.exit(), RuntimeError, "[scope.exit] Variable creator scope nesting error");
    EXPECT_EQ(where(), "cross-replica");
  }
  outer.exit();
}

TEST_F(Scopes, EndedInTheWrongOrderAreLoggedAndRepaired) {
  const CapturedLog log;
  {
    auto outer = std::make_unique<Scope>(strategy.scope());
    const auto inner = strategy.scope();
    outer.reset();
  }
  EXPECT_EQ(log.count(log::Level::ERROR, "Variable scope nesting error"), 1);
  EXPECT_EQ(where(), "default");
}

TEST_F(Scopes, BelongToTheirThread) {
  const auto scope = strategy.scope();
  std::thread([] { EXPECT_EQ(where(), "default"); }).join();
}

TEST_F(Scopes, EndWithAnException) {
  try {
    const auto scope = strategy.scope();
    throw KeyError("test", "x");
  } catch (const KeyError&) {
  }
}

TEST_F(Scopes, OfTheDefaultStrategyChangeNothing) {
  const auto scope = default_strategy().scope();
  EXPECT_EQ(where(), "default");
}

TEST_F(Scopes, OfTheDefaultStrategyMustNotNestInOthers) {
  const auto scope = strategy.scope();
  EXPECT_FAILS((void)default_strategy().scope(), RuntimeError, "[strategy.scope] Must not nest");
}

TEST_F(Scopes, KeepTheirStrategyAlive) {
  auto gone = std::make_unique<Strategy>(mirrored(2));
  const auto scope = gone->scope();
  gone.reset();
  EXPECT_EQ(get_strategy().num_replicas_in_sync(), 2);
}

// set_strategy

class SetStrategy : public Scopes {
 protected:
  void TearDown() override {
    set_strategy(std::nullopt);
    Scopes::TearDown();
  }
};

TEST_F(SetStrategy, IsAScopeWithoutAnEnd) {
  set_strategy(strategy);
  EXPECT_EQ(get_strategy(), strategy);
  EXPECT_EQ(where(), "cross-replica");
}

TEST_F(SetStrategy, ReplacesTheOneBefore) {
  set_strategy(mirrored(3));
  set_strategy(strategy);
  EXPECT_EQ(get_strategy(), strategy);
}

TEST_F(SetStrategy, AllowsTheStrategysOwnScopeInside) {
  set_strategy(strategy);
  const auto scope = strategy.scope();
  EXPECT_EQ(where(), "cross-replica");
}

TEST_F(SetStrategy, IsRefusedInsideAScope) {
  const auto scope = strategy.scope();
  EXPECT_FAILS(set_strategy(strategy), RuntimeError, "[set_strategy] Must not be called inside");
  EXPECT_FAILS(set_strategy(mirrored(3)), RuntimeError, "[set_strategy] Must not be called inside");
  EXPECT_FAILS(set_strategy(std::nullopt), RuntimeError,
               "[set_strategy] Must not be called inside");
}

}  // namespace
}  // namespace cohort
