#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

#include "cohort/base/mutex.h"

namespace cohort::detail {

/// Which runs of a strategy have thrown, by their serial numbers 1, 2, …
///
/// Remembers the last thousand. A run from before those counts as failed: what it may have left
/// half done is forgotten, and of one that went well there is nothing to forget. Thread-safe.
class FailedRuns {
 public:
  static constexpr std::size_t kRemembered = 1000;

  void add(std::uint64_t run) {
    const MutexLock lock(mutex_);
    runs_.insert(run);
    if (runs_.size() <= kRemembered) return;
    forgotten_ = *runs_.begin();
    runs_.erase(runs_.begin());
  }

  bool contains(std::uint64_t run) {
    const MutexLock lock(mutex_);
    return run != 0 && (run <= forgotten_ || runs_.count(run) > 0);
  }

  std::size_t remembered() {
    const MutexLock lock(mutex_);
    return runs_.size();
  }

 private:
  Mutex mutex_;
  std::set<std::uint64_t> runs_ COHORT_GUARDED_BY(mutex_);
  std::uint64_t forgotten_ COHORT_GUARDED_BY(mutex_) = 0;  // the last one that was
};

}  // namespace cohort::detail
