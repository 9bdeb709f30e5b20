#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "cohort/base/mutex.h"

namespace cohort {

/// std::condition_variable for a Mutex, with which clang's analysis knows that the lock is held
/// before and after a wait.
class CondVar {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Sleeps until it is notified, or for no reason.
  void wait(Mutex& mutex) COHORT_REQUIRES(mutex) {
    Held held(mutex);
    condition_.wait(held.lock);
  }

  /// The same, but no longer than until `end`.
  void wait_until(Mutex& mutex, Time end) COHORT_REQUIRES(mutex) {
    Held held(mutex);
    condition_.wait_until(held.lock, end);
  }

  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  /// The caller's lock, as std::condition_variable wants to see it.
  struct Held {
    explicit Held(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    ~Held() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };

  std::condition_variable condition_;
};

}  // namespace cohort
