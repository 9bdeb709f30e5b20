#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/io/crc32c.h"
#include "cohort/io/little_endian.h"
#include "cohort/io/tfrecord.h"

namespace cohort::io {
namespace {

constexpr const char* kWhere = "TFRecordReader";
constexpr std::size_t kLength = sizeof(std::uint64_t);
constexpr std::size_t kChecksum = sizeof(std::uint32_t);
constexpr std::size_t kHeader = kLength + kChecksum;

bool is_checked(std::string_view bytes) {
  return masked(crc32c(bytes)) == load<std::uint32_t>(bytes.data() + bytes.size());
}

/// The start of the first page that is not before this byte.
std::size_t page_after(std::size_t byte) {
  constexpr std::size_t kPage = BlockPool::kAlignment;
  return (byte + kPage - 1) / kPage * kPage;
}

/// The compression of a file of records, by its first bytes.
Compression detect(const std::string& path) {
  char first[kHeader] = {};
  if (open_source(path, Compression::NONE, kWhere)->read(first, kHeader) < kHeader ||
      is_checked({first, kLength})) {
    return Compression::NONE;
  }
  const auto a = static_cast<unsigned char>(first[0]);
  const auto b = static_cast<unsigned char>(first[1]);
  const bool is_zlib = (a & 0x0f) == 8 && a >> 4 <= 7 && (a << 8 | b) % 31 == 0;
  return is_zlib ? Compression::ZLIB : Compression::AUTO;
}

}  // namespace

TFRecordReader::TFRecordReader(const std::string& path, Compression compression)
    : source_(
          open_source(path, compression == Compression::AUTO ? detect(path) : compression, kWhere)),
      block_(BlockPool::of_process().take()),
      capacity_(BlockPool::kBlockBytes),
      needed_(kHeader) {
  static_assert(sizeof known_header_ == kHeader);
  store(known_header_ + kLength, masked(crc32c({known_header_, kLength})));
}

bool TFRecordReader::next(std::string_view& record) {
  Span data;
  try {
    while (!find_record(data)) {
      if (!read_more()) return false;
    }
  } catch (...) {
    pass_damaged_record();
    throw;
  }
  record = data.of(block_.get());
  return true;
}

std::int64_t TFRecordReader::next_block(std::int64_t max_records,
                                        std::shared_ptr<const char[]>& block,
                                        std::vector<Span>& spans) {
  asked_ = max_records;
  most_asked_ = std::max(most_asked_, asked_);
  std::int64_t found = 0;
  try {
    for (Span data; found < max_records;) {
      if (find_record(data)) {
        spans.push_back(data);
        ++found;
      } else if (found > 0 || !read_more()) {
        break;
      }
    }
  } catch (...) {
    if (found == 0) {  // else the next call, which starts at the damaged record
      pass_damaged_record();
      throw;
    }
  }
  if (found > 0) {
    block = block_;
    is_shared_ = true;
  }
  return found;
}

void TFRecordReader::seek(std::int64_t offset, std::int64_t record) {
  source_->seek(offset);
  offset_ = offset;
  record_ = record;
  begin_ = end_ = 0;
  needed_ = kHeader;
  can_go_on_ = true;
}

/// Takes the next record if the block holds all of it; else sets how much is needed.
bool TFRecordReader::find_record(Span& data) {
  const char* at = block_.get() + begin_;
  const std::size_t held = end_ - begin_;
  needed_ = kHeader;
  is_framed_ = false;
  if (held < needed_) return false;
  const auto length = checked_length(at);
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (length > kMost - kHeader - kChecksum) fail(cat("its length is ", length));
  needed_ = kHeader + length + kChecksum;
  if (held < needed_) return false;
  is_framed_ = true;
  check({at + kHeader, length}, "data");
  data = {begin_ + kHeader, length};
  pass_record();
  return true;
}

void TFRecordReader::pass_record() {
  begin_ += needed_;
  offset_ += static_cast<std::int64_t>(needed_);
  ++record_;
}

/// Goes behind the record that an error is about, if its length is known.
void TFRecordReader::pass_damaged_record() {
  can_go_on_ = is_framed_;
  if (is_framed_) pass_record();
}

/// The length at the start of a record. Records of one length are the rule: it is checked when it
/// changes.
std::uint64_t TFRecordReader::checked_length(const char* header) {
  if (std::memcmp(header, known_header_, kHeader) != 0) {
    check({header, kLength}, "length");
    std::memcpy(known_header_, header, kHeader);
  }
  return load<std::uint64_t>(header);
}

/// How far to fill the block. Whoever joins records of two blocks has to copy all of them: a block
/// shall end with those that are asked for, if they are as long as those before, and with more lots
/// of the usual size.
std::size_t TFRecordReader::fill_to() const {
  if (record_ == 0 || offset_ == 0 || asked_ == 0) return capacity_;
  const double length = static_cast<double>(offset_) / static_cast<double>(record_);
  const double lot = length * static_cast<double>(most_asked_);
  const double asked = length * static_cast<double>(asked_);
  const auto room = static_cast<double>(capacity_ - begin_);
  if (asked > room) return capacity_;
  const auto bytes = static_cast<std::size_t>(asked + std::floor((room - asked) / lot) * lot);
  return std::min(capacity_, page_after(begin_ + std::max(needed_, bytes)));
}

/// Reads on; false at the end of the file.
bool TFRecordReader::read_more() {
  make_room();
  const std::size_t until = fill_to();
  while (end_ < until) {
    const std::size_t got = source_->read(block_.get() + end_, until - end_);
    end_ += got;
    const std::size_t held = end_ - begin_;
    if (held >= needed_) break;
    if (got > 0) continue;
    if (held == 0) return false;
    fail(cat("expected ", needed_, " bytes, and the file ends after ", held, " of them"));
  }
  return true;
}

/// Moves what is left of the block to the front of one that has room for more, so that it ends, and
/// the next read starts, at the start of a page. A large record gets room for twice what has been
/// read of it, and not for all that its length claims.
void TFRecordReader::make_room() {
  const std::size_t rest = end_ - begin_;
  const std::size_t end = page_after(rest);
  const char* from = block_.get() + begin_;
  const bool is_large = needed_ > BlockPool::kBlockBytes - BlockPool::kAlignment;
  if (!is_large && capacity_ == BlockPool::kBlockBytes && !is_shared_) {
    std::memmove(block_.get() + end - rest, from, rest);
  } else {
    const std::size_t room = std::min(needed_, 2 * std::max(rest, BlockPool::kBlockBytes));
    capacity_ = is_large ? end - rest + room : BlockPool::kBlockBytes;
    auto block = is_large ? BlockPool::allocate(capacity_) : BlockPool::of_process().take();
    std::memcpy(block.get() + end - rest, from, rest);
    block_ = std::move(block);
    is_shared_ = false;
  }
  begin_ = end - rest;
  end_ = end;
}

/// Throws if the checksum that follows the bytes is not theirs.
void TFRecordReader::check(std::string_view bytes, std::string_view name) const {
  if (is_checked(bytes)) return;
  fail(cat("the checksum of its ", name, " is wrong: expected ",
           load<std::uint32_t>(bytes.data() + bytes.size()), ", got ", masked(crc32c(bytes)),
           offset_ == 0 ? "; is it a TFRecord file, with this compression?" : ""));
}

void TFRecordReader::fail(std::string_view what) const {
  throw InvalidArgument(kWhere,
                        cat(path(), ": record ", record_, " at byte ", offset_, ": ", what));
}

}  // namespace cohort::io
