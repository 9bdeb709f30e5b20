#include "cohort/collectives/meeting.h"

#include <algorithm>
#include <thread>
#include <typeinfo>
#include <utility>

namespace cohort::collectives {

Meeting::Meeting(Turns& turns, int first_replica)
    : turns_(turns),
      first_replica_(first_replica),
      present_(turns.members(), 0),
      left_(turns.members(), 0),
      last_on_slot_(turns.slots(), -1),
      all_(turns.members(), nullptr) {}

void Meeting::open() {
  const MutexLock lock(mutex_);
  arrived_ = gone_ = 0;
  std::fill(present_.begin(), present_.end(), 0);
  std::fill(left_.begin(), left_.end(), 0);
  followers_.clear();
  merge_error_ = nullptr;
  aborted_.store(false, std::memory_order_release);
}

void Meeting::attend(int member, Contribution& mine, const Timeout& timeout) {
  const Outcome* outcome = nullptr;
  if (arrive(member, mine, outcome)) {
    host(member);
  } else {
    turns_.give_up(member);
    wait_for_end(member, timeout);
  }
  rethrow(*outcome, member, mine);
}

/// True for the last member to arrive. Tells where the outcome will be.
bool Meeting::arrive(int member, Contribution& mine, const Outcome*& outcome) {
  const MutexLock lock(mutex_);
  if (aborted()) throw Stopped();
  if (gone_ > 0) throw RuntimeError(mine.describe(), who_left());
  all_[member] = &mine;
  outcome = &outcomes_[current_];
  present_[member] = 1;
  last_on_slot_[turns_.slot_of(member)] = member;
  if (member == 0) wake_followers();
  return ++arrived_ == turns_.members();
}

void Meeting::wait_for_end(int member, const Timeout& timeout) {
  Parker::Deadline deadline;
  if (timeout) {
    deadline = std::chrono::steady_clock::now() +
               std::chrono::duration_cast<std::chrono::nanoseconds>(*timeout);
  }
  for (;;) {
    switch (turns_.wait(member, deadline)) {
      case HELP:
        do_pieces();
        break;
      case LEAD:
        do_work(member);
        conclude(-1);
        break;
      case kNothing:
        if (timeout) stop_waiting(member, *timeout);
        deadline.reset();  // its turn comes now, or when the work is done
        break;
      default:
        return;  // its turn: the meeting is over
    }
  }
}

/// Ends the meeting, unless everybody has come or it is over.
void Meeting::stop_waiting(int member, const std::chrono::duration<double>& timeout) {
  const MutexLock lock(mutex_);
  if (!present_[member] || arrived_ == turns_.members()) return;
  end_early({Outcome::LATE,
             cat(who_is_late(), " has not come within ", timeout.count(),
                 " s: look at what it does, or raise CommunicationOptions::timeout"),
             nullptr});
}

/// The last member to arrive finds everybody else waiting.
void Meeting::host(int member) {
  outcomes_[current_] = {};
  if (auto mismatch = find_mismatch()) {
    outcomes_[current_] = {Outcome::MISMATCH, *std::move(mismatch), nullptr};
    return conclude(member);
  }
  if (all_[0]->leader_only() && member != 0) {
    turns_.give_up(member);
    turns_.signal(0, LEAD);
    return wait_for_end(member);
  }
  do_work(member);
  conclude(member);
}

void Meeting::do_work(int host) {
  work_failed_.store(false, std::memory_order_relaxed);
  try {
    pieces_ = all_[0]->plan(all_);
  } catch (...) {
    return note_failure();
  }
  pieces_left_.store(pieces_, std::memory_order_relaxed);
  next_piece_.store(0, std::memory_order_release);
  if (pieces_ > 1) call_helpers(host);
  do_pieces();
  while (pieces_left_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
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
    const std::int64_t piece = next_piece_.fetch_add(1, std::memory_order_acq_rel);
    if (piece >= pieces_) return;
    try {
      all_[0]->work(piece);
    } catch (...) {
      note_failure();
    }
    pieces_left_.fetch_sub(1, std::memory_order_release);
  }
}

/// Keeps the first exception of the work. A failed merge function fails the whole run.
void Meeting::note_failure() {
  if (work_failed_.exchange(true)) return;
  outcomes_[current_] = {Outcome::FAILED, {}, std::current_exception()};
  if (all_[0]->leader_only()) {
    merge_error_ = std::current_exception();
    aborted_.store(true, std::memory_order_release);
  }
}

/// Lets everybody go on. `holder` has its turn already (-1: nobody has). Who is woken may be at the
/// next meeting before the last one is, and must not find the lock taken.
void Meeting::conclude(int holder) {
  {
    const MutexLock lock(mutex_);
    arrived_ = 0;
    current_ = 1 - current_;
    std::fill(present_.begin(), present_.end(), 0);
  }
  for (int m = 0; m < turns_.members(); ++m) {
    if (m != holder) turns_.ready(m);
  }
}

void Meeting::leave(int member) {
  const MutexLock lock(mutex_);
  left_[member] = 1;
  ++gone_;
  if (member == 0) wake_followers();
  if (arrived_ > 0) end_early({Outcome::LEFT, who_left(), nullptr});
}

void Meeting::abort() {
  const MutexLock lock(mutex_);
  aborted_.store(true, std::memory_order_release);
  wake_followers();
  if (arrived_ > 0) end_early({Outcome::STOPPED, {}, nullptr});
}

void Meeting::end_early(Outcome outcome) {
  outcomes_[current_] = std::move(outcome);
  arrived_ = 0;
  current_ = 1 - current_;
  for (int m = 0; m < turns_.members(); ++m) {
    if (std::exchange(present_[m], 0)) turns_.ready(m);
  }
}

bool Meeting::follow_leader(int member, FunctionRef<bool()> done) {
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (aborted()) throw Stopped();
      if (done()) return true;
      if (present_[0] || left_[0]) return false;
      followers_.push_back(member);
    }
    turns_.give_up(member);
    turns_.wait(member);
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
    return cat("replica ", first_replica_ + static_cast<int>(m), " calls ", other.describe(),
               " where replica ", first_replica_, " calls ", first.describe(), ": ", *what);
  }
  return std::nullopt;
}

std::string Meeting::who_left() const {
  const auto gone = std::find(left_.begin(), left_.end(), 1) - left_.begin();
  return cat("replica ", first_replica_ + gone,
             " has returned already: the replicas made a different number of "
             "replica_context().merge_call() calls or collectives; make each of them on every "
             "replica");
}

std::string Meeting::who_is_late() const {
  const auto late = std::find(present_.begin(), present_.end(), 0) - present_.begin();
  return cat("replica ", first_replica_ + late);
}

void Meeting::rethrow(const Outcome& outcome, int member, const Contribution& mine) {
  switch (outcome.kind) {
    case Outcome::DONE:
      return;
    case Outcome::MISMATCH:
      throw InvalidArgument(mine.describe(), outcome.text);
    case Outcome::LEFT:
      throw RuntimeError(mine.describe(), outcome.text);
    case Outcome::LATE:
      throw DeadlineExceeded(mine.describe(), outcome.text);
    case Outcome::STOPPED:
      throw Stopped();
    case Outcome::FAILED:
      if (mine.leader_only() && member != 0) throw Stopped();
      std::rethrow_exception(outcome.error);
  }
}

}  // namespace cohort::collectives
