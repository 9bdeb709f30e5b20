#include "cohort/compat/compat.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "cohort/device/configuration.h"
#include "cohort/distribute/default_strategy.h"
#include "cohort/strategies/central_storage_strategy.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "cohort/strategies/one_device_strategy.h"
#include "cohort/strategies/tpu_strategy.h"
#include "cohort/tpu/tpu_system.h"
#include "cohort/variables/variable.h"
#include "cohort/variables/variable_state.h"
#include "tests/base/captured_log.h"
#include "tests/base/failing.h"

namespace cohort {
namespace {

using testing::ElementsAre;

/// The log of the whole program, so that "once in the process" holds in any order of the tests.
class LogOfProgram : public testing::Environment {
 public:
  void SetUp() override { log_ = std::make_unique<CapturedLog>(); }
  void TearDown() override { log_.reset(); }
  int deprecations(const std::string& name) const {
    return log_->count(log::Level::WARNING, "compat::" + name + " is deprecated: ");
  }

 private:
  std::unique_ptr<CapturedLog> log_;
};
const auto* const program_log =
    static_cast<LogOfProgram*>(testing::AddGlobalTestEnvironment(new LogOfProgram));

class Compat : public testing::Test {
 protected:
  Compat() {
    configure({.cpu_devices = 2});
    strategy = std::make_unique<MirroredStrategy>(std::vector<Device>{"cpu:0", "cpu:1"});
  }
  ~Compat() override { configure({}); }

  /// Calls it twice, expects one warning, and returns what it returned.
  template <class Call>
  auto warns_once(const std::string& name, Call&& call) {
    call();
    auto result = call();
    EXPECT_EQ(program_log->deprecations(name), 1) << name;
    return result;
  }

