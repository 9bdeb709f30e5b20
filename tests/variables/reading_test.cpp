#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using enum Synchronization;
using A = Aggregation;

/// What value, read_value, conversion and operator give outside of replicas. Reading an ON_READ
/// variable there is a collective.
Numbers all_ways(const Variable& v) {
  return {number(v.value()), number(v.read_value()), number(at::Tensor(v)), number(v + 1) - 1};
}

Numbers same(double x) { return Numbers(4, x); }

struct VariableReading : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;

  /// Gives each copy the number that `update` has for it.
  void tell_copies_apart(const Variable& v) const {
    extended().update(v, [](at::Tensor& copy) { copy.fill_(double(*update_replica_id())); });
  }
  /// The aggregate of the replicas' numbers.
  double aggregate_of_ids(A aggregation) const {
    return aggregation == A::SUM ? sum_of_ids() : aggregation == A::MEAN ? mean_of_ids() : 0;
  }
};
ON_ALL_LAYOUTS(VariableReading);

TEST_ON_EACH_WORKER(VariableReading, OnWriteInReplicasIsTheOwnCopy) {
  const Variable v = make(ON_WRITE, A::NONE);
  tell_copies_apart(v);
  const auto own = numbers(strategy.run([&] { return v.value(); }));
  EXPECT_EQ(own, components(v));
  EXPECT_EQ(own, numbers(owners(v)));
  EXPECT_EQ(numbers(strategy.run([&] { return v + 1.0f; })).back(), own.back() + 1);
}

TEST_ON_EACH_WORKER(VariableReading, OnWriteElsewhereIsTheFirstCopy) {
  const Variable v = make(ON_WRITE, A::MEAN);
  tell_copies_apart(v);
  EXPECT_EQ(all_ways(v), same(0));
  const auto scope = strategy.scope();
  EXPECT_EQ(all_ways(v), same(0));
}

TEST_ON_EACH_WORKER(VariableReading, OnWriteHeedsTheCurrentDevice) {
  const Variable v = make(ON_WRITE, A::NONE);
  tell_copies_apart(v);
  {
    const double there = owners(v).back();  // of the copy on cpu:1, where there is one
    const DeviceScope device("cpu:1");
    EXPECT_EQ(all_ways(v), (Numbers{0, there, 0, 0})) << "only read_value outside of scopes";
    const auto scope = strategy.scope();
    EXPECT_EQ(all_ways(v), same(there));
  }
  const DeviceScope elsewhere("cpu:7");
  const auto scope = strategy.scope();
  EXPECT_EQ(all_ways(v), same(0));
}

TEST_ON_EACH_WORKER(VariableReading, OnReadInReplicasIsTheOwnValue) {
  for (const A aggregation : kAggregations) {
    const Variable v = make(ON_READ, aggregation);
    set_to_ids(v);
    const auto own = numbers(strategy.run([&] { return v.value(); }));
    EXPECT_EQ(own, components(v));
    EXPECT_EQ(own, numbers(ids_here()));
  }
}

TEST_ON_EACH_WORKER(VariableReading, OnReadElsewhereIsTheAggregate) {
  for (const A aggregation : {A::SUM, A::MEAN, A::ONLY_FIRST_REPLICA}) {
    const Variable v = make(ON_READ, aggregation);
    set_to_ids(v);
    EXPECT_EQ(all_ways(v), same(aggregate_of_ids(aggregation)));
    const auto scope = strategy.scope();
    EXPECT_EQ(all_ways(v), same(aggregate_of_ids(aggregation)));
  }
}

TEST_ON_EACH_WORKER(VariableReading, OnReadInAMergeCallIsTheAggregate) {
  for (const A aggregation : {A::SUM, A::MEAN, A::ONLY_FIRST_REPLICA}) {
    const Variable v = make(ON_READ, aggregation);
    const auto merged = strategy.run([&] {
      v.assign(id_tensor());
      return get_replica_context().merge_call([&](Strategy&) { return v.read_value(); });
    });
    EXPECT_EQ(numbers(merged), here(aggregate_of_ids(aggregation)));
  }
}

TEST_ON_EACH_WORKER(VariableReading, OnReadWithoutAggregationCantBeReadElsewhere) {
  const Variable v = make(ON_READ, A::NONE);
  EXPECT_FAILS(v.value(), ValueError, "Could not convert from");
  EXPECT_FAILS(v.read_value(), ValueError, "Could not convert from");
  EXPECT_FAILS(v + 1, ValueError, "Could not convert from");
  const auto scope = strategy.scope();
  EXPECT_FAILS(static_cast<void>(at::Tensor(v)), ValueError, "Could not convert from");
}

