#include "cohort/device/parker.h"

#include <chrono>
#include <thread>

namespace cohort {
namespace {

constexpr auto kPolling = std::chrono::microseconds(60);
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

}  // namespace

Parker::Signal Parker::wait(Patience patience) {
  if (patience == Patience::SLEEP || !poll(word_)) word_.wait(0, std::memory_order_acquire);
  return word_.exchange(0, std::memory_order_acq_rel);
}

void Parker::signal(Signal signal) {
  word_.store(signal, std::memory_order_release);
  word_.notify_one();
}

}  // namespace cohort
