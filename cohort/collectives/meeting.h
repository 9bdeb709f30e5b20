#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/function_ref.h"
#include "cohort/base/mutex.h"
#include "cohort/device/turns.h"

namespace cohort::collectives {

/// What one member brings to a meeting: which collective it calls, with what.
///
/// The contribution of member 0 leads: it compares the others with itself, plans the work, and
/// does it in pieces that any waiting thread may take. Contributions live on their members' stacks
/// until the meeting is over.
class Contribution {
 public:
  virtual ~Contribution() = default;

  /// The call as the user wrote it, for errors: "all_reduce(SUM) of float [3, 4]".
  virtual std::string describe() const = 0;

  /// Nothing if `other`, of another member, fits to this one; else what does not fit. Called only
  /// with contributions of the same dynamic type.
  virtual std::optional<std::string> mismatch(const Contribution& other) const = 0;

  /// Called once, on member 0's, when all are there and fit. Returns the number of pieces.
  virtual std::int64_t plan(std::span<Contribution* const> all) = 0;

  /// Does one piece; different pieces at the same time on different threads.
  virtual void work(std::int64_t piece) = 0;

  /// True if only member 0's own thread may do the work (because it calls user code there).
  virtual bool leader_only() const { return false; }
};

/// Thrown in a member that waits when another member has failed. Never the reason of a failure.
class Stopped : public Cancelled {
 public:
  Stopped() : Cancelled("run", "stopped because another replica failed") {}
};

/// Where the members of a run, each in its own thread, meet for collectives.
///
/// Every member must attend the same meetings in the same order. A member that attends another
/// kind of meeting, brings what does not fit, or leaves while others wait is an error that names
/// it, on all members; nobody waits for ever. After an error the next meeting works as usual.
///
/// Small work is done by the last member to arrive, large work by every slot that has nothing
/// better to do. Thread-safe: one thread for each member.
class Meeting {
 public:
  /// `first_replica` is the global id of member 0, for the text of errors.
  explicit Meeting(Turns& turns, int first_replica = 0);

  /// Before the members of a new run start.
  void open();

  /// How long a member waits for the others; none waits for ever.
  using Timeout = std::optional<std::chrono::duration<double>>;

  /// Waits for all members, has the work done, and returns when it is. Throws InvalidArgument
  /// when contributions do not fit, RuntimeError when a member has left, DeadlineExceeded when one
  /// has not come before the timeout of another that waits, Stopped after `abort`, and what the
  /// work threw; when leader-only work throws, member 0 gets that and the others Stopped, and the
  /// run is aborted.
  void attend(int member, Contribution& mine, const Timeout& timeout = {});

  /// The member's function has ended.
  void leave(int member);

  /// A member failed: everybody who waits, now or later, gets Stopped.
  void abort();
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  /// What leader-only work threw in this run, or null. The run has failed with it, whatever the
  /// members made of it.
  std::exception_ptr merge_error() const { return aborted() ? merge_error_ : nullptr; }

  /// Waits until `done()`, which something that member 0 does makes true; see `tell_followers`.
  /// False when member 0 waits in a meeting or has left, so that it never will. `done` is called
  /// with a lock held. Throws Stopped after `abort`.
  bool follow_leader(int member, FunctionRef<bool()> done);

  /// Member 0 calls this after it did something that others may wait for.
  void tell_followers();

 private:
  static constexpr Parker::Signal kNothing = 0;
  enum Signal : Parker::Signal { HELP = 2, LEAD = 3 };

  /// How a meeting ended, for every member that was there.
  struct Outcome {
    enum Kind { DONE, MISMATCH, LEFT, LATE, STOPPED, FAILED } kind = DONE;
    std::string text;          // of MISMATCH, LEFT and LATE
    std::exception_ptr error;  // of FAILED
  };

  bool arrive(int member, Contribution& mine, const Outcome*& outcome);
  void wait_for_end(int member, const Timeout& timeout = {});
  void stop_waiting(int member, const std::chrono::duration<double>& timeout);
  void host(int member);
  void do_work(int host);
  void call_helpers(int host);
  void do_pieces();
  void note_failure();
  void conclude(int holder);
  void end_early(Outcome outcome) COHORT_REQUIRES(mutex_);
  void wake_followers() COHORT_REQUIRES(mutex_);
  std::optional<std::string> find_mismatch() const;
  std::string who_left() const COHORT_REQUIRES(mutex_);
  std::string who_is_late() const COHORT_REQUIRES(mutex_);
  static void rethrow(const Outcome& outcome, int member, const Contribution& mine);

  Turns& turns_;
  const int first_replica_;

  Mutex mutex_;
  int arrived_ COHORT_GUARDED_BY(mutex_) = 0;
  int gone_ COHORT_GUARDED_BY(mutex_) = 0;
  std::vector<char> present_ COHORT_GUARDED_BY(mutex_);      // waits in the current meeting
  std::vector<char> left_ COHORT_GUARDED_BY(mutex_);         // has ended its function
  std::vector<int> followers_ COHORT_GUARDED_BY(mutex_);     // wait for member 0
  std::vector<int> last_on_slot_ COHORT_GUARDED_BY(mutex_);  // who arrived last on each slot

  // Written by whoever ends a meeting, read by its members before they can attend the next. That
  // one may have been ended early by then, by a member that left: it has an outcome of its own.
  std::vector<Contribution*> all_;
  Outcome outcomes_[2];
  int current_ = 0;  // whose outcome belongs to the current meeting

  std::atomic<bool> aborted_{false};
  std::exception_ptr merge_error_;  // written once, before aborted_

  // The pieces of the current work, shared by host and helpers.
  alignas(64) std::atomic<std::int64_t> next_piece_{0};
  alignas(64) std::atomic<std::int64_t> pieces_left_{0};
  std::int64_t pieces_ = 0;
  std::atomic<bool> work_failed_{false};
};

}  // namespace cohort::collectives
