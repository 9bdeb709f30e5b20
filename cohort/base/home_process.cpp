#include "cohort/base/home_process.h"

#include <pthread.h>

#include "cohort/base/error.h"
#include "cohort/base/mutex.h"

namespace cohort {

HomeProcess::HomeProcess() : forks_(forks_so_far.load(std::memory_order_relaxed)) {
  static const int registered = pthread_atfork(
      nullptr, nullptr, [] { forks_so_far.fetch_add(1, std::memory_order_relaxed); });
  if (registered != 0) throw RuntimeError("HomeProcess", "no memory to watch for fork()");
}

void HomeProcess::refuse(std::string_view where, std::string_view what) {
  throw RuntimeError(where, cat("this ", what,
                                " was made before fork(), and its threads are in the parent "
                                "process: make another one in the child"));
}

void keep_for_ever(std::shared_ptr<const void> object) {
  static Mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<const void>>;
  const MutexLock lock(mutex);
  kept->push_back(std::move(object));
}

/// To join or detach a thread that is not there would touch memory that another one may use by now.
void OwnThreads::join() {
  if (threads_.empty()) return;
  if (process_.is_current()) {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  } else {
    keep_for_ever(std::make_shared<std::vector<std::thread>>(std::exchange(threads_, {})));
  }
}

}  // namespace cohort
