#include "cohort/io/byte_source.h"

#include <algorithm>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/io/file.h"
#include "cohort/io/inflate_source.h"

namespace cohort::io {
namespace {

/// A file as it is, by read(2): a mapped file that becomes shorter would end the process.
class PlainSource : public ByteSource {
 public:
  PlainSource(File file, std::string_view where)
      : ByteSource(file.path(), where), file_(std::move(file)), size_(file_.size()) {}

  std::size_t read(void* target, std::size_t bytes) override {
    const std::size_t got = file_.read(target, bytes);
    offset_ += static_cast<std::int64_t>(got);
    if (got < bytes && offset_ < size_) {
      fail(cat("the file became shorter than the ", size_, " bytes it had, and ends"));
    }
    return got;
  }

  void seek(std::int64_t offset) override {
    offset = std::min(offset, std::max(size_, file_.size()));
    file_.seek(offset);
    offset_ = offset;
  }

 private:
  File file_;
  std::int64_t size_;  // when it was opened
};

bool starts_as_gzip(const File& file) {
  unsigned char first[3];
  return file.read_at(first, 3, 0) == 3 && first[0] == 0x1f && first[1] == 0x8b && first[2] == 8;
}

}  // namespace

ByteSource::ByteSource(std::string path, std::string_view where)
    : path_(std::move(path)), where_(where) {}

void ByteSource::fail(std::string_view what) const {
  throw InvalidArgument(where_, cat(path_, ": ", what, " at byte ", offset_));
}

std::unique_ptr<ByteSource> open_source(const std::string& path, Compression compression,
                                        std::string_view where) {
  File file = File::open(path, where);
  if (compression == Compression::AUTO) {
    compression = starts_as_gzip(file) ? Compression::GZIP : Compression::NONE;
  }
  if (compression == Compression::NONE) {
    return std::make_unique<PlainSource>(std::move(file), where);
  }
  return std::make_unique<InflateSource>(std::move(file), compression, where);
}

}  // namespace cohort::io
