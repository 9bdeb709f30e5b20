#pragma once

#include <mutex>

// Clang's thread-safety analysis: `COHORT_GUARDED_BY(mutex_)` on a member makes every access
// without the lock a compile error under clang (`make lint LIBTORCH=pypi`). Nothing elsewhere.
#if defined(__clang__)
#define COHORT_ANNOTATION(x) __attribute__((x))
#else
#define COHORT_ANNOTATION(x)
#endif
#define COHORT_GUARDED_BY(x) COHORT_ANNOTATION(guarded_by(x))
#define COHORT_REQUIRES(...) COHORT_ANNOTATION(requires_capability(__VA_ARGS__))
#define COHORT_EXCLUDES(...) COHORT_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace cohort {

/// std::mutex that clang's analysis knows.
class COHORT_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() COHORT_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() COHORT_ANNOTATION(release_capability()) { mutex_.unlock(); }
  bool try_lock() COHORT_ANNOTATION(try_acquire_capability(true)) { return mutex_.try_lock(); }

 private:
  friend class CondVar;

  std::mutex mutex_;
};

/// Holds a Mutex for a block.
class COHORT_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) COHORT_ANNOTATION(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() COHORT_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace cohort
