// The examples of the pages about Strategy and its descendants, as far as they are about values,
// contexts and variables. Those with datasets, logical devices and clusters belong to those parts.

#include "cohort/collectives/cross_device_ops.h"
#include "cohort/device/logical_devices.h"
#include "cohort/distribute/default_strategy.h"
#include "cohort/strategies/tpu_strategy.h"
#include "tests/base/scoped_environment.h"
#include "tests/reference/reference.h"

namespace cohort {
namespace {

using testing::ElementsAre;

// tf.distribute.Strategy, TensorFlow 2.0.
class StrategyPage20 : public Reference {};

// "A custom training loop can be as simple as", with the batches of [0 … 7] in place of a dataset.
TEST_F(StrategyPage20, InShort) {
  Strategy my_strategy = two();
  auto scope = my_strategy.scope();
  auto distribute_train_epoch = [&](const std::vector<PerReplica<Tensor>>& dataset) {
    auto replica_fn = [](const Tensor& input) { return input.sum(); };
    Tensor total_result = torch::zeros({});
    for (const auto& x : dataset) {
      auto per_replica_result = compat::experimental_run_v2(my_strategy, replica_fn, x);
      total_result += my_strategy.reduce(ReduceOp::SUM, per_replica_result, std::nullopt);
    }
    return total_result;
  };
  const std::vector dist_dataset{batch({0, 1}, {2, 3}), batch({4, 5}, {6, 7})};
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(number(distribute_train_epoch(dist_dataset)), 28);
  }
}

// "Any variables created in replica_fn are created using my_strategy's policy, and library
// functions called by replica_fn can use the get_replica_context() API".
TEST_F(StrategyPage20, InShortVariablesCreatedInReplicaFn) {
  Strategy my_strategy = two();
  const Variable made = my_strategy.run([] {
    EXPECT_EQ(get_replica_context().num_replicas_in_sync(), 2);
    return Variable(1.0f);
  });
  EXPECT_TRUE(my_strategy.extended().variable_created_in_scope(made));
  EXPECT_EQ(made.components().size(), 2u);
}

TEST_F(StrategyPage20, Properties) {
  EXPECT_EQ(two().num_replicas_in_sync(), 2);
  EXPECT_EQ(two().extended().num_replicas_in_sync(), 2);
  EXPECT_EQ(default_strategy().num_replicas_in_sync(), 1);
}

// "A tuple of values contained in value. If value represents a single value, this returns
// (value,)."
TEST_F(StrategyPage20, ExperimentalLocalResults) {
  Strategy strategy = two();
  const auto results = compat::experimental_run_v2(strategy, own_id);
  EXPECT_THAT(compat::experimental_local_results(strategy, results), ElementsAre(0, 1));
  EXPECT_THAT(compat::experimental_local_results(strategy, 5), ElementsAre(5));
  auto scope = strategy.scope();
  EXPECT_EQ(compat::experimental_local_results(strategy, Variable(1.0f)).size(), 2u);
}

// "it will be executed with the component of those "per-replica" values that correspond to that
// replica … fn may call get_replica_context() to access members such as all_reduce".
TEST_F(StrategyPage20, ExperimentalRunV2) {
  Strategy strategy = two();
  const auto results = compat::experimental_run_v2(
      strategy,
      [](const Tensor& own, float same) {
        return get_replica_context().all_reduce(ReduceOp::SUM, own * same);
      },
      batch({1}, {2}), 10.0f);
  for (const Tensor& sum : strategy.local_results(results)) EXPECT_EQ(number(sum), 30);
}

// "if you have a global batch size of 8 and 2 replicas, values for examples [0, 1, 2, 3] will be on
// replica 0 and [4, 5, 6, 7] will be on replica 1".
TEST_F(StrategyPage20, ReduceOverReplicasAndOverTheBatch) {
  Strategy strategy = two();
  const auto per_replica = batch({0, 1, 2, 3}, {4, 5, 6, 7});
  EXPECT_THAT(numbers(strategy.reduce(ReduceOp::SUM, per_replica, std::nullopt)),
              ElementsAre(0 + 4, 1 + 5, 2 + 6, 3 + 7));
  EXPECT_EQ(number(strategy.reduce(ReduceOp::SUM, per_replica, 0)), 28);
}

// "if the last batch has size 6 and it is divided into [0, 1, 2, 3] and [4, 5], you would get a
// shape mismatch unless you specify axis=0".
TEST_F(StrategyPage20, ReduceOfALastPartialBatch) {
  Strategy strategy = two();
  const auto per_replica = batch({0, 1, 2, 3}, {4, 5});
  EXPECT_THROW(strategy.reduce(ReduceOp::SUM, per_replica, std::nullopt), InvalidArgument);
  EXPECT_EQ(number(strategy.reduce(ReduceOp::SUM, per_replica, 0)), 15);
  EXPECT_EQ(number(strategy.reduce(ReduceOp::MEAN, per_replica, 0)), 15.0 / 6);

  // "Contrast this with computing reduce_mean to get a scalar value on each replica".
  const auto means = strategy.run([](const Tensor& x) { return x.mean(); }, per_replica);
  EXPECT_EQ(number(strategy.reduce(ReduceOp::MEAN, means, std::nullopt)),
            (0 + 1 + 2 + 3) / 8.0 + (4 + 5) / 4.0);
}

// "Inside a with strategy.scope(): code block, this thread will use a variable creator set by
// strategy, and will enter its "cross-replica context"."
TEST_F(StrategyPage20, Scope) {
  Strategy strategy = two();
  EXPECT_FALSE(in_cross_replica_context());
  {
    auto scope = strategy.scope();
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_EQ(Variable(1.0f).owner(), &strategy.extended());
  }
  EXPECT_FALSE(in_cross_replica_context());
}

// tf.distribute.Strategy, TensorFlow 2.3.
class StrategyPage23 : public Reference {};

TEST_F(StrategyPage23, InShort) {
  Strategy my_strategy = two();
  auto scope = my_strategy.scope();
  auto replica_fn = [](const Tensor& input) { return input.sum(); };
  Tensor total_result = torch::zeros({});
  for (const auto& x : {batch({0, 1}, {2, 3}), batch({4, 5}, {6, 7})}) {
    auto per_replica_result = my_strategy.run(replica_fn, x);
    total_result += my_strategy.reduce(ReduceOp::SUM, per_replica_result, std::nullopt);
  }
  EXPECT_EQ(number(total_result), 28);
}

// experimental_distribute_values_from_function, "1. Return constant value per replica".
TEST_F(StrategyPage23, DistributeValuesFromFunction1) {
  auto value_fn = [](const ValueContext&) { return torch::tensor(1.0f); };
  Strategy strategy = one();
  auto distributed_values =
      compat::experimental_distribute_values_from_function(strategy, value_fn);
  auto local_result = compat::experimental_local_results(strategy, distributed_values);
  ASSERT_EQ(local_result.size(), 1u);
  EXPECT_EQ(number(local_result[0]), 1.0);
  EXPECT_EQ(two().distribute_values_from_function(value_fn).size(), 2u);
}

// "2. Distribute values in array based on replica_id".
TEST_F(StrategyPage23, DistributeValuesFromFunction2) {
  const std::vector array_value{3., 2., 1.};
  auto value_fn = [&](const ValueContext& ctx) {
    return array_value[ctx.replica_id_in_sync_group];
  };
  const auto local_result = [&](const Strategy& strategy) {
    return strategy.local_results(strategy.distribute_values_from_function(value_fn));
  };
  EXPECT_THAT(local_result(one()), ElementsAre(3.0));
  EXPECT_THAT(local_result(two()), ElementsAre(3.0, 2.0));
}

// "3. Specify values using num_replicas_in_sync".
TEST_F(StrategyPage23, DistributeValuesFromFunction3) {
  auto value_fn = [](const ValueContext& ctx) { return ctx.num_replicas_in_sync; };
  const auto local_result = [&](const Strategy& strategy) {
    return strategy.local_results(strategy.distribute_values_from_function(value_fn));
  };
  EXPECT_THAT(local_result(one()), ElementsAre(1));
  EXPECT_THAT(local_result(two()), ElementsAre(2, 2));
}

// "4. Place values on devices and distribute". The page's TPU is the one that the environment
// names.
TEST_F(StrategyPage23, DistributeValuesFromFunction4) {
  const ScopedEnvironment endpoints("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", nullptr);
  const ScopedEnvironment name("TPU_NAME", "local:2x2x1x2");
  TPUStrategy strategy;
  const auto worker_devices = strategy.extended().worker_devices();
  std::vector<Tensor> multiple_values;
  for (int i = 0; i < strategy.num_replicas_in_sync(); ++i) {
    const DeviceScope device(worker_devices[i]);
    multiple_values.push_back(torch::tensor(1.0f));
  }
  auto distributed_values = strategy.distribute_values_from_function(
      [&](const ValueContext& ctx) { return multiple_values[ctx.replica_id_in_sync_group]; });
  EXPECT_EQ(*distributed_values.devices(), worker_devices);
  EXPECT_EQ(number(strategy.reduce(ReduceOp::SUM, distributed_values)), 8);
}

// run, "1. Constant tensor input". The page prints a tensor, because there is one replica; here
// run always gives a PerReplica, which is opened in the same way for any number.
TEST_F(StrategyPage23, Run1) {
  Strategy strategy = one();
  auto tensor_input = torch::tensor(3.0f);
  auto replica_fn = [](const Tensor& input) { return input * 2.0; };
  PerReplica<Tensor> result = strategy.run(replica_fn, tensor_input);
  ASSERT_EQ(result.size(), 1u);
  EXPECT_EQ(number(strategy.local_results(result)[0]), 6.0);
}

// "2. DistributedValues input".
TEST_F(StrategyPage23, Run2) {
  const auto run = [](const Strategy& strategy) {
    auto value_fn = [](const ValueContext& context) { return context.num_replicas_in_sync; };
    auto distributed_values = strategy.distribute_values_from_function(value_fn);
    auto replica_fn2 = [](int input) { return input * 2; };
    return strategy.local_results(strategy.run(replica_fn2, distributed_values));
  };
  EXPECT_THAT(run(one()), ElementsAre(2));
  EXPECT_THAT(run(two()), ElementsAre(4, 4));
}

// scope, the example: a variable made inside and one made outside.
TEST_F(StrategyPage23, ScopeExample) {
  Strategy strategy = one();
  auto make = [&] {
    auto scope = strategy.scope();
    return Variable(1.0f);
  };
  const Variable mirrored_variable = make();
  EXPECT_STREQ(mirrored_variable.kind_name(), "MirroredVariable");
  EXPECT_THAT(cat(mirrored_variable), testing::StartsWith("MirroredVariable:{\n  0: "));
  EXPECT_EQ(number(mirrored_variable), 1.0);

  const Variable regular_variable(1.0f);
  EXPECT_STREQ(regular_variable.kind_name(), "Variable");
  EXPECT_EQ(regular_variable.owner(), nullptr);
  EXPECT_EQ(number(regular_variable), 1.0);
}

// "What happens when Strategy.scope is entered?"
TEST_F(StrategyPage23, ScopeEntered) {
  Strategy strategy = two();
  EXPECT_FALSE(has_strategy());
  {
    auto scope = strategy.scope();
    EXPECT_TRUE(get_strategy() == strategy);
    EXPECT_TRUE(in_cross_replica_context());
    // "create variables replicated on each replica"
    EXPECT_EQ(Variable(1.0f).components().size(), 2u);
  }
  EXPECT_TRUE(get_strategy() == default_strategy());
}

// "reading and writing to these variables outside the strategy.scope can also work seamlessly".
TEST_F(StrategyPage23, ScopeIsNotNeededToUseAVariable) {
  Strategy strategy = two();
  auto make = [&] {
    auto scope = strategy.scope();
    return Variable(1.0f, {.aggregation = Aggregation::SUM});
  };
  const Variable v = make();
  v.assign_add(2);
  EXPECT_EQ(number(v), 3);
  strategy.run([&] { v.assign_add(1); });
  EXPECT_EQ(number(v), 5);
}

// "Some strategy APIs (such as strategy.run and strategy.reduce) … enter the scope for you".
TEST_F(StrategyPage23, ScopeIsEnteredByRunAndReduce) {
  Strategy strategy = two();
  const auto ids = strategy.run([&] {
    EXPECT_TRUE(get_strategy() == strategy);
    return own_id();
  });
  EXPECT_EQ(number(strategy.reduce(ReduceOp::SUM, ids, std::nullopt)), 1);
}

// tf.compat.v1.distribute.MirroredStrategy, TensorFlow 2.0.
class MirroredStrategyPage : public Reference {};

// "devices: a list of device strings. If None, all available GPUs are used. If no GPUs are found,
// CPU is used. cross_device_ops: optional, a descedant of CrossDeviceOps."
TEST_F(MirroredStrategyPage, Arguments) {
  EXPECT_EQ(MirroredStrategy().extended().worker_devices(), default_devices());
  MirroredStrategy strategy({.devices = {"/cpu:0", "/device:CPU:1"},
                             .cross_device_ops = std::make_shared<ReductionToOneDevice>()});
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  EXPECT_EQ(strategy.extended().worker_devices(), (std::vector<Device>{"cpu:0", "cpu:1"}));
  EXPECT_EQ(number(strategy.reduce(ReduceOp::SUM, strategy.run(own_id))), 1);
}

// "fn may call get_replica_context() to access members such as replica_id_in_sync_group".
TEST_F(MirroredStrategyPage, ExperimentalRun) {
  Strategy strategy = two();
  const auto results = compat::experimental_run(strategy, own_id);
  EXPECT_THAT(strategy.local_results(results), ElementsAre(0, 1));
}

// reduce(reduce_op, value, axis=None).
TEST_F(MirroredStrategyPage, ReduceHasADefaultAxis) {
  EXPECT_THAT(numbers(two().reduce(ReduceOp::SUM, batch({0, 1, 2, 3}, {4, 5, 6, 7}))),
              ElementsAre(4, 6, 8, 10));
}

// "Returns a copy of config_proto modified for use with this strategy."
TEST_F(MirroredStrategyPage, UpdateConfigProto) {
  const compat::ConfigProto config_proto;
  EXPECT_TRUE(compat::update_config_proto(two(), config_proto).isolate_session_state);
  EXPECT_FALSE(config_proto.isolate_session_state);
}

}  // namespace
}  // namespace cohort
