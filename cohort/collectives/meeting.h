#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/function_ref.h"
#include "cohort/base/home_process.h"
#include "cohort/base/mutex.h"
#include "cohort/collectives/world.h"
#include "cohort/device/turns.h"
#include "cohort/device/wait_clock.h"

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

  /// Called on member 0's, in one thread, when all pieces are done. Returns the number of pieces of
  /// another stage of the work, or 0 if there is none. Here other workers are met.
  virtual std::int64_t next_stage() { return 0; }

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
/// it, on all members. After an error the next meeting works as usual. A meeting that fails here is
/// a collective that fails on the other workers too.
///
/// A member that does not come is waited for as long as the limits allow, and named in the log
/// meanwhile. So is one that keeps its slot from others: theirs is a wait for it too. Who gets an
/// error from a wait goes on without its slot, until the next meeting that succeeds or `take_turn`.
///
/// Small work is done by the last member to arrive, large work by every slot that has nothing
/// better to do. Thread-safe: one thread for each member.
class Meeting {
 public:
  /// The members are the replicas that `world` has here. `limits` hold for every wait that is not
  /// given its own.
  Meeting(Turns& turns, World& world, const WaitLimits& limits = {});

  /// Before the members of a new run start.
  void open();

  /// Waits for all members, has the work done, and returns when it is. Throws InvalidArgument
  /// when contributions do not fit, RuntimeError when a member has left, DeadlineExceeded when one
  /// has not come before the timeout of another that waits or keeps the slot from this one for that
  /// long, Stopped after `abort`, and what the work threw; when leader-only work throws, member 0
  /// gets that and the others Stopped, and the run is aborted. RuntimeError in the child of a
  /// fork, where the others are not.
  void attend(int member, Contribution& mine) { attend(member, mine, limits_); }
  void attend(int member, Contribution& mine, const WaitLimits& limits);

  /// Waits, in a thread that has nothing to do, until the member gets its slot. Throws
  /// DeadlineExceeded when another one keeps the slot for longer than the limits allow.
  void wait_for_turn(int member, std::string_view where);

  /// The same for a member that went on without its slot after an error: whatever relies on one
  /// member at a time in each slot needs it back. Does nothing if it has it.
  void take_turn(int member, std::string_view where);

  /// The member's function has ended.
  void leave(int member);

  /// Names in the log the members whose functions have not ended, for member 0, which has waited
  /// for them after its own. `error` is what member 0 has thrown, or empty.
  void warn_of_unfinished(WaitLimits::Seconds waited, std::string_view error);
  WaitLimits::Seconds warn_after() const { return limits_.warn_after; }

  /// A member failed: everybody who waits, now or later, gets Stopped.
  void abort();
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  /// What leader-only work threw in this run, or null. The run has failed with it, whatever the
  /// members made of it. Called once all have left; nothing of it is kept here then.
  std::exception_ptr take_merge_error() {
    if (!aborted() || !merge_error_) return nullptr;
    last_failure_ = nullptr;
    return std::exchange(merge_error_, nullptr);
  }

  /// Waits until `done()`, which something that member 0 does makes true; see `tell_followers`.
  /// False when member 0 waits in a meeting or has left, so that it never will. `done` is called
  /// with a lock held. Throws Stopped after `abort`, DeadlineExceeded as `attend` does; `what` is
  /// what is waited for, for its text.
  bool follow_leader(int member, const std::string& what, FunctionRef<bool()> done);

  /// Member 0 calls this after it did something that others may wait for.
  void tell_followers();

 private:
  static constexpr Parker::Signal kNothing = 0;
  enum Signal : Parker::Signal { HELP = 2, LEAD = 3, FAILURE = 5 };  // 4 is the crew's

  /// How a meeting failed, for every member that was there.
  struct Failure {
    enum Kind { MISMATCH, LEFT, LATE, STOPPED, WORK } kind;
    std::string text;          // of MISMATCH, LEFT and LATE
    std::exception_ptr error;  // of WORK
  };
  using FailurePtr = std::shared_ptr<const Failure>;

  /// One member's wait, for the others or for its slot.
  struct Wait {
    Wait(int member, const WaitLimits& limits) : member(member), clock(limits) {}
    const int member;
    WaitClock clock;
    bool is_first = false;         // of those who wait: it writes the warnings
    bool is_over = false;          // it waits only for its slot
    std::uint64_t slots_turn = 0;  // whose end it waits for
  };

  void require_others(std::string_view where) const;
  bool arrive(Wait& wait, Contribution& mine);
  void wait_for_end(Wait& wait, const Contribution& mine);
  void look_at_meeting(Wait& wait, const Contribution& mine);
  void look_at_leader(Wait& wait, const std::string& what);
  void look_at_slot(Wait& wait, std::string_view where);
  void host(Wait& wait, const Contribution& mine);
  void look_for_mismatch();
  void do_work(const Wait& wait);
  void do_stages(int host);
  void do_stage(std::int64_t pieces, int host);
  void call_helpers(int host);
  void do_pieces();
  void note_failure();
  void conclude(int holder);
  void end_early(Failure failure) COHORT_REQUIRES(mutex_);
  void tell_workers(const Failure& failure) COHORT_REQUIRES(mutex_);
  void wake_followers() COHORT_REQUIRES(mutex_);
  std::optional<std::string> find_mismatch() const;
  std::string who_left() const COHORT_REQUIRES(mutex_);
  std::string who_waits() const COHORT_REQUIRES(mutex_);
  std::string who_is_late(WaitLimits::Seconds timeout) const COHORT_REQUIRES(mutex_);
  std::vector<int> missing() const COHORT_REQUIRES(mutex_);
  std::string names_of(const std::vector<int>& members) const;
  int id_of(int member) const { return world_.id_of(member); }
  static void rethrow(const Failure& failure, int member, const Contribution& mine);

  Turns& turns_;
  World& world_;
  const HomeProcess process_;
  const WaitLimits limits_;

  Mutex mutex_;
  int arrived_ COHORT_GUARDED_BY(mutex_) = 0;
  int gone_ COHORT_GUARDED_BY(mutex_) = 0;
  std::vector<char> present_ COHORT_GUARDED_BY(mutex_);      // waits in the current meeting
  std::vector<char> left_ COHORT_GUARDED_BY(mutex_);         // has ended its function
  std::vector<int> followers_ COHORT_GUARDED_BY(mutex_);     // wait for member 0
  std::vector<int> last_on_slot_ COHORT_GUARDED_BY(mutex_);  // who arrived last on each slot

  // Of each member: written while it waits, taken by itself. Some may still wait for their slots
  // while others are at later meetings, so that each has its own.
  std::vector<Contribution*> all_;
  std::vector<FailurePtr> failures_;  // of the meeting that it has attended; null if it succeeded

  std::atomic<bool> aborted_{false};
  std::exception_ptr merge_error_;  // written once, before aborted_

  // The pieces of the current stage, shared by host and helpers. `unclaimed_` is written last when
  // a stage begins, and falls below zero when all are taken: a helper that comes late finds
  // nothing, or pieces of the next stage.
  alignas(64) std::atomic<std::int64_t> unclaimed_{0};
  alignas(64) std::atomic<std::int64_t> unfinished_{0};
  std::int64_t pieces_ = 0;
  std::atomic<bool> work_failed_{false};
  FailurePtr failure_;       // of the current work, or why there is none
  FailurePtr last_failure_;  // kept until the next one: its exception outlives those who catch it
};

}  // namespace cohort::collectives
