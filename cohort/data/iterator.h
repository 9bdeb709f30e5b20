#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/data/batched.h"
#include "cohort/data/position.h"

namespace cohort::data {

/// Stands for the batch of elements that cannot be batched.
struct NoBatch {};

/// A stage of a pipeline at work: gives one element after the other.
///
/// Used by one thread at a time. After `next` has thrown, it may be called again: it goes on with
/// the element behind the one that failed, or is at its end where there is no such element.
template <class T>
class Iterator {
 public:
  using Batch = std::conditional_t<Batchable<T>, Batched<T>, NoBatch>;

  Iterator() = default;
  virtual ~Iterator() = default;
  Iterator(const Iterator&) = delete;
  Iterator& operator=(const Iterator&) = delete;

  /// Sets `element` to the next one; false at the end.
  virtual bool next(T& element) = 0;

  /// The next `count` elements as one batch, fewer at the end; returns how many. Overridden by
  /// sources that make a batch without making the elements one by one.
  virtual std::int64_t next_batch(std::int64_t count, Batch& batch) {
    std::vector<T> elements;
    elements.reserve(static_cast<std::size_t>(std::min<std::int64_t>(count, 4096)));
    T element{};
    while (static_cast<std::int64_t>(elements.size()) < count && next(element)) {
      elements.push_back(std::move(element));
    }
    if constexpr (Batchable<T>) {
      if (!elements.empty()) batch = stack(elements);
    }
    return static_cast<std::int64_t>(elements.size());
  }

  /// Passes over `count` elements; returns how many there were.
  virtual std::int64_t skip(std::int64_t count) {
    T element{};
    std::int64_t skipped = 0;
    while (skipped < count && next(element)) ++skipped;
    return skipped;
  }

  /// Where it stands, behind the last element that it gave. A stage that cannot tell throws
  /// ValueError.
  virtual void save(PositionWriter& position) const = 0;
  /// Goes to where another iterator of the same stage stood. Called before anything else.
  virtual void restore(PositionReader& position) = 0;

  /// The same with a position of its own.
  Position position() const {
    PositionWriter writer;
    save(writer);
    return writer.take();
  }
  void go_to(const Position& position) {
    PositionReader reader(position);
    restore(reader);
    reader.expect_end();
  }
};

template <class T>
using IteratorPtr = std::unique_ptr<Iterator<T>>;

}  // namespace cohort::data
