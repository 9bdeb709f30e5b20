#include "cohort/base/random.h"

#include <ATen/Context.h>

#include <optional>

#include "cohort/base/mutex.h"

namespace cohort {
namespace {

struct Seed {
  Mutex mutex;
  std::optional<std::uint64_t> value COHORT_GUARDED_BY(mutex);
  std::uint64_t times_set COHORT_GUARDED_BY(mutex) = 0;
};

Seed& chosen_seed() {
  static Seed seed;
  return seed;
}

}  // namespace

void set_seed(std::uint64_t seed) {
  const MutexLock lock(chosen_seed().mutex);
  chosen_seed().value = seed;
  ++chosen_seed().times_set;
}

std::uint64_t seed() {
  auto& chosen = chosen_seed();
  const MutexLock lock(chosen.mutex);
  if (chosen.value) return *chosen.value;
  return at::globalContext().defaultGenerator(at::kCPU).current_seed();
}

std::uint64_t seeds_set() {
  const MutexLock lock(chosen_seed().mutex);
  return chosen_seed().times_set;
}

}  // namespace cohort
