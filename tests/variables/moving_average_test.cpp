#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

/// In each replica: towards its number and 1, and 2 less its number.
void move_in_replica(const Variable& v) {
  const at::Tensor id = id_tensor();
  assign_moving_average(v, at::stack({id + 1, 2 - id}), 0.25);
}

struct MovingAverage : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
};
ON_ALL_LAYOUTS(MovingAverage);

TEST_ON_EACH_WORKER(MovingAverage, InReplicasTakesTheMeanWhateverTheAggregation) {
  for (const A aggregation : kAggregations) {
    const Variable v = make(AUTO, aggregation, at::tensor({10.0f, 11.0f}));
    strategy.run([&] { move_in_replica(v); });
    const Numbers expected{0.25 * 10 + 0.75 * (mean_of_ids() + 1),
                           0.25 * 11 + 0.75 * (2 - mean_of_ids())};
    for (const at::Tensor& each : v.components()) EXPECT_EQ(numbers(each), expected);
  }
}

TEST(MovingAverage, InReplicasOfCentralStorageTakesTheMeanWhateverTheAggregation) {
  const VariableWords world = central_storage();
  for (const A aggregation : {A::NONE, A::SUM, A::MEAN}) {
    const Variable v = world.make(AUTO, aggregation, at::tensor({10.0f, 11.0f}));
    world.strategy.run([&] { move_in_replica(v); });
    for (const at::Tensor& each : v.components()) {
      EXPECT_EQ(numbers(each), (Numbers{3.625, 3.875}));
    }
  }
}

TEST_ON_EACH_WORKER(MovingAverage, ElsewhereMovesEachCopy) {
  const Variable v = make(AUTO, A::NONE, at::scalar_tensor(10.0f));
  EXPECT_EQ(number(assign_moving_average(v, at::scalar_tensor(2.0f), 0.5)), 6);
  EXPECT_EQ(components(v), here(6));
}

TEST(MovingAverage, OfAPlainVariableMovesIt) {
  EXPECT_EQ(number(assign_moving_average(Variable(10.0f), at::scalar_tensor(2.0f), 0.5)), 6);
}

TEST_ON_EACH_WORKER(MovingAverage, InAnUpdateMovesTheCopy) {
  const Variable v = make(AUTO, A::NONE, at::scalar_tensor(10.0f));
  extended().update(v,
                    [&](at::Tensor&) { assign_moving_average(v, at::scalar_tensor(2.0f), 0.5); });
  EXPECT_EQ(components(v), here(6));
}

struct FollowedVariables : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
};
ON_ALL_LAYOUTS(FollowedVariables);

TEST_ON_EACH_WORKER(FollowedVariables, HaveAnAverageThatFollows) {
  const Variable w = make(AUTO, A::MEAN);
  ExponentialMovingAverage average(0.8);
  EXPECT_FAILS(average.average(w), KeyError, "has no average");
  EXPECT_RUN_FAILS(strategy.run([&] { average.apply({w}); }), RuntimeError, "has no average yet");
  begin_next_run();
  average.apply({w});
  strategy.run([&] {
    w.assign_sub(0.5);
    average.apply({w});
  });
  EXPECT_EQ(components(w), here(0.5));
  for (const double x : components(average.average(w))) EXPECT_FLOAT_EQ(x, 0.9);
  EXPECT_EQ(average.average(w).owner(), w.owner());
}

TEST_ON_EACH_WORKER(FollowedVariables, AreAveragedOverAllReplicas) {
  const Variable own = make(ON_READ, A::MEAN);
  ExponentialMovingAverage average(0.5);
  average.apply({own});
  EXPECT_EQ(components(average.average(own)), here(1));
  strategy.run([&] {
    own.assign(id_tensor());
    average.apply({own});
  });
  EXPECT_EQ(components(average.average(own)), here(0.5 + 0.5 * mean_of_ids()));
  average.apply({own});
  EXPECT_EQ(components(average.average(own)), here(0.25 + 0.75 * mean_of_ids()));
}

}  // namespace
}  // namespace cohort
