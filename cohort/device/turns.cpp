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
  Slot& slot = slots_[seats_[member].slot];
  int next = -1;
  {
    const MutexLock lock(slot.mutex);
    if (!slot.queue.empty()) {
      next = slot.queue.back();
      slot.queue.pop_back();
    }
    slot.holder = next;
  }
  if (next >= 0) signal(next, kTurn);
}

void Turns::ready(int member) {
  if (shared(member)) {
    Slot& slot = slots_[seats_[member].slot];
    const MutexLock lock(slot.mutex);
    if (slot.holder >= 0) {
      const auto place =
          std::lower_bound(slot.queue.begin(), slot.queue.end(), member, std::greater<>());
      slot.queue.insert(place, member);
      return;
    }
    slot.holder = member;
  }
  signal(member, kTurn);
}

void Turns::seize(int member) {
  if (!shared(member)) return;
  Slot& slot = slots_[seats_[member].slot];
  const MutexLock lock(slot.mutex);
  slot.holder = member;
}

}  // namespace cohort
