#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/data/batched.h"

namespace cohort::data {

/// Stands for the batch of elements that cannot be batched.
struct NoBatch {};

/// The elements of a batch while they are read. The stage that batches keeps it, so that an element
/// that can't be made costs none of those before it.
///
/// They come one by one, or in parts that a source has put together itself.
template <class T>
class Gathered {
 public:
  using Batch = std::conditional_t<Batchable<T>, Batched<T>, NoBatch>;

  std::int64_t rows() const { return rows_; }

  /// So many more will come, at most.
  void expect(std::int64_t count) {
    const auto more = static_cast<std::size_t>(std::min<std::int64_t>(count, 4096));
    elements_.reserve(elements_.size() + more);
  }
  void add(T element) {
    elements_.push_back(std::move(element));
    ++rows_;
  }
  /// One without rows counts where there is nothing else.
  void add(Batch part, std::int64_t rows) {
    if (rows_ == 0) parts_.clear();
    if (rows == 0 && rows_ > 0) return;
    stack_elements();
    parts_.push_back(std::move(part));
    rows_ += rows;
  }

  void clear() {
    elements_.clear();
    parts_.clear();
    rows_ = 0;
  }

  /// The batch; nothing is gathered any more then, also if it throws because the elements do not
  /// fit together.
  Batch take() {
    rows_ = 0;
    std::vector<Batch> parts = std::exchange(parts_, {});
    const std::vector<T> elements = std::exchange(elements_, {});
    if (!elements.empty()) parts.push_back(stack(elements));
    if (parts.size() > 1) return join(parts);
    return parts.empty() ? Batch() : std::move(parts.front());
  }

 private:
  void stack_elements() {
    if constexpr (Batchable<T>) {
      const std::vector<T> elements = std::exchange(elements_, {});
      if (!elements.empty()) parts_.push_back(stack(elements));
    }
  }

  std::vector<T> elements_;
  std::vector<Batch> parts_;
  std::int64_t rows_ = 0;
};

}  // namespace cohort::data
