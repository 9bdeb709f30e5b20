#include "cohort/device/parker.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <thread>

namespace cohort {
namespace {

// Replicas that compute the same thing arrive at a collective some ten to some hundred microseconds
// apart; to wake a thread on a virtual machine costs some thirty.
constexpr auto kPolling = std::chrono::microseconds(300);
constexpr int kPausesBeforeYield = 200;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

/// Polls until the word is set or the polling time is over. Pauses first, then yields: with more
/// runnable threads than cores, polling without a yield would cost whole scheduler slices.
bool poll(const std::atomic<Parker::Signal>& word) {
  for (int i = 0; i < kPausesBeforeYield; ++i) {
    if (word.load(std::memory_order_acquire) != 0) return true;
    pause();
  }
  const auto end = std::chrono::steady_clock::now() + kPolling;
  while (std::chrono::steady_clock::now() < end) {
    if (word.load(std::memory_order_acquire) != 0) return true;
    std::this_thread::yield();
  }
  return false;
}

// std::atomic's own wait and notify would do, but libstdc++'s yields four times before it sleeps.
// Where many threads take turns on a core, that makes five context switches of every one.

void sleep_while(std::atomic<Parker::Signal>& word, Parker::Signal value,
                 const Parker::Deadline& deadline) {
  timespec end{};
  if (deadline) {
    const auto time = std::chrono::nanoseconds(deadline->time_since_epoch()).count();
    end = {static_cast<time_t>(time / 1'000'000'000), static_cast<long>(time % 1'000'000'000)};
  }
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, value, deadline ? &end : nullptr, nullptr,
          FUTEX_BITSET_MATCH_ANY);
}

bool is_over(const Parker::Deadline& deadline) {
  return deadline && std::chrono::steady_clock::now() >= *deadline;
}

void wake_sleeper(std::atomic<Parker::Signal>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace

Parker::Signal Parker::wait(Patience patience, const Deadline& deadline) {
  if (patience == Patience::SLEEP || !poll(word_)) {
    Signal nothing = 0;
    word_.compare_exchange_strong(nothing, kAsleep, std::memory_order_acq_rel);
    while (word_.load(std::memory_order_acquire) == kAsleep) {
      if (!is_over(deadline)) {
        sleep_while(word_, kAsleep, deadline);
        continue;
      }
      Signal asleep = kAsleep;
      if (word_.compare_exchange_strong(asleep, 0, std::memory_order_acq_rel)) return 0;
    }
  }
  return word_.exchange(0, std::memory_order_acq_rel);
}

void Parker::signal(Signal signal) {
  if (word_.exchange(signal, std::memory_order_acq_rel) == kAsleep) wake_sleeper(word_);
}

}  // namespace cohort
