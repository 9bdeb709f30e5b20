#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "cohort/base/mutex.h"
#include "cohort/collectives/exchange.h"

namespace cohort::threads {

/// A message on its way, in memory of its own.
struct Message {
  MessageHead head = {};
  std::size_t body_bytes = 0;
  std::chrono::steady_clock::time_point visible = {};  // the clock's beginning means at once
  std::size_t capacity = 0;
  std::unique_ptr<std::byte[]> body = nullptr;
};

/// Messages in order. They go from list to list with their nodes, so that a message that is used
/// again costs no allocation; one in hand is a list of one.
using Messages = std::list<Message>;

/// The messages that nobody uses, by size: as many as have been under way at the same time, so that
/// a program that does the same again and again allocates nothing. Thread-safe.
class MessagePool {
 public:
  /// One message whose body has room for so many bytes, with any content.
  Messages take(std::size_t bytes);

  void give_back(Messages message);

 private:
  static constexpr int kSmallest = 8;  // 2^8 bytes
  static constexpr int kClasses = 64;
  static constexpr std::size_t kMostIdleBytes = std::size_t{128} << 20;  // more are freed

  static int class_of(std::size_t bytes);

  Mutex mutex_;
  std::array<Messages, kClasses> idle_ COHORT_GUARDED_BY(mutex_);  // [i] of 2^i bytes
  std::size_t idle_bytes_ COHORT_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::threads
