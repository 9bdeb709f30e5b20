#include "cohort/io/byte_sink.h"

#include "cohort/base/error.h"
#include "cohort/base/log.h"

namespace cohort::io {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 18;

std::unique_ptr<Deflater> deflater_for(const std::string& path, Compression compression) {
  if (compression == Compression::AUTO) {
    compression = path.ends_with(".gz") ? Compression::GZIP : Compression::NONE;
  }
  if (compression == Compression::NONE) return nullptr;
  return std::make_unique<Deflater>(compression);
}

}  // namespace

ByteSink::ByteSink(const std::string& path, Compression compression, std::string_view where)
    : file_(File::create(path, where)), where_(where), deflater_(deflater_for(path, compression)) {}

ByteSink::~ByteSink() {
  try {
    close();
  } catch (const Error& error) {
    log::error(error.what());
  }
}

void ByteSink::write(std::string_view bytes) {
  check_open();
  buffer_ += bytes;
  if (buffer_.size() >= kBuffer) drain(Deflater::End::NO);
}

void ByteSink::flush() {
  check_open();
  drain(Deflater::End::FLUSH);
}

void ByteSink::close() {
  if (!is_open_) return;
  is_open_ = false;
  drain(Deflater::End::STREAM);
  file_.close();
}

void ByteSink::check_open() const {
  if (!is_open_) throw RuntimeError(where_, cat(file_.path(), ": is closed already"));
}

void ByteSink::drain(Deflater::End end) {
  std::string compressed;
  if (deflater_) deflater_->deflate(buffer_, end, compressed);
  file_.write(deflater_ ? compressed : buffer_);
  buffer_.clear();
}

}  // namespace cohort::io
