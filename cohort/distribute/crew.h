#pragma once

#include <atomic>
#include <exception>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/base/home_process.h"
#include "cohort/collectives/meeting.h"
#include "cohort/device/turns.h"

namespace cohort {

/// The threads of one run: persistent, one for each replica of this process. The thread that
/// calls `run` is replica 0's, so a single replica costs no thread and no hand-over.
///
/// One run at a time. Idle threads sleep. The destructor ends them. In the child of a `fork`, where
/// they are not, a run of several replicas is an error and the destructor waits for nobody.
class Crew {
 public:
  /// For the replicas that `world` has here: `slot_of[i]` is the slot on which the i-th of them
  /// takes turns. `limits` say how long replicas wait for each other.
  Crew(const std::vector<int>& slot_of, World& world, const WaitLimits& limits = {});
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return turns_.members(); }
  Turns& turns() { return turns_; }
  collectives::Meeting& meeting() { return meeting_; }

  /// Calls body(i) for every replica i, all at the same time as far as slots allow, and returns
  /// when all have ended. When some throw, the others are stopped at their next collective; the
  /// exception of the lowest replica is rethrown with its type and a note that names the replica,
  /// and `failed` tells its number.
  void run(FunctionRef<void(int)> body, int& failed);

 private:
  enum Signal : Parker::Signal { ALL_DONE = 4 };

  void start_threads();
  void thread_main(int member);
  void wait_to_start(int member);
  void play(int member);
  void finish(int member);
  void wait_for_others();
  void rethrow_first_error(int& failed);

  const World& world_;
  Turns turns_;
  collectives::Meeting meeting_;

  // Set by `run` before any member starts.
  const FunctionRef<void(int)>* body_ = nullptr;
  std::vector<std::exception_ptr> errors_;  // each member writes its own
  bool stopping_ = false;

  std::atomic<int> unfinished_{0};
  OwnThreads threads_;  // of members 1, 2, …; started by the first run
};

}  // namespace cohort
