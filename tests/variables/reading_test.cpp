#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

/// What value, read_value, conversion and operator give outside of replicas.
Numbers all_ways(const Variable& v) {
  return {number(v.value()), number(v.read_value()), number(at::Tensor(v)), number(v + 1) - 1};
}

Numbers same(double x) { return Numbers(4, x); }

TEST(VariableReading, OnWriteInReplicasIsTheOwnCopy) {
  for (const VariableWords& world : {two_replicas(), four_replicas_on_two_devices()}) {
    const Variable v = world.make(ON_WRITE, A::NONE);
    world.strategy.extended().update(
        v, [](at::Tensor& copy) { copy.fill_(double(*update_replica_id())); });
    const auto own = numbers(world.strategy.run([&] { return v.value(); }));
    EXPECT_EQ(own, components(v));
    EXPECT_EQ(numbers(world.strategy.run([&] { return v + 1.0f; }))[1], own[1] + 1);
  }
}

TEST(VariableReading, OnWriteElsewhereIsTheFirstCopy) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(ON_WRITE, A::MEAN);
  world.strategy.extended().update(
      v, [](at::Tensor& copy) { copy.fill_(double(*update_replica_id())); });
  EXPECT_EQ(all_ways(v), same(0));
  const auto scope = world.strategy.scope();
  EXPECT_EQ(all_ways(v), same(0));
}

TEST(VariableReading, OnWriteHeedsTheCurrentDevice) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(ON_WRITE, A::NONE);
  world.strategy.extended().update(
      v, [](at::Tensor& copy) { copy.fill_(double(*update_replica_id())); });
  {
    const DeviceScope device("cpu:1");
    EXPECT_EQ(all_ways(v), (Numbers{0, 1, 0, 0})) << "only read_value outside of scopes";
    const auto scope = world.strategy.scope();
    EXPECT_EQ(all_ways(v), same(1));
  }
  const DeviceScope elsewhere("cpu:7");
  const auto scope = world.strategy.scope();
  EXPECT_EQ(all_ways(v), same(0));
}

TEST(VariableReading, OnReadInReplicasIsTheOwnValue) {
  for (const A aggregation : {A::NONE, A::SUM, A::MEAN, A::ONLY_FIRST_REPLICA}) {
    for (const VariableWords& world : {two_replicas(), four_replicas_on_two_devices()}) {
      const Variable v = world.make(ON_READ, aggregation);
      world.set_to_ids(v);
      const auto own = numbers(world.strategy.run([&] { return v.value(); }));
      EXPECT_EQ(own, components(v));
      EXPECT_EQ(own.back(), world.strategy.num_replicas_in_sync() - 1);
    }
  }
}

TEST(VariableReading, OnReadElsewhereIsTheAggregate) {
  const VariableWords two = two_replicas(), four = four_replicas_on_two_devices();
  const auto read = [](const VariableWords& world, A aggregation) {
    const Variable v = world.make(ON_READ, aggregation);
    world.set_to_ids(v);
    const Numbers outside = all_ways(v);
    const auto scope = world.strategy.scope();
    EXPECT_EQ(all_ways(v), outside);
    return outside;
  };
  EXPECT_EQ(read(two, A::SUM), same(1));
  EXPECT_EQ(read(two, A::MEAN), same(0.5));
  EXPECT_EQ(read(two, A::ONLY_FIRST_REPLICA), same(0));
  EXPECT_EQ(read(four, A::SUM), same(6));
  EXPECT_EQ(read(four, A::MEAN), same(1.5));
  EXPECT_EQ(read(four, A::ONLY_FIRST_REPLICA), same(0));
}

TEST(VariableReading, OnReadWithoutAggregationCantBeReadElsewhere) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(ON_READ, A::NONE);
  EXPECT_FAILS(v.value(), ValueError, "Could not convert from");
  EXPECT_FAILS(v.read_value(), ValueError, "Could not convert from");
  EXPECT_FAILS(v + 1, ValueError, "Could not convert from");
  const auto scope = world.strategy.scope();
  EXPECT_FAILS(static_cast<void>(at::Tensor(v)), ValueError, "Could not convert from");
}

TEST(VariableReading, IntegersAddUpExactly) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(ON_READ, A::SUM, at::scalar_tensor(0, at::kInt));
  world.strategy.run([&] { v.assign(3 + get_replica_context().replica_id_in_sync_group()); });
  EXPECT_EQ(number(v), 7);
  EXPECT_EQ(v.value().scalar_type(), at::kInt);
}

TEST(VariableReading, StoredOnceIsTheSameEverywhere) {
  for (const VariableWords& world : {central_storage(), one_device()}) {
    const Variable v = world.make(AUTO, A::SUM, at::scalar_tensor(4.0f));
    EXPECT_EQ(all_ways(v), same(4));
    for (const double x : numbers(world.strategy.run([&] { return v.value(); }))) EXPECT_EQ(x, 4);
    const auto scope = world.strategy.scope();
    EXPECT_EQ(all_ways(v), same(4));
  }
}

TEST(VariableReading, ValueShowsLaterAssignsAndReadValueDoesNot) {
  const Variable v = two_replicas().make(AUTO, A::NONE);
  const at::Tensor live = v.value(), kept = v.read_value();
  v.assign(7);
  EXPECT_EQ(number(live), 7);
  EXPECT_EQ(number(kept), 1);
}

TEST(VariableReading, InAnotherStrategysScopeIsMixing) {
  const Variable v = two_replicas().make(AUTO, A::SUM);
  const VariableWords other = two_replicas();
  const auto scope = other.strategy.scope();
  EXPECT_FAILS(v.value(), RuntimeError, "Mixing different");
  EXPECT_FAILS(v.assign(1), RuntimeError, "Mixing different");
  EXPECT_FAILS(v.deep_copy(), RuntimeError, "Mixing different");
  EXPECT_FAILS(central_storage().make(AUTO, A::SUM), RuntimeError, "Mixing different");
}

TEST(VariableReading, InSyncOnReadContextReplicasReadTheAggregate) {
  const VariableWords world = four_replicas_on_two_devices();
  const auto read = [&](A aggregation) {
    const Variable v = world.make(ON_READ, aggregation);
    world.set_to_ids(v);
    return numbers(world.strategy.run([&] {
      const auto synchronized = variable_sync_on_read_context();
      return v + 10.0f;
    }));
  };
  EXPECT_EQ(read(A::SUM), Numbers(4, 16));
  EXPECT_EQ(read(A::MEAN), Numbers(4, 11.5));
  EXPECT_EQ(read(A::ONLY_FIRST_REPLICA), Numbers(4, 10));
  EXPECT_FAILS(read(A::NONE), ValueError, "Could not convert from");
}

TEST(VariableReading, InSyncOnReadContextValueItselfIsNotSupported) {
  const VariableWords world = two_replicas();
  const Variable v = world.make(ON_READ, A::SUM), w = world.make(ON_WRITE, A::SUM);
  const auto context = [&](auto read) {
    return [=] {
      const auto synchronized = variable_sync_on_read_context();
      return read();
    };
  };
  EXPECT_FAILS(world.strategy.run(context([&] { return v.value(); })), NotImplementedError,
               "variable_sync_on_read_context");
  EXPECT_FAILS(world.strategy.run(context([&] { return v.read_value(); })), NotImplementedError,
               "variable_sync_on_read_context");
  EXPECT_EQ(numbers(world.strategy.run(context([&] { return w.value(); }))), (Numbers{1, 1}));
  EXPECT_EQ(numbers(world.strategy.run([&] { return v.value(); })), (Numbers{1, 1}));
}

}  // namespace
}  // namespace cohort
