#include "cohort/strategies/one_device_strategy.h"

#include "cohort/strategies/local_devices.h"

namespace cohort {

OneDeviceStrategy::OneDeviceStrategy(const Device& device)
    : Strategy(std::make_shared<StrategyExtended>(StrategyExtended::Settings{
          .name = "OneDeviceStrategy",
          .layout = ReplicaLayout(local_devices("OneDeviceStrategy", {device})),
      })) {}

}  // namespace cohort
