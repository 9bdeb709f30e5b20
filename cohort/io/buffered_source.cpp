#include "cohort/io/buffered_source.h"

#include <algorithm>
#include <cstring>

namespace cohort::io {

std::string_view BufferedSource::peek(std::size_t bytes) {
  constexpr std::size_t kLeast = std::size_t{1} << 16;
  while (end_ - begin_ < bytes) {
    if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (end_ == buffer_.size()) buffer_.resize(std::max(kLeast, 2 * end_));
    const std::size_t got = source_->read(buffer_.data() + end_, buffer_.size() - end_);
    end_ += got;
    if (got == 0) break;
  }
  return {buffer_.data() + begin_, end_ - begin_};
}

void BufferedSource::seek(std::int64_t offset) {
  source_->seek(offset);
  begin_ = end_ = 0;
}

}  // namespace cohort::io
