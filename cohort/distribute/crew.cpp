#include "cohort/distribute/crew.h"

#include <string>

#include "cohort/base/error.h"
#include "cohort/base/exception_note.h"

namespace cohort {

Crew::Crew(const std::vector<int>& slot_of, World& world, const WaitLimits& limits)
    : world_(world), turns_(slot_of), meeting_(turns_, world, limits), errors_(slot_of.size()) {}

Crew::~Crew() {
  stopping_ = true;
  for (int m = 1; m <= threads_.size(); ++m) turns_.signal(m, Turns::kTurn);
  threads_.join();
}

void Crew::run(FunctionRef<void(int)> body, int& failed) {
  body_ = &body;
  meeting_.open();
  unfinished_.store(size(), std::memory_order_release);
  start_threads();
  turns_.seize(0);
  for (int m = 1; m < size(); ++m) turns_.ready(m);
  play(0);
  if (size() > 1) wait_for_others();
  rethrow_first_error(failed);
}

/// An earlier run may have got some of them only.
void Crew::start_threads() {
  for (int m = threads_.size() + 1; m < size(); ++m) {
    threads_.start([this, m] { thread_main(m); });
  }
}

/// In the child of a fork inside of the run, the replica that forked is the only one.
void Crew::wait_for_others() {
  if (threads_.process().is_current()) {
    WaitClock clock({.warn_after = meeting_.warn_after()});
    while (turns_.wait(0, clock.next()) != ALL_DONE) {
      if (clock.due() == WaitClock::WARNING) {
        meeting_.warn_of_unfinished(clock.waited(), text_of(errors_[0]));
      }
    }
  } else if (!errors_[0]) {
    threads_.process().require("strategy.run", "run");
  }
}

void Crew::thread_main(int member) {
  for (;;) {
    wait_to_start(member);
    if (stopping_) return;
    play(member);
    if (!threads_.process().is_current()) return;  // ends the child: it has no other thread
  }
}

/// A replica whose slot another one keeps for too long fails before its function is called.
void Crew::wait_to_start(int member) {
  try {
    meeting_.wait_for_turn(member, "strategy.run");
  } catch (...) {
    errors_[member] = std::current_exception();
  }
}

void Crew::play(int member) {
  try {
    if (!errors_[member]) (*body_)(member);
  } catch (...) {
    errors_[member] = std::current_exception();
  }
  if (!threads_.process().is_current()) return;  // forked: nobody to tell
  if (errors_[member]) meeting_.abort();
  finish(member);
}

void Crew::finish(int member) {
  meeting_.leave(member);
  turns_.give_up(member);
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1 && size() > 1) {
    turns_.signal(0, ALL_DONE);
  }
}

namespace {

/// True for what a member got only because another one failed.
bool is_reaction(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const collectives::Stopped&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

void Crew::rethrow_first_error(int& failed) {
  std::exception_ptr first = meeting_.take_merge_error();
  int who = world_.first();
  for (int m = 0; m < size() && !first; ++m) {
    if (errors_[m] && !is_reaction(errors_[m])) {
      first = errors_[m];
      who = world_.id_of(m);
    }
  }
  for (auto& error : errors_) error = nullptr;
  if (!first) return;
  failed = who;
  std::rethrow_exception(with_note(first, cat("in replica ", who)));
}

}  // namespace cohort
