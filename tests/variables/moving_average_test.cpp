#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

TEST(MovingAverage, InReplicasTakesTheMeanWhateverTheAggregation) {
  for (const A aggregation : {A::NONE, A::SUM, A::MEAN}) {
    for (const VariableWords& world : {two_replicas(), central_storage()}) {
      const Variable v = world.make(AUTO, aggregation, at::tensor({10.0f, 11.0f}));
      world.strategy.run([&] {
        const at::Tensor id = VariableWords::id();
        assign_moving_average(v, at::stack({id + 1, 2 - id}), 0.25);
      });
      for (const at::Tensor& each : v.components()) {
        EXPECT_EQ(numbers(each), (Numbers{3.625, 3.875}));
      }
    }
  }
}

TEST(MovingAverage, ElsewhereMovesEachCopy) {
  const Variable v = two_replicas().make(AUTO, A::NONE, at::scalar_tensor(10.0f));
  EXPECT_EQ(number(assign_moving_average(v, at::scalar_tensor(2.0f), 0.5)), 6);
  EXPECT_EQ(components(v), Numbers(2, 6));
  EXPECT_EQ(number(assign_moving_average(Variable(10.0f), at::scalar_tensor(2.0f), 0.5)), 6);
}

TEST(ExponentialMovingAverage, FollowsAVariable) {
  const VariableWords world = two_replicas();
  const Variable w = world.make(AUTO, A::MEAN);
  ExponentialMovingAverage average(0.8);
  EXPECT_FAILS(average.average(w), KeyError, "has no average");
  EXPECT_FAILS(world.strategy.run([&] { average.apply({w}); }), RuntimeError, "has no average yet");
  average.apply({w});
  world.strategy.run([&] {
    w.assign_sub(0.5);
    average.apply({w});
  });
  EXPECT_EQ(components(w), Numbers(2, 0.5));
  for (const double x : components(average.average(w))) EXPECT_FLOAT_EQ(x, 0.9);
  EXPECT_EQ(average.average(w).owner(), w.owner());
}

}  // namespace
}  // namespace cohort
