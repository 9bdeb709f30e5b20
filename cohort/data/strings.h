#pragma once

#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/io/span.h"

namespace cohort::data {

/// An n-dimensional array of byte strings: what TensorFlow calls a tensor of type string, which
/// LibTorch does not have.
///
/// A string is any bytes, zeros too. The array never changes, so copies share its bytes and are
/// cheap, and any number of threads may read it. Its bytes lie in one block, and rows, slices and
/// reshaped arrays point into the same block, as do the records of a file that was read into it.
///
///     Strings names({"ada", "grace"});
///     names.sizes();              // [2]
///     names[1];                   // "grace"
///     names.select(0).str();      // "ada", of an array with no dimensions
///     Strings::stack(rows);       // a vector of them, as the rows of one array
class Strings {
 public:
  using Span = io::Span;
  class Iterator;
  using value_type = std::string_view;
  using const_iterator = Iterator;

  /// No strings: sizes [0].
  Strings();

  /// Copies of these strings: sizes [n].
  explicit Strings(const std::vector<std::string>& strings);
  explicit Strings(std::span<const std::string_view> strings);

  /// The strings at these places in the block, which is shared, not copied: sizes [n]. Every span
  /// must lie in the block, and nobody may change the block from now on.
  Strings(std::shared_ptr<const char[]> bytes, std::vector<Span> spans);

  /// A copy of one string: sizes [].
  static Strings scalar(std::string_view string);

  /// Of a temporary by value.
  c10::IntArrayRef sizes() const& { return sizes_; }
  std::vector<std::int64_t> sizes() const&& { return {sizes_.begin(), sizes_.end()}; }
  std::int64_t dim() const { return static_cast<std::int64_t>(sizes_.size()); }
  std::int64_t numel() const { return count_; }

  /// The size of a dimension; -1 is the last one. Throws ValueError if there is no such dimension.
  std::int64_t size(std::int64_t dim) const;

  /// The i-th string in row-major order, whatever the shape. Valid as long as any array that shares
  /// the block: that of `all.select(0)[1]`, whose row is a temporary, as long as `all`. Throws
  /// ValueError if i is not in [0, numel()).
  std::string_view operator[](std::int64_t i) const;

  /// All strings in row-major order. Not of a temporary, which would be gone by the first step; a
  /// `for` over one keeps it.
  Iterator begin() const&;
  Iterator end() const&;
  Iterator begin() const&& = delete;
  Iterator end() const&& = delete;

  /// The string of an array that has one and no dimensions, valid as that of `[]`. Throws
  /// ValueError for another shape.
  std::string_view str() const;

  /// Rows [from, to) of dimension 0. Throws ValueError unless 0 <= from <= to <= size(0).
  Strings slice(std::int64_t from, std::int64_t to) const;

  /// One row, without dimension 0. Throws ValueError if there is no such row.
  Strings select(std::int64_t row) const;

  /// The same strings in another shape; one size may be -1, which is then computed. Throws
  /// ValueError if the number of strings differs.
  Strings reshape(c10::IntArrayRef sizes) const;

  /// Strings that lie inside of strings of this array, whose block is shared: sizes [n]. Every view
  /// must lie in the block.
  Strings within(std::span<const std::string_view> views) const;

  /// The arrays as the rows of a new dimension 0. Copies no bytes if all share one block. Throws
  /// InvalidArgument if there are none or two shapes differ.
  static Strings stack(std::span<const Strings> rows);

  /// The arrays one after the other along dimension 0. Copies no bytes if all share one block.
  /// Throws InvalidArgument if there are none, if one has no dimensions, or if two differ in
  /// another size than the first.
  static Strings cat(std::span<const Strings> parts);

  /// Whether shapes and strings are equal.
  friend bool operator==(const Strings& a, const Strings& b);

  /// The shape and the first few strings, with bytes that can't be printed as \xNN.
  friend std::ostream& operator<<(std::ostream& out, const Strings& strings);

 private:
  using Sizes = c10::SmallVector<std::int64_t, 4>;
  using SharedSpans = std::shared_ptr<const std::vector<Span>>;

  Strings(std::shared_ptr<const char[]> bytes, SharedSpans spans, std::size_t first, Sizes sizes);

  const Span* spans() const { return spans_->data() + first_; }
  std::int64_t strings_in_row() const;
  Sizes row_sizes() const;
  static Strings join(std::span<const Strings> parts, Sizes sizes);
  static Strings join_spans(std::span<const Strings> parts, std::size_t count);
  static Strings join_bytes(std::span<const Strings> parts, std::size_t count);

  std::shared_ptr<const char[]> bytes_;
  SharedSpans spans_;      // never null
  std::size_t first_ = 0;  // of the spans; there are count_
  std::int64_t count_ = 0;
  Sizes sizes_;
};

/// Goes over the strings of an array, which must outlive it.
class Strings::Iterator {
 public:
  using iterator_category = std::input_iterator_tag;  // as it gives values, not references
  using value_type = std::string_view;
  using difference_type = std::ptrdiff_t;
  using pointer = const std::string_view*;
  using reference = std::string_view;

  Iterator() = default;
  Iterator(const char* bytes, const Span* span) : bytes_(bytes), span_(span) {}

  std::string_view operator*() const { return span_->of(bytes_); }
  Iterator& operator++() {
    ++span_;
    return *this;
  }
  Iterator operator++(int) { return {bytes_, span_++}; }
  bool operator==(const Iterator& other) const { return span_ == other.span_; }

 private:
  const char* bytes_ = nullptr;
  const Span* span_ = nullptr;
};

}  // namespace cohort::data
