#include "cohort/tpu/tpu_system.h"

#include <map>
#include <string>
#include <utility>

#include "cohort/base/log.h"
#include "cohort/base/mutex.h"

namespace cohort::tpu {
namespace {

/// The systems of this process, by name.
class Systems {
 public:
  static Systems& of_process() {
    static auto* const systems = new Systems();
    return *systems;
  }

  /// False if it was started already; what it held is lost then.
  bool start(const std::string& name) COHORT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    System& system = systems_[name];
    if (system.is_started) system.losses->fetch_add(1);
    return !std::exchange(system.is_started, true);
  }

  /// False if it was not started.
  bool stop(const std::string& name) COHORT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    System& system = systems_[name];
    system.losses->fetch_add(1);
    return std::exchange(system.is_started, false);
  }

  std::shared_ptr<const std::atomic<std::uint64_t>> losses(const std::string& name)
      COHORT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return systems_[name].losses;
  }

 private:
  struct System {
    bool is_started = false;
    std::shared_ptr<std::atomic<std::uint64_t>> losses =
        std::make_shared<std::atomic<std::uint64_t>>(0);
  };

  Mutex mutex_;
  std::map<std::string, System> systems_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace

Topology topology_of(const cluster::TPUClusterResolver& resolver) {
  return Topology::full_mesh(resolver.mesh_shape());
}

Topology initialize_system(const cluster::TPUClusterResolver& resolver) {
  Topology topology = topology_of(resolver);
  if (!Systems::of_process().start(resolver.tpu())) {
    log::warning("TPU system ", resolver.tpu(),
                 " has already been initialized: the variables that were made before are lost");
  }
  log::info("Initializing the TPU system: ", resolver.tpu());
  return topology;
}

void shutdown_system(const cluster::TPUClusterResolver& resolver) {
  if (!Systems::of_process().stop(resolver.tpu())) {
    log::warning("TPU system ", resolver.tpu(), " is shut down, but has not been initialized");
  }
  log::info("Shutting down the TPU system: ", resolver.tpu());
}

std::shared_ptr<const std::atomic<std::uint64_t>> losses_of(
    const cluster::TPUClusterResolver& resolver) {
  return Systems::of_process().losses(resolver.tpu());
}

}  // namespace cohort::tpu
