#include "cohort/tpu/tpu_system.h"

#include <set>
#include <string>

#include "cohort/base/log.h"
#include "cohort/base/mutex.h"

namespace cohort::tpu {
namespace {

/// The systems of this process that are started, by name.
class StartedSystems {
 public:
  static StartedSystems& of_process() {
    static auto* const systems = new StartedSystems();
    return *systems;
  }

  /// False if it was there already.
  bool add(const std::string& name) COHORT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return names_.insert(name).second;
  }

  /// False if it was not there.
  bool remove(const std::string& name) COHORT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return names_.erase(name) > 0;
  }

 private:
  Mutex mutex_;
  std::set<std::string> names_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace

Topology topology_of(const cluster::TPUClusterResolver& resolver) {
  return Topology::full_mesh(resolver.mesh_shape());
}

Topology initialize_system(const cluster::TPUClusterResolver& resolver) {
  Topology topology = topology_of(resolver);
  if (!StartedSystems::of_process().add(resolver.tpu())) {
    log::warning("TPU system ", resolver.tpu(),
                 " has already been initialized: do not use variables that were made before");
  }
  log::info("Initializing the TPU system: ", resolver.tpu());
  return topology;
}

void shutdown_system(const cluster::TPUClusterResolver& resolver) {
  if (!StartedSystems::of_process().remove(resolver.tpu())) {
    log::warning("TPU system ", resolver.tpu(), " is shut down, but has not been initialized");
  }
  log::info("Shutting down the TPU system: ", resolver.tpu());
}

}  // namespace cohort::tpu
