#include "cohort/collectives/threads/message_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace cohort::threads {

int MessagePool::class_of(std::size_t bytes) {
  return bytes == 0 ? kSmallest : std::max<int>(std::bit_width(bytes - 1), kSmallest);
}

Messages MessagePool::take(std::size_t bytes) {
  const int size = class_of(bytes);
  Messages message;
  {
    const MutexLock lock(mutex_);
    Messages& idle = idle_[size];
    if (!idle.empty()) {
      idle_bytes_ -= idle.front().capacity;
      message.splice(message.end(), idle, idle.begin());
    }
  }
  if (message.empty()) {
    Message& fresh = message.emplace_back();
    fresh.capacity = std::size_t{1} << size;
    fresh.body = std::make_unique_for_overwrite<std::byte[]>(fresh.capacity);
  }
  message.front().body_bytes = bytes;
  return message;
}

/// The one that was used last is the next one: it is in the cache.
void MessagePool::give_back(Messages message) {
  const std::size_t capacity = message.front().capacity;
  const MutexLock lock(mutex_);
  if (capacity > kMostIdleBytes - idle_bytes_) return;
  idle_bytes_ += capacity;
  Messages& idle = idle_[class_of(capacity)];
  idle.splice(idle.begin(), message);
}

}  // namespace cohort::threads