  std::unique_ptr<Strategy> strategy;
};

int own_id() { return get_replica_context().replica_id_in_sync_group(); }

TEST_F(Compat, ExperimentalRunV2IsRun) {
  const auto result = warns_once("experimental_run_v2", [&] {
    return compat::experimental_run_v2(
        *strategy, [](int x, int y) { return x + y + own_id(); }, 1, 10);
  });
  EXPECT_THAT(strategy->local_results(result), ElementsAre(11, 12));
  std::atomic<int> calls = 0;
  compat::experimental_run_v2(*strategy, [&] { ++calls; });
  EXPECT_EQ(calls, 2);
}

TEST_F(Compat, ExperimentalRunWithoutAnIteratorIsRun) {
  const auto result =
      warns_once("experimental_run", [&] { return compat::experimental_run(*strategy, own_id); });
  EXPECT_THAT(strategy->local_results(result), ElementsAre(0, 1));
}

TEST_F(Compat, LocalResultsHadTwoNames) {
  const PerReplica<int> value({3, 4});
  EXPECT_THAT(warns_once("experimental_local_results",
                         [&] { return compat::experimental_local_results(*strategy, value); }),
              ElementsAre(3, 4));
  EXPECT_THAT(warns_once("unwrap", [&] { return compat::unwrap(*strategy, value); }),
              ElementsAre(3, 4));
  EXPECT_THAT(compat::unwrap(*strategy, 5), ElementsAre(5));
}

TEST_F(Compat, GroupHasNothingToWaitFor) {
  warns_once("group", [&] {
    compat::group(*strategy, PerReplica<int>({3, 4}));
    return 0;
  });
}

TEST_F(Compat, ExperimentalDistributeValuesFromFunction) {
  const auto value = warns_once("experimental_distribute_values_from_function", [&] {
    return compat::experimental_distribute_values_from_function(
        *strategy, [](const ValueContext& context) {
          return context.num_replicas_in_sync * 10 + context.replica_id_in_sync_group;
        });
  });
  EXPECT_THAT(strategy->local_results(value), ElementsAre(20, 21));
}

TEST_F(Compat, GetCrossReplicaContextIsTheStrategyOrNothing) {
  EXPECT_FALSE(warns_once("get_cross_replica_context",
                          [] { return compat::get_cross_replica_context().has_value(); }));
  auto scope = strategy->scope();
  EXPECT_TRUE(compat::get_cross_replica_context() == *strategy);
  strategy->run([] { EXPECT_FALSE(compat::get_cross_replica_context()); });
}

TEST_F(Compat, ExperimentalSetStrategyLastsUntilTheNextCall) {
  warns_once("experimental_set_strategy", [&] {
    compat::experimental_set_strategy(*strategy);
    return 0;
  });
  EXPECT_TRUE(in_cross_replica_context());
  EXPECT_TRUE(get_strategy() == *strategy);
  compat::experimental_set_strategy(std::nullopt);
  EXPECT_FALSE(has_strategy());
  auto scope = strategy->scope();
  EXPECT_THROW(compat::experimental_set_strategy(*strategy), RuntimeError);
  EXPECT_THROW(compat::experimental_set_strategy(std::nullopt), RuntimeError);
}

TEST_F(Compat, PropertiesOfStrategyExtended) {
  const StrategyExtended& extended = strategy->extended();
  EXPECT_FALSE(warns_once("experimental_between_graph",
                          [&] { return compat::experimental_between_graph(extended); }));
  EXPECT_FALSE(warns_once("experimental_require_static_shapes",
                          [&] { return compat::experimental_require_static_shapes(extended); }));
  EXPECT_TRUE(warns_once("experimental_should_init",
                         [&] { return compat::experimental_should_init(extended); }));
  const StrategyExtended& none = default_strategy().extended();
  EXPECT_THROW(compat::experimental_between_graph(none), NotImplementedError);
  EXPECT_THROW(compat::experimental_should_init(none), NotImplementedError);
}

TEST_F(Compat, ExperimentalLogicalDeviceIsLogicalDevice) {
  const auto device_of = [&] {
    const auto scope = strategy->scope();
    const auto on = compat::experimental_logical_device(strategy->extended(), 0);
    return *Variable(1.0f).state()->options.logical_device;
  };
  EXPECT_EQ(warns_once("experimental_logical_device", device_of), 0);
  EXPECT_FAILS(static_cast<void>(compat::experimental_logical_device(strategy->extended(), 1)),
               ValueError, "expected 0 to 0, got 1");
}

TEST_F(Compat, TPUStrategyTakesItsExperimentalArguments) {
  const cluster::TPUClusterResolver resolver("local:1x1x1x2");
  const auto make = [&] {
    const auto assignment = tpu::DeviceAssignment::build(
        tpu::topology_of(resolver), {.computation_shape = {1, 1, 1, 2}, .num_replicas = 1});
    return compat::TPUStrategy(resolver, {.experimental_device_assignment = assignment,
                                          .experimental_spmd_xla_partitioning = true});
  };
  const TPUStrategy tpu = warns_once("TPUStrategy", make);
  EXPECT_EQ(tpu.num_replicas_in_sync(), 1);
  EXPECT_EQ(tpu.extended().logical_devices_per_replica(), 2);
  EXPECT_TRUE(tpu.extended().use_spmd_partitioning());
  EXPECT_EQ(compat::TPUStrategy(resolver, {}).num_replicas_in_sync(), 2);
}

TEST_F(Compat, ExperimentalConnectToClusterHasNothingToConnectTo) {
  const auto connect = [](const char* tpu) {
    compat::experimental_connect_to_cluster(cluster::TPUClusterResolver(tpu));
    return true;
  };
  EXPECT_TRUE(warns_once("experimental_connect_to_cluster", [&] { return connect("local"); }));
  EXPECT_FAILS(connect("grpc://10.1.2.3:8470"), RuntimeError, "can't be reached");
}

TEST_F(Compat, CollectiveHintsAreCommunicationOptions) {
  const CommunicationOptions options =
      warns_once("CollectiveHints", [] { return compat::CollectiveHints(1 << 20, 2.5); });
  EXPECT_EQ(options.bytes_per_pack, 1 << 20);
  EXPECT_EQ(options.timeout->count(), 2.5);
  EXPECT_THROW(compat::CollectiveHints(-1), ValueError);
  EXPECT_THROW(compat::CollectiveHints(0, 0.0), ValueError);
  strategy->run([] {
    const at::Tensor sum = get_replica_context().all_reduce(ReduceOp::SUM, at::ones({3}),
                                                            compat::CollectiveHints(1 << 20));
    EXPECT_EQ(sum.sum().item<float>(), 6);
  });
}

TEST_F(Compat, CollectiveCommunicationIsAnImplementation) {
  const CommunicationOptions options{.implementation = warns_once("CollectiveCommunication", [] {
                                       using compat::CollectiveCommunication;
                                       return CollectiveCommunication(
                                           CollectiveCommunication::RING);
                                     })};
  EXPECT_EQ(options.implementation, CommunicationImplementation::RING);
}

TEST_F(Compat, UpdateConfigProtoChangesACopy) {
  const compat::ConfigProto before;
  const auto after = warns_once("update_config_proto",
                                [&] { return compat::update_config_proto(*strategy, before); });
  EXPECT_TRUE(after.isolate_session_state);
  EXPECT_FALSE(before.isolate_session_state);
  const auto isolates = [&](const Strategy& other) {
    return compat::update_config_proto(other, before).isolate_session_state;
  };
  EXPECT_TRUE(isolates(CentralStorageStrategy({.compute_devices = {"cpu:0", "cpu:1"}})));
  EXPECT_FALSE(isolates(OneDeviceStrategy("cpu:0")));
  EXPECT_FALSE(isolates(default_strategy()));
  EXPECT_TRUE(compat::update_config_proto(default_strategy(), after).isolate_session_state);
}

}  // namespace
}  // namespace cohort
