#include "cohort/strategies/one_device_strategy.h"

#include "cohort/strategies/local_devices.h"
#include "cohort/strategies/spread.h"

namespace cohort {
namespace {

std::shared_ptr<StrategyExtended> make(const Device& device, OneDeviceStrategy::Options options) {
  const char* name = "OneDeviceStrategy";
  Spread places =
      spread(name, local_devices(name, {device}), 1, options.logical_devices_per_replica);
  return std::make_shared<StrategyExtended>(StrategyExtended::Settings{
      .name = name,
      .layout = std::move(places.layout),
      .logical_devices = std::move(places.logical_devices),
      .communication = {.timeout = options.timeout, .warn_after = options.warn_after},
  });
}

}  // namespace

OneDeviceStrategy::OneDeviceStrategy(const Device& device, Options options)
    : Strategy(make(device, options)) {}

}  // namespace cohort
