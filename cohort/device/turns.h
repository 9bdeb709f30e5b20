#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/device/parker.h"

namespace cohort {

/// Who may compute: on each slot one member at a time, in the order of their numbers.
///
/// A member is a thread that computes on the slot of its device. It holds the slot while it
/// computes and gives it up while it waits for others, so eight replicas run on two devices, and
/// members of different slots truly at the same time. A slot with one member costs nothing.
///
/// Example, for a member's thread: `wait` until kTurn; compute; `give_up` before waiting for
/// others, who call `ready` when the wait is over; `wait` until kTurn again.
///
/// A member whose wait has failed goes on without its slot, to throw: whoever holds the slot may
/// wait for what the member holds.
class Turns {
 public:
  /// `slot_of[m]` is the slot of member m.
  explicit Turns(const std::vector<int>& slot_of);

  /// The signal that says: the slot is yours. Others may use further values.
  static constexpr Parker::Signal kTurn = 1;

  int members() const { return static_cast<int>(seats_.size()); }
  int slot_of(int member) const { return seats_[member].slot; }
  int slots() const { return static_cast<int>(slots_.size()); }

  /// Waits for a signal to this member. 0 if none came before the deadline.
  Parker::Signal wait(int member, const Parker::Deadline& deadline = {});

  /// Signals a member that waits for something other than its turn.
  void signal(int member, Parker::Signal signal) { seats_[member].parker.signal(signal); }

  /// The member does not compute for now; the next one that is ready gets its turn. Nothing happens
  /// if it goes without its slot.
  void give_up(int member);

  /// The member, which waits, wants to compute: it gets kTurn at once if its slot is free, else
  /// when those before it have given it up.
  void ready(int member);

  /// Takes the slot for a member whose thread is the caller's and which is known to be free.
  void seize(int member);

  /// Whether the member has its slot.
  bool holds(int member);

  /// True if other members use the member's slot too, so that it may have to wait for its turn.
  bool shared(int member) const { return slots_[seats_[member].slot].members > 1; }

  /// The turn that a member waits for the end of.
  struct Turn {
    int holder;
    std::uint64_t number;  // counts the turns of the slot
    bool is_next;          // the slot is the member's afterwards
  };
  /// Nothing unless the member is ready and another one holds the slot.
  std::optional<Turn> waits_for(int member);

  /// The member is no longer ready. False if it was not, or has got its turn: kTurn is under way.
  bool withdraw(int member);

 private:
  struct Slot {
    Mutex mutex;
    int members = 0;  // constant after construction
    int holder COHORT_GUARDED_BY(mutex) = -1;
    std::uint64_t turn COHORT_GUARDED_BY(mutex) = 0;  // counts changes of the holder
    std::vector<int> queue COHORT_GUARDED_BY(mutex);  // ready members, highest number first
  };
  struct Seat {
    int slot = 0;
    Parker parker;
  };

  Slot& slot(int member) { return slots_[seats_[member].slot]; }
  static void hand_to(int member, Slot& slot) COHORT_REQUIRES(slot.mutex) {
    slot.holder = member;
    ++slot.turn;
  }

  const int cores_;
  std::deque<Slot> slots_;
  std::deque<Seat> seats_;
};

}  // namespace cohort
