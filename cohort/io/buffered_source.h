#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/io/byte_source.h"

namespace cohort::io {

/// A file whose next bytes can be looked at before they are taken. Belongs to one thread at a time.
class BufferedSource {
 public:
  explicit BufferedSource(std::unique_ptr<ByteSource> source) : source_(std::move(source)) {}

  /// At least the next `bytes`, fewer only at the end of the file. Valid until the next call of any
  /// function but `take`. The buffer grows to twice what the file holds at most. Throws as
  /// ByteSource::read.
  std::string_view peek(std::size_t bytes);

  /// Goes past bytes that `peek` showed.
  void take(std::size_t bytes) { begin_ += bytes; }

  /// Goes on at this byte of the decompressed data.
  void seek(std::int64_t offset);

  /// How many decompressed bytes were taken.
  std::int64_t offset() const {
    return source_->offset() - static_cast<std::int64_t>(end_ - begin_);
  }

  const std::string& path() const { return source_->path(); }

 private:
  std::unique_ptr<ByteSource> source_;
  std::vector<char> buffer_;  // bytes [begin_, end_) are read and not yet taken
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace cohort::io
