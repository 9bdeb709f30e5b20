#include "cohort/strategies/central_storage_strategy.h"

#include "cohort/base/log.h"
#include "cohort/strategies/local_devices.h"

namespace cohort {
namespace {

class CentralStorageExtended : public StrategyExtended {
 public:
  using StrategyExtended::StrategyExtended;
  bool between_graph() const override { return true; }
};

std::shared_ptr<StrategyExtended> make(CentralStorageStrategy::Options options) {
  const auto devices = local_devices("CentralStorageStrategy", std::move(options.compute_devices));
  const Device storage =
      options.parameter_device.value_or(devices.size() == 1 ? devices[0] : Device("/device:CPU:0"));
  const bool alone = devices.size() == 1;
  if (!alone) prepare_process();
  log::info("CentralStorageStrategy with compute_devices ", names_of(devices), " and variables on ",
            local_devices("CentralStorageStrategy", {storage})[0]);
  return std::make_shared<CentralStorageExtended>(StrategyExtended::Settings{
      .name = "CentralStorageStrategy",
      .layout = ReplicaLayout(devices),
      .variables = alone ? StrategyExtended::VariableKind::PLAIN
                         : StrategyExtended::VariableKind::AGGREGATING,
      .parameter_devices = {storage},
      .intra_op_threads = alone ? 0 : 1,
      .communication = {.timeout = options.timeout, .warn_after = options.warn_after},
  });
}

}  // namespace

CentralStorageStrategy::CentralStorageStrategy(Options options)
    : Strategy(make(std::move(options))) {}
CentralStorageStrategy::CentralStorageStrategy() : CentralStorageStrategy(Options{}) {}

}  // namespace cohort
