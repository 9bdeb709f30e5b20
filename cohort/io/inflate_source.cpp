#include "cohort/io/inflate_source.h"

#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cohort/base/error.h"

namespace cohort::io {
namespace {

const char* text_of(int error) {
  switch (error) {
    case ISAL_INVALID_WRAPPER:
      return "the header of the compressed data is wrong";
    case ISAL_UNSUPPORTED_METHOD:
      return "the data is compressed by an unknown method";
    case ISAL_NEED_DICT:
      return "the data was compressed with a dictionary, which is not supported";
    case ISAL_INCORRECT_CHECKSUM:
      return "the checksum of the compressed data is wrong";
    default:
      return "the compressed data is damaged";
  }
}

}  // namespace

struct InflateSource::State {
  inflate_state inflate;
  std::array<unsigned char, 1 << 16> input;
  std::int64_t read_from_file = 0;

  bool is_finished() const { return inflate.block_state == ISAL_BLOCK_FINISH; }
};

InflateSource::InflateSource(File file, Compression compression, std::string_view where)
    : ByteSource(file.path(), where),
      file_(std::move(file)),
      compression_(compression),
      state_(std::make_unique<State>()) {
  isal_inflate_init(&state_->inflate);
  start_stream();
}

InflateSource::~InflateSource() = default;

void InflateSource::start_stream() {
  isal_inflate_reset(&state_->inflate);  // keeps the input that is left
  state_->inflate.crc_flag = compression_ == Compression::GZIP ? ISAL_GZIP : ISAL_ZLIB;
}

std::size_t InflateSource::read(void* target, std::size_t bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // ISA-L counts in 32 bits
  inflate_state& inflate = state_->inflate;
  std::size_t done = 0;
  while (done < bytes) {
    if (state_->is_finished() && !start_next_stream()) break;
    const auto wanted = static_cast<std::uint32_t>(std::min(bytes - done, kMost));
    inflate.next_out = static_cast<unsigned char*>(target) + done;
    inflate.avail_out = wanted;
    const bool goes_on = inflate_some();
    done += wanted - inflate.avail_out;
    offset_ += wanted - inflate.avail_out;
    if (goes_on) continue;
    if (done == 0) fail_in_file("the file ends inside of compressed data");
    break;  // what came before is good; the next call throws
  }
  return done;
}

void InflateSource::seek(std::int64_t offset) {
  if (offset < offset_) {
    file_.seek(0);
    state_->read_from_file = 0;
    state_->inflate.avail_in = 0;
    offset_ = 0;
    start_stream();
  }
  std::array<char, 1 << 14> skipped;
  while (offset_ < offset) {
    const auto step = std::min<std::int64_t>(offset - offset_, skipped.size());
    if (read(skipped.data(), static_cast<std::size_t>(step)) == 0) return;
  }
}

/// Gives some output, or takes some input; false if the file ends instead.
bool InflateSource::inflate_some() {
  inflate_state& inflate = state_->inflate;
  const std::uint32_t room = inflate.avail_out;
  const std::uint32_t input = inflate.avail_in;
  const int result = isal_inflate(&inflate);
  if (result != ISAL_DECOMP_OK) fail_in_file(text_of(result));
  if (inflate.avail_out < room || state_->is_finished()) return true;
  if (inflate.avail_in == 0) return refill();
  if (inflate.avail_in == input) fail_in_file("the compressed data is damaged");
  return true;
}

bool InflateSource::refill() {
  const std::size_t got = file_.read(state_->input.data(), state_->input.size());
  state_->inflate.next_in = state_->input.data();
  state_->inflate.avail_in = static_cast<std::uint32_t>(got);
  state_->read_from_file += static_cast<std::int64_t>(got);
  return got > 0;
}

/// After the end of one stream; false at the end of the file.
bool InflateSource::start_next_stream() {
  if (state_->inflate.avail_in == 0 && !refill()) return false;
  constexpr unsigned char kGzip = 0x1f;
  if (compression_ != Compression::GZIP || *state_->inflate.next_in != kGzip) {
    fail_in_file("there are other bytes after the end of the compressed data");
  }
  start_stream();
  return true;
}

void InflateSource::fail_in_file(std::string_view what) const {
  const std::int64_t taken = state_->read_from_file - state_->inflate.avail_in;
  fail(cat(what, " at byte ", taken, " of the file, decompressed"));
}

}  // namespace cohort::io
