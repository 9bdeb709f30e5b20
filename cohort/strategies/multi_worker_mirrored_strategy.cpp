#include "cohort/strategies/multi_worker_mirrored_strategy.h"

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/strategies/local_devices.h"
#include "cohort/strategies/spread.h"

namespace cohort {
namespace {

constexpr const char* kName = "MultiWorkerMirroredStrategy";

using Options = MultiWorkerMirroredStrategy::Options;

std::shared_ptr<World> world_of(const Options& options, int places) {
  if (options.worker) {
    return World::join(*options.worker, {.replicas = options.replicas,
                                         .devices = places,
                                         .limits = {options.timeout, options.warn_after}});
  }
  return World::alone(options.replicas > 0 ? options.replicas : places);
}

class MultiWorkerExtended : public StrategyExtended {
 public:
  explicit MultiWorkerExtended(Settings settings) : StrategyExtended(std::move(settings)) {}

  bool between_graph() const override { return true; }
  bool should_checkpoint() const override { return world().is_chief(); }
  bool should_save_summary() const override { return world().is_chief(); }
};

std::shared_ptr<StrategyExtended> make(Options options) {
  if (options.intra_op_threads < 0) {
    throw ValueError(kName,
                     cat("intra_op_threads must not be negative, got ", options.intra_op_threads));
  }
  prepare_process();
  auto devices = distinct_local_devices(kName, std::move(options.devices));
  const int per_replica = std::max(1, options.logical_devices_per_replica);
  const int places = std::max(1, static_cast<int>(devices.size()) / per_replica);
  auto world = world_of(options, places);
  const int wanted = world->local() * per_replica;
  if (static_cast<int>(devices.size()) > wanted) devices.resize(wanted);
  for (Device& device : devices) device = device.on_task("worker", world->index());
  log::info("Using ", kName, " with devices ", names_of(devices), ", ", world->name(world->index()),
            " of ", world->workers());
  Spread places_of_replicas =
      spread(kName, std::move(devices), std::move(world), options.logical_devices_per_replica);
  return std::make_shared<MultiWorkerExtended>(StrategyExtended::Settings{
      .name = kName,
      .layout = std::move(places_of_replicas.layout),
      .variables = StrategyExtended::VariableKind::MIRRORED,
      .intra_op_threads = options.intra_op_threads,
      .cross_device_ops = std::move(options.cross_device_ops),
      .logical_devices = std::move(places_of_replicas.logical_devices),
      .communication = {.timeout = options.timeout, .warn_after = options.warn_after},
  });
}

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(Options options)
    : Strategy(make(std::move(options))) {}
MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy()
    : MultiWorkerMirroredStrategy(Options{}) {}

}  // namespace cohort
