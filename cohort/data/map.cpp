#include "cohort/data/map.h"

#include <ATen/CPUGeneratorImpl.h>

#include "cohort/device/allowed_cores.h"

namespace cohort::data::detail {

at::Generator element_generator(std::uint64_t seed) { return at::detail::createCPUGenerator(seed); }

int threads_for(int parallel, const char* where) {
  if (parallel == AUTOTUNE) return allowed_cores();
  if (parallel >= 1) return parallel;
  throw ValueError(where, cat("parallel must be positive or AUTOTUNE, got ", parallel));
}

/// What one element shows need not hold for all: a batch may be shorter at the end.
void LearntSpec::set(ElementSpec spec, const ElementSpec& input) {
  const auto varies = [](const LeafSpec& leaf) {
    return !leaf.shape.empty() && leaf.shape[0] == LeafSpec::kUnknown;
  };
  const auto& leaves = input.leaves();
  if (std::any_of(leaves.begin(), leaves.end(), varies)) {
    spec = spec.with_rows(LeafSpec::kUnknown);
  }
  const MutexLock lock(mutex_);
  if (!spec_.known()) spec_ = std::move(spec);
  known_ = true;
}

}  // namespace cohort::data::detail
