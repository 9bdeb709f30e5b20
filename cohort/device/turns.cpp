#include "cohort/device/turns.h"

#include <algorithm>
#include <functional>

#include "cohort/device/allowed_cores.h"

namespace cohort {
namespace {

/// Asked before anything is bound to a core: a thread that is may use just that one.
int cores_of_process() {
  static const int cores = allowed_cores();
  return cores;
}

}  // namespace

Turns::Turns(const std::vector<int>& slot_of) : cores_(cores_of_process()) {
  const int slots = slot_of.empty() ? 0 : *std::max_element(slot_of.begin(), slot_of.end()) + 1;
  slots_.resize(slots);
  seats_.resize(slot_of.size());
  for (std::size_t m = 0; m < slot_of.size(); ++m) {
    seats_[m].slot = slot_of[m];
    ++slots_[slot_of[m]].members;
  }
}

Parker::Signal Turns::wait(int member, const Parker::Deadline& deadline) {
  // Polling pays when every member has a core to poll on; else the core is somebody's turn.
  const bool poll = !shared(member) && members() <= cores_;
  return seats_[member].parker.wait(poll ? Parker::Patience::POLL : Parker::Patience::SLEEP,
                                    deadline);
}

void Turns::give_up(int member) {
  if (!shared(member)) return;
  Slot& own = slot(member);
  int next = -1;
  {
    const MutexLock lock(own.mutex);
    if (own.holder != member) return;
    if (!own.queue.empty()) {
      next = own.queue.back();
      own.queue.pop_back();
    }
    hand_to(next, own);
  }
  if (next >= 0) signal(next, kTurn);
}

void Turns::ready(int member) {
  if (shared(member)) {
    Slot& own = slot(member);
    const MutexLock lock(own.mutex);
    if (own.holder >= 0) {
      const auto place =
          std::lower_bound(own.queue.begin(), own.queue.end(), member, std::greater<>());
      own.queue.insert(place, member);
      return;
    }
    hand_to(member, own);
  }
  signal(member, kTurn);
}

void Turns::seize(int member) {
  if (!shared(member)) return;
  Slot& own = slot(member);
  const MutexLock lock(own.mutex);
  hand_to(member, own);
}

bool Turns::holds(int member) {
  if (!shared(member)) return true;
  Slot& own = slot(member);
  const MutexLock lock(own.mutex);
  return own.holder == member;
}

std::optional<Turns::Turn> Turns::waits_for(int member) {
  Slot& own = slot(member);
  const MutexLock lock(own.mutex);
  if (std::find(own.queue.begin(), own.queue.end(), member) == own.queue.end()) return {};
  return Turn{own.holder, own.turn, own.queue.back() == member};
}

bool Turns::withdraw(int member) {
  Slot& own = slot(member);
  const MutexLock lock(own.mutex);
  return std::erase(own.queue, member) > 0;
}

}  // namespace cohort
