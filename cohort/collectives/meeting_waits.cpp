// What a member does while it waits: it looks up when its clock says so, names in the log who keeps
// it waiting, and gives up when its time is over.

#include <algorithm>
#include <cmath>

#include "cohort/base/log.h"
#include "cohort/collectives/meeting.h"

namespace cohort::collectives {
namespace {

constexpr const char* kLookAtIt =
    "look at what it does (a lock or barrier of your own, an endless loop, a slow read?)";

std::string in_seconds(WaitLimits::Seconds time) {
  return cat(std::round(time.count() * 1000) / 1000, " s");
}

/// A failed run returns when its last replica does, so that its error may not be seen for long.
void log_failure(std::string_view where, std::string_view text) {
  log::warning('[', where, "] ", text, "; strategy.run throws this when every replica has ended");
}

}  // namespace

/// "replica 3", "replicas 1, 2 and 3".
std::string Meeting::names_of(const std::vector<int>& members) const {
  std::string text = members.size() == 1 ? "replica " : "replicas ";
  for (std::size_t i = 0; i < members.size(); ++i) {
    const bool is_last = i + 1 == members.size();
    text += cat(i == 0 ? "" : is_last ? " and " : ", ", id_of(members[i]));
  }
  return text;
}

/// Who has not come. One that waits for its slot is not the reason: whoever holds the slot is.
std::vector<int> Meeting::missing() const {
  std::vector<int> absent, running;
  for (int m = 0; m < turns_.members(); ++m) {
    if (present_[m]) continue;
    absent.push_back(m);
    if (!turns_.waits_for(m)) running.push_back(m);
  }
  return running.empty() ? absent : running;
}

std::string Meeting::who_waits() const {
  std::vector<int> waiting;
  for (int m = 0; m < turns_.members(); ++m) {
    if (present_[m]) waiting.push_back(m);
  }
  return cat(names_of(waiting), waiting.size() == 1 ? " has waited " : " have waited ");
}

std::string Meeting::who_is_late(WaitLimits::Seconds timeout) const {
  const auto late = missing();
  return cat(names_of(late), late.size() == 1 ? " has" : " have", " not come within ",
             timeout.count(), " s: ", kLookAtIt, ", or raise .timeout");
}

void Meeting::warn_of_unfinished(WaitLimits::Seconds waited, std::string_view error) {
  std::vector<int> running;
  {
    const MutexLock lock(mutex_);
    for (int m = 1; m < turns_.members(); ++m) {
      if (!left_[m]) running.push_back(m);
    }
  }
  if (running.empty()) return;
  const std::string thrown =
      error.empty() ? ""
                    : cat("; strategy.run throws then what ", names_of({0}), " threw: ", error);
  log::warning("[strategy.run] ", names_of({0}), " has ended and waited ", in_seconds(waited),
               " for ", names_of(running), ": ", kLookAtIt, thrown);
}

/// In the order of what a member waits for: the others, the work, its slot.
void Meeting::look_at_meeting(Wait& wait, const Contribution& mine) {
  std::string failure, warning;
  {
    const MutexLock lock(mutex_);
    if (present_[wait.member]) {
      const auto due = wait.clock.due();
      const bool all_there = arrived_ == turns_.members();
      if (due == WaitClock::TIMEOUT && !all_there) {
        failure = who_is_late(*wait.clock.limits().timeout);
        end_early({Failure::LATE, failure, nullptr});
      } else if (due == WaitClock::WARNING && wait.is_first) {
        warning = cat(who_waits(), in_seconds(wait.clock.waited()), " for ",
                      all_there ? "the work of this call, which all have come to"
                                : cat(names_of(missing()), ": ", kLookAtIt));
      }
    } else {
      wait.is_over = true;
    }
  }
  if (!failure.empty()) log_failure(mine.describe(), failure);
  if (!warning.empty()) log::warning('[', mine.describe(), "] ", warning);
  if (wait.is_over) look_at_slot(wait, mine.describe());
}

/// Time counts from when the holder of the slot was first seen: replicas that take their turns one
/// after the other keep nobody waiting for longer than they should.
void Meeting::look_at_slot(Wait& wait, std::string_view where) {
  const auto turn = turns_.waits_for(wait.member);
  if (!turn || std::exchange(wait.slots_turn, turn->number) != turn->number) {
    return wait.clock.restart();
  }
  const auto due = wait.clock.due();
  const std::string who =
      cat("replica ", id_of(wait.member), " has waited ", in_seconds(wait.clock.waited()),
          " for the slot of its device, which replica ", id_of(turn->holder), " holds: ");
  if (due == WaitClock::WARNING && turn->is_next) log::warning('[', where, "] ", who, kLookAtIt);
  if (due != WaitClock::TIMEOUT || !turns_.withdraw(wait.member)) return;
  const std::string text =
      cat(who, kLookAtIt, ", use as many devices as replicas, or raise .timeout");
  log_failure(where, text);
  throw DeadlineExceeded(where, text);
}

void Meeting::wait_for_turn(int member, std::string_view where) {
  if (!turns_.shared(member)) {  // gets its turn as soon as it is ready
    turns_.wait(member);
    return;
  }
  Wait wait(member, limits_);
  while (turns_.wait(member, wait.clock.next()) == kNothing) look_at_slot(wait, where);
}

void Meeting::take_turn(int member, std::string_view where) {
  require_others(where);
  if (turns_.holds(member)) return;
  turns_.ready(member);
  wait_for_turn(member, where);
}

bool Meeting::follow_leader(int member, const std::string& what, FunctionRef<bool()> done) {
  require_others(what);
  Wait wait(member, limits_);
  for (;;) {
    const bool has_slot = turns_.holds(member);
    {
      const MutexLock lock(mutex_);
      if (aborted()) throw Stopped();
      if (done()) return true;
      if (present_[0] || left_[0]) return false;
      wait.is_first = followers_.empty();
      followers_.push_back(member);
    }
    if (has_slot) turns_.give_up(member);
    while (turns_.wait(member, wait.clock.next()) == kNothing) look_at_leader(wait, what);
  }
}

/// In the order of what a follower waits for: the leader, its slot.
void Meeting::look_at_leader(Wait& wait, const std::string& what) {
  bool is_late = false, is_slow = false;
  {
    const MutexLock lock(mutex_);
    const auto me = std::find(followers_.begin(), followers_.end(), wait.member);
    wait.is_over = me == followers_.end();
    if (!wait.is_over) {
      const auto due = wait.clock.due();
      is_slow = due == WaitClock::WARNING && wait.is_first;
      is_late = due == WaitClock::TIMEOUT;
      if (is_late) followers_.erase(me);
    }
  }
  if (wait.is_over) return look_at_slot(wait, what);
  const std::string leader = names_of({0});
  if (is_slow) {
    log::warning('[', what, "] ", names_of({wait.member}), " has waited ",
                 in_seconds(wait.clock.waited()), " for ", leader, " to make it: ", kLookAtIt);
  }
  if (!is_late) return;
  const std::string text =
      cat(leader, " has not made it within ", wait.clock.limits().timeout->count(),
          " s: ", kLookAtIt, ", or raise .timeout");
  log_failure(what, text);
  throw DeadlineExceeded(what, text);
}

}  // namespace cohort::collectives
