#include "cohort/collectives/meeting.h"

#include <algorithm>
#include <thread>
#include <typeinfo>
#include <utility>

#include "cohort/collectives/world_lane.h"

namespace cohort::collectives {

Meeting::Meeting(Turns& turns, World& world, const WaitLimits& limits)
    : turns_(turns),
      world_(world),
      limits_(limits),
      present_(turns.members(), 0),
      left_(turns.members(), 0),
      last_on_slot_(turns.slots(), -1),
      all_(turns.members(), nullptr),
      failures_(turns.members()) {}

void Meeting::open() {
  const MutexLock lock(mutex_);
  arrived_ = gone_ = 0;
  std::fill(present_.begin(), present_.end(), 0);
  std::fill(left_.begin(), left_.end(), 0);
  followers_.clear();
  merge_error_ = nullptr;
  aborted_.store(false, std::memory_order_release);
}

void Meeting::attend(int member, Contribution& mine, const WaitLimits& limits) {
  if (!process_.is_current()) require_others(mine.describe());
  Wait wait(member, limits);
  const bool has_slot = turns_.holds(member);  // once it has arrived, others may hand it the slot
  if (arrive(wait, mine)) {
    host(wait, mine);
  } else {
    if (has_slot) turns_.give_up(member);
    wait_for_end(wait, mine);
  }
  if (const auto failure = std::exchange(failures_[member], nullptr)) {
    rethrow(*failure, member, mine);
  }
}

void Meeting::require_others(std::string_view where) const {
  if (turns_.members() > 1) process_.require(where, "run");
}

/// True for the last member to arrive.
bool Meeting::arrive(Wait& wait, Contribution& mine) {
  const int member = wait.member;
  const MutexLock lock(mutex_);
  if (aborted()) throw Stopped();
  if (gone_ > 0) throw RuntimeError(mine.describe(), who_left());
  all_[member] = &mine;
  present_[member] = 1;
  last_on_slot_[turns_.slot_of(member)] = member;
  if (member == 0) wake_followers();
  wait.is_first = arrived_ == 0;
  return ++arrived_ == turns_.members();
}

void Meeting::wait_for_end(Wait& wait, const Contribution& mine) {
  for (;;) {
    switch (turns_.wait(wait.member, wait.clock.next())) {
      case HELP:
        do_pieces();
        break;
      case LEAD:
        do_work(wait);
        conclude(-1);
        break;
      case kNothing:
        look_at_meeting(wait, mine);
        break;
      default:
        return;  // the meeting is over: its turn, or an error
    }
  }
}

/// The last member to arrive finds everybody else waiting.
void Meeting::host(Wait& wait, const Contribution& mine) {
  failure_ = nullptr;
  const bool leads = wait.member == 0 || !all_[0]->leader_only();
  look_for_mismatch();
  if (!failure_ && !leads) {
    turns_.give_up(wait.member);
    turns_.signal(0, LEAD);
    return wait_for_end(wait, mine);
  }
  if (!failure_) do_work(wait);
  if (turns_.holds(wait.member)) return conclude(wait.member);
  conclude(-1);  // an error had let it go on without its slot
  wait_for_end(wait, mine);
}

void Meeting::look_for_mismatch() {
  work_failed_.store(false, std::memory_order_relaxed);
  try {
    if (auto text = find_mismatch()) {
      world_.replicas_lane().refuse_mismatch(all_[0]->describe(), *text);
      failure_ = std::make_shared<Failure>(Failure{Failure::MISMATCH, *std::move(text), nullptr});
    }
  } catch (...) {  // a contribution that can't be compared or described
    note_failure();
  }
}

/// What fails in it is told to the other workers, if they have not got it already.
void Meeting::do_work(const Wait& wait) {
  WorldLane& lane = world_.replicas_lane();
  const WorldLane::OwnLimits limits(lane, wait.clock.limits());
  const std::uint64_t failures = lane.failures();
  do_stages(wait.member);
  if (failure_ && !all_[0]->leader_only() && lane.failures() == failures) {
    lane.refuse(all_[0]->describe(), failure_->error);
  }
}

void Meeting::do_stages(int host) {
  work_failed_.store(false, std::memory_order_relaxed);
  try {
    do_stage(all_[0]->plan(all_), host);
    while (!work_failed_.load(std::memory_order_relaxed)) {
      const std::int64_t pieces = all_[0]->next_stage();
      if (pieces == 0) return;
      do_stage(pieces, host);
    }
  } catch (...) {
    note_failure();
  }
}

void Meeting::do_stage(std::int64_t pieces, int host) {
  pieces_ = pieces;
  unfinished_.store(pieces, std::memory_order_relaxed);
  unclaimed_.store(pieces, std::memory_order_release);
  if (pieces > 1) call_helpers(host);
  do_pieces();
  while (unfinished_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
}

/// One waiting member for each other slot: the one that arrived last is the likeliest to be awake.
void Meeting::call_helpers(int host) {
  const MutexLock lock(mutex_);
  for (int slot = 0; slot < turns_.slots(); ++slot) {
    if (slot != turns_.slot_of(host)) turns_.signal(last_on_slot_[slot], HELP);
  }
}

void Meeting::do_pieces() {
  for (;;) {
    const std::int64_t unclaimed = unclaimed_.fetch_sub(1, std::memory_order_acq_rel);
    if (unclaimed <= 0) return;
    try {
      all_[0]->work(pieces_ - unclaimed);
    } catch (...) {
      note_failure();
    }
    unfinished_.fetch_sub(1, std::memory_order_release);
  }
}

/// Keeps the first exception of the work. A failed merge function fails the whole run.
void Meeting::note_failure() {
  if (work_failed_.exchange(true)) return;
  failure_ = std::make_shared<Failure>(Failure{Failure::WORK, {}, std::current_exception()});
  if (all_[0]->leader_only()) {
    merge_error_ = std::current_exception();
    aborted_.store(true, std::memory_order_release);
  }
}

/// Lets everybody go on. `holder` has its turn already (-1: nobody has). Who is woken may be at the
/// next meeting before the last one is, and must not find the lock taken.
void Meeting::conclude(int holder) {
  const FailurePtr failure = std::exchange(failure_, nullptr);
  if (failure) {
    std::fill(failures_.begin(), failures_.end(), failure);
    last_failure_ = failure;
  }
  {
    const MutexLock lock(mutex_);
    arrived_ = 0;
    std::fill(present_.begin(), present_.end(), 0);
  }
  for (int m = 0; m < turns_.members(); ++m) {
    if (m == holder) continue;
    failure ? turns_.signal(m, FAILURE) : turns_.ready(m);
  }
}

void Meeting::leave(int member) {
  const MutexLock lock(mutex_);
  left_[member] = 1;
  ++gone_;
  if (member == 0) wake_followers();
  if (arrived_ > 0) end_early({Failure::LEFT, who_left(), nullptr});
}

void Meeting::abort() {
  const MutexLock lock(mutex_);
  aborted_.store(true, std::memory_order_release);
  for (const int follower : std::exchange(followers_, {})) turns_.signal(follower, FAILURE);
  if (arrived_ > 0) end_early({Failure::STOPPED, {}, nullptr});
}

/// A collective that is left here is one that other workers wait in. Nobody uses the lane: who does
/// has all members there.
void Meeting::tell_workers(const Failure& failure) {
  if (failure.kind == Failure::STOPPED) return;  // the run has failed, which they are told
  const auto waits = std::find(present_.begin(), present_.end(), 1) - present_.begin();
  const std::string where = all_[waits]->describe();
  world_.replicas_lane().refuse(where, std::make_exception_ptr(Cancelled(where, failure.text)));
}

void Meeting::end_early(Failure failure) {
  tell_workers(failure);
  const auto shared = std::make_shared<const Failure>(std::move(failure));
  arrived_ = 0;
  for (int m = 0; m < turns_.members(); ++m) {
    if (!std::exchange(present_[m], 0)) continue;
    failures_[m] = shared;
    turns_.signal(m, FAILURE);
  }
}

void Meeting::tell_followers() {
  const MutexLock lock(mutex_);
  wake_followers();
}

void Meeting::wake_followers() {
  for (const int follower : followers_) turns_.ready(follower);
  followers_.clear();
}

std::optional<std::string> Meeting::find_mismatch() const {
  for (std::size_t m = 1; m < all_.size(); ++m) {
    const Contribution &first = *all_[0], &other = *all_[m];
    const bool same_call = typeid(first) == typeid(other);
    const auto what = same_call ? first.mismatch(other) : "they must make the same calls in order";
    if (!what) continue;
    return cat("replica ", id_of(static_cast<int>(m)), " calls ", other.describe(),
               " where replica ", id_of(0), " calls ", first.describe(), ": ", *what);
  }
  return std::nullopt;
}

std::string Meeting::who_left() const {
  const auto gone = std::find(left_.begin(), left_.end(), 1) - left_.begin();
  return cat("replica ", id_of(static_cast<int>(gone)),
             " has returned already: the replicas made a different number of "
             "replica_context().merge_call() calls or collectives; make each of them on every "
             "replica");
}

void Meeting::rethrow(const Failure& failure, int member, const Contribution& mine) {
  switch (failure.kind) {
    case Failure::MISMATCH:
      throw InvalidArgument(mine.describe(), failure.text);
    case Failure::LEFT:
      throw RuntimeError(mine.describe(), failure.text);
    case Failure::LATE:
      throw DeadlineExceeded(mine.describe(), failure.text);
    case Failure::STOPPED:
      throw Stopped();
    case Failure::WORK:
      if (mine.leader_only() && member != 0) throw Stopped();
      std::rethrow_exception(failure.error);
  }
}

}  // namespace cohort::collectives