TEST_ON_EACH_WORKER(VariableReading, IntegersAddUpExactly) {
  const int large = (1 << 24) + 1;  // no float
  const Variable v = make(ON_READ, A::SUM, at::scalar_tensor(0, at::kInt));
  strategy.run([&] { v.assign(large + id()); });
  EXPECT_EQ(number(v), double(n) * large + sum_of_ids());
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

TEST_ON_EACH_WORKER(VariableReading, ValueShowsLaterAssignsAndReadValueDoesNot) {
  const Variable v = make(AUTO, A::NONE);
  const at::Tensor live = v.value(), kept = v.read_value();
  v.assign(7);
  EXPECT_EQ(number(live), 7);
  EXPECT_EQ(number(kept), 1);
}

TEST_ON_EACH_WORKER(VariableReading, AnAggregateThatWasReadShowsNoLaterAssigns) {
  for (const A aggregation : {A::SUM, A::MEAN}) {
    const Variable v = make(ON_READ, aggregation);
    set_to_ids(v);
    const at::Tensor kept = v.read_value();
    strategy.run([&] { v.assign_add(1); });
    EXPECT_EQ(number(kept), aggregate_of_ids(aggregation));
    EXPECT_EQ(number(v), aggregate_of_ids(aggregation) + (aggregation == A::SUM ? n : 1));
  }
}

TEST_ON_EACH_WORKER(VariableReading, InAnotherStrategysScopeIsMixing) {
  const Variable v = make(AUTO, A::SUM);
  const VariableWords other = two_replicas();
  const auto scope = other.strategy.scope();
  EXPECT_FAILS(v.value(), RuntimeError, "Mixing different");
  EXPECT_FAILS(v.assign(1), RuntimeError, "Mixing different");
  EXPECT_FAILS(v.deep_copy(), RuntimeError, "Mixing different");
  EXPECT_FAILS(make(AUTO, A::SUM), RuntimeError, "Mixing different");
  EXPECT_FAILS(central_storage().make(AUTO, A::SUM), RuntimeError, "Mixing different");
}

TEST_ON_EACH_WORKER(VariableReading, InSyncOnReadContextReplicasReadTheAggregate) {
  const auto read = [&](A aggregation) {
    const Variable v = make(ON_READ, aggregation);
    set_to_ids(v);
    return numbers(strategy.run([&] {
      const auto synchronized = variable_sync_on_read_context();
      return v + 10.0f;
    }));
  };
  EXPECT_EQ(read(A::SUM), here(10 + sum_of_ids()));
  EXPECT_EQ(read(A::MEAN), here(10 + mean_of_ids()));
  EXPECT_EQ(read(A::ONLY_FIRST_REPLICA), here(10));
  EXPECT_RUN_FAILS(read(A::NONE), ValueError, "Could not convert from");
}

TEST_ON_EACH_WORKER(VariableReading, InSyncOnReadContextValueItselfIsNotSupported) {
  const Variable v = make(ON_READ, A::SUM), w = make(ON_WRITE, A::SUM);
  const auto context = [&](auto read) {
    return [=] {
      const auto synchronized = variable_sync_on_read_context();
      return read();
    };
  };
  EXPECT_RUN_FAILS(strategy.run(context([&] { return v.value(); })), NotImplementedError,
                   "variable_sync_on_read_context");
  EXPECT_RUN_FAILS(strategy.run(context([&] { return v.read_value(); })), NotImplementedError,
                   "variable_sync_on_read_context");
  EXPECT_EQ(numbers(strategy.run(context([&] { return w.value(); }))), here(1));
  EXPECT_EQ(numbers(strategy.run([&] { return v.value(); })), here(1));
}

TEST_ON_EACH_WORKER(VariableReading, WorkersThatReadDifferentVariablesAreTold) {
  const auto scope = strategy.scope();
  const Variable v(1.0f, {.name = "v", .synchronization = ON_READ, .aggregation = A::SUM});
  const Variable w(1.0f,
                   {.name = "w", .synchronization = ON_READ, .aggregation = A::ONLY_FIRST_REPLICA});
  if (workers > 1) {
    EXPECT_FAILS(number(is_here(last) ? v : w), InvalidArgument, "strategy.reduce");
    EXPECT_FAILS(number(is_here(last) ? v : w), InvalidArgument, "SyncOnReadVariable 'w'");
  }
  EXPECT_EQ(number(v), n);
  EXPECT_EQ(number(w), 1);
}

struct ReadVar : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
};
ON_ALL_LAYOUTS(ReadVar);

TEST_ON_EACH_WORKER(ReadVar, AggregatesOnRead) {
  const Variable v = make(ON_READ, A::SUM), w = make(ON_WRITE, A::SUM);
  strategy.run([&] { v.assign(3 + id_tensor()); });
  EXPECT_EQ(number(extended().read_var(v)), 3 * n + sum_of_ids());
  EXPECT_EQ(number(extended().read_var(w)), 1);
}

TEST_ON_EACH_WORKER(ReadVar, AggregatesOnReadAlsoInReplicas) {
  for (const A aggregation : {A::SUM, A::MEAN, A::ONLY_FIRST_REPLICA}) {
    const Variable v = make(ON_READ, aggregation), w = make(ON_WRITE, A::SUM);
    const auto read = strategy.run([&] {
      v.assign(3 + id_tensor());
      get_replica_context().barrier();
      return extended().read_var(v) + extended().read_var(w);
    });
    const double expected = aggregation == A::SUM    ? 3 * n + sum_of_ids()
                            : aggregation == A::MEAN ? 3 + mean_of_ids()
                                                     : 3;
    EXPECT_EQ(numbers(read), here(expected + 1));
  }
}

}  // namespace
}  // namespace cohort
