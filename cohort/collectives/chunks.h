#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "cohort/base/error.h"

namespace cohort::collectives {

/// The elements [begin, end) of a buffer.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }

  friend bool operator==(const Range&, const Range&) = default;
};

/// A good size for a chunk: some ten microseconds of adding. Claiming costs nothing beside that,
/// a thread that comes late still finds work, and a reader's chunk stays in its L2 cache.
inline constexpr int64_t kChunkBytes = 128 << 10;

/// Lets any number of threads share the work on one range of elements.
///
/// The range is cut in chunks of equal size (the last may be shorter). A thread takes the next
/// chunk with `claim`, works on it and says `done`; it may join at any time, also when all chunks
/// are gone. Who is to use the result looks at `finished`:
///
///     while (const auto range = chunks.claim()) {
///       ordered_sum(dtype, plan, leaves, outputs, *range);
///       if (chunks.done()) wake_everybody();
///     }
///
/// What was written before a chunk's `done` is visible after `finished` returned true, and to the
/// caller of the last `done`. What was written before the first `claim` is visible to the claiming
/// threads only if they learned of this object through a synchronised channel; claiming itself
/// orders nothing. All members but the constructor may be called from any thread.
class ChunkCounter {
 public:
  /// Cuts [0, total) in chunks of `chunk` elements. Choose a chunk that is a whole number of cache
  /// lines, so that no two threads write to one. Throws ValueError for a chunk below one element.
  ChunkCounter(int64_t total, int64_t chunk)
      : total_(total), chunk_(chunk), chunks_(chunk < 1 ? 0 : (total + chunk - 1) / chunk) {
    if (chunk < 1) throw ValueError("ChunkCounter", cat("expected chunk >= 1, got ", chunk));
  }

  ChunkCounter(const ChunkCounter&) = delete;
  ChunkCounter& operator=(const ChunkCounter&) = delete;

  /// A chunk that nobody else gets; nothing when all are taken.
  std::optional<Range> claim() {
    const int64_t number = claimed_.fetch_add(1, std::memory_order_relaxed);
    if (number >= chunks_) return std::nullopt;
    const int64_t begin = number * chunk_;
    return Range{begin, begin + chunk_ < total_ ? begin + chunk_ : total_};
  }

  /// Reports one claimed chunk as complete. True for exactly one call: the one that was the last.
  bool done() { return done_.fetch_add(1, std::memory_order_acq_rel) + 1 == chunks_; }

  /// True once every chunk is complete; from the start if there is none.
  bool finished() const { return done_.load(std::memory_order_acquire) >= chunks_; }

 private:
  // Constant after construction.
  const int64_t total_;
  const int64_t chunk_;
  const int64_t chunks_;

  std::atomic<int64_t> claimed_{0};  // counts on beyond chunks_
  std::atomic<int64_t> done_{0};
};

}  // namespace cohort::collectives
