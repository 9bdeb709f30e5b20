#include "cohort/strategies/mirrored_strategy.h"

#include <algorithm>

#include "cohort/base/environment.h"
#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/strategies/local_devices.h"
#include "cohort/strategies/spread.h"

namespace cohort {
namespace {

std::shared_ptr<StrategyExtended> make(MirroredStrategy::Options options) {
  if (options.intra_op_threads < 0) {
    throw ValueError("MirroredStrategy",
                     cat("intra_op_threads must not be negative, got ", options.intra_op_threads));
  }
  prepare_process();
  const bool chosen = !options.devices.empty();
  auto devices = distinct_local_devices("MirroredStrategy", std::move(options.devices));
  const int wanted = options.replicas * std::max(1, options.logical_devices_per_replica);
  if (!chosen && wanted > 0 && static_cast<int>(devices.size()) > wanted) devices.resize(wanted);
  if (environment::text("TF_CONFIG")) {
    log::info("MirroredStrategy uses the devices of this process only: TF_CONFIG is ignored");
  }
  log::info("Using MirroredStrategy with devices ", names_of(devices));
  Spread places = spread("MirroredStrategy", std::move(devices), options.replicas,
                         options.logical_devices_per_replica);
  return std::make_shared<StrategyExtended>(StrategyExtended::Settings{
      .name = "MirroredStrategy",
      .layout = std::move(places.layout),
      .variables = StrategyExtended::VariableKind::MIRRORED,
      .intra_op_threads = options.intra_op_threads,
      .cross_device_ops = std::move(options.cross_device_ops),
      .logical_devices = std::move(places.logical_devices),
      .communication = {.timeout = options.timeout, .warn_after = options.warn_after},
  });
}

}  // namespace

MirroredStrategy::MirroredStrategy(Options options) : Strategy(make(std::move(options))) {}
MirroredStrategy::MirroredStrategy() : MirroredStrategy(Options{}) {}

}  // namespace cohort
