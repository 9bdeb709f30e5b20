#include "cohort/distribute/run_workers.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cctype>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/exception_note.h"
#include "cohort/base/home_process.h"
#include "cohort/base/mutex.h"
#include "cohort/collectives/exchange.h"
#include "cohort/distribute/caller_state.h"
#include "cohort/distribute/replica_random.h"

namespace cohort {
namespace {

struct Failure {
  int worker;
  std::exception_ptr error;
};
using Failures = std::vector<Failure>;  // in order of time

/// "worker 1" is not in "worker 12 is gone".
bool names(std::string_view text, const std::string& worker) {
  for (auto at = text.find(worker); at != text.npos; at = text.find(worker, at + 1)) {
    const auto end = at + worker.size();
    if (end == text.size() || !std::isdigit(static_cast<unsigned char>(text[end]))) return true;
  }
  return false;
}

/// True for what a worker got only because another one has thrown. It may have got it before that
/// exception has come out of the other's function.
bool is_reaction(const Failure& failure, const Failures& all, const Exchange& exchange) {
  try {
    std::rethrow_exception(failure.error);
  } catch (const Cancelled&) {
    return true;
  } catch (const Unavailable& error) {
    for (const Failure& other : all) {
      if (other.worker == failure.worker) continue;
      if (names(error.what(), exchange.name(other.worker))) return true;
    }
    return false;
  } catch (...) {
    return false;
  }
}

const Failure& cause_of(const Failures& all, const Exchange& exchange) {
  for (const Failure& failure : all) {
    if (!is_reaction(failure, all, exchange)) return failure;
  }
  return all.front();
}

/// A generator of one's own that goes on where another one stands. (In LibTorch 1.13 the memory of
/// `Generator::clone` is never given back.)
at::Generator copy_of(at::Generator generator) {
  auto copy = at::make_generator<at::CPUGeneratorImpl>();
  const std::lock_guard lock(generator.mutex());
  copy.set_state(generator.get_state());
  return copy;
}

/// One call of `run_workers`.
class WorkersRun {
 public:
  WorkersRun(int workers, const std::function<void(const Worker&)>& fn,
             const NetworkOptions& options)
      : network_(workers, options), fn_(fn), generator_(copy_of(detail::thread_generator())) {}

  void run() {
    for (int index = 0; index < network_.workers(); ++index) start(index);
    threads_.join();
    const MutexLock lock(mutex_);
    if (failures_.empty()) return;
    const Failure& cause = cause_of(failures_, *network_.exchange(0));
    std::rethrow_exception(with_note(cause.error, cat("in worker ", cause.worker)));
  }

 private:
  /// The others must not wait for a worker that has got no thread.
  void start(int index) {
    try {
      threads_.start([this, index] { thread_main(index); });
    } catch (const std::system_error&) {
      network_.exchange(index)->say_goodbye(note_failure(index));
    }
  }

  void thread_main(int index) {
    const Worker worker(network_.exchange(index));
    std::string reason = "it has ended";
    try {
      const detail::CallerState::Guard state(caller_);
      const detail::WorkersGenerator random(copy_of(generator_));
      fn_(worker);
    } catch (...) {
      reason = note_failure(index);
    }
    worker.exchange()->say_goodbye(reason);
  }

  /// Notes the current exception before anybody is told. Returns what the others are told.
  std::string note_failure(int index) {
    const auto error = std::current_exception();
    const std::string text = text_of(error);
    const MutexLock lock(mutex_);
    failures_.push_back({index, error});
    return cat("it has thrown: ", text.substr(0, text.find('\n')));
  }

  ThreadNetwork network_;
  const std::function<void(const Worker&)>& fn_;
  const detail::CallerState caller_;
  const at::Generator generator_;

  Mutex mutex_;
  Failures failures_ COHORT_GUARDED_BY(mutex_);
  OwnThreads threads_;
};

}  // namespace

void run_workers(int workers, const std::function<void(const Worker&)>& fn,
                 const NetworkOptions& options) {
  if (workers < 1) {
    throw ValueError("run_workers", cat("workers: expected 1 or more, got ", workers));
  }
  options.validate("run_workers");
  if (!fn) throw ValueError("run_workers", "the function is empty: expected one to call");
  WorkersRun(workers, fn, options).run();
}

}  // namespace cohort
