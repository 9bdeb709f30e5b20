#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace cohort {

/// A thread's own place to wait for a signal.
///
/// One thread waits, any thread may signal; a later signal replaces one that was not taken yet.
/// A waiter may first poll for a while, so that a hand-over between running threads costs well
/// under a microsecond; it yields its core meanwhile to whoever has work. Then it sleeps and uses
/// no CPU. Signalling a thread that is awake costs no system call.
class alignas(64) Parker {
 public:
  /// What the waiter is woken for. 0 means nothing; the values, below 2^31, are the users' own.
  using Signal = std::uint32_t;

  /// How a waiter spends its first microseconds.
  enum class Patience {
    SLEEP,  ///< Goes to sleep at once: somebody else needs this core.
    POLL,   ///< Polls first: the wait is usually short and the core has nothing better to do.
  };

  /// When to stop waiting; none waits for ever.
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;

  /// Waits for a signal and takes it. 0 if none came before the deadline.
  Signal wait(Patience patience, const Deadline& deadline = {});

  /// Wakes the waiter, or the next one to come.
  void signal(Signal signal);

 private:
  static constexpr Signal kAsleep = Signal{1} << 31;  // stands in the word while the waiter sleeps

  std::atomic<Signal> word_{0};
};

}  // namespace cohort
