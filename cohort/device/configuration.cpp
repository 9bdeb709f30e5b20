#include "cohort/device/configuration.h"

#include <mutex>

#include "cohort/base/error.h"

namespace cohort {
namespace {

struct State {
  std::mutex mutex;
  Configuration configuration;
};

State& state() {
  static State state;
  return state;
}

}  // namespace

void configure(const Configuration& configuration) {
  const int devices = configuration.cpu_devices;
  if (devices < 0 || devices > kMaxCpuDevices) {
    throw ValueError("configure", cat("cpu_devices: expected a number from 1 to ", kMaxCpuDevices,
                                      ", or 0 for one per core, got ", devices));
  }
  const std::lock_guard lock(state().mutex);
  state().configuration = configuration;
}

Configuration current_configuration() {
  const std::lock_guard lock(state().mutex);
  return state().configuration;
}

}  // namespace cohort
