// The bytes of a position: "cohort position 1\n", then each number in zigzag order as a variable-
// length number of seven bits a byte, lowest first; the eighth bit says that more bytes follow.

#include "cohort/data/position.h"

#include "cohort/base/error.h"

namespace cohort::data {
namespace {

constexpr std::string_view kMagic = "cohort position 1\n";

[[noreturn]] void throw_other_pipeline(std::string_view expected) {
  throw InvalidArgument("iterator.restore",
                        cat("the position is of a pipeline with other stages: expected one that "
                            "was saved from an iterator of ",
                            expected));
}
[[noreturn]] void throw_other_pipeline() { throw_other_pipeline("the same dataset"); }

/// FNV-1a (Fowler, Noll, Vo 1991), the same on every machine.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

[[noreturn]] void throw_malformed(std::size_t at) {
  throw InvalidArgument("Position::from_bytes",
                        cat("not the bytes of a position: malformed at byte ", at));
}

}  // namespace

std::string Position::bytes() const {
  std::string result(kMagic);
  for (const std::int64_t number : numbers_) {
    auto rest = static_cast<std::uint64_t>(number) << 1 ^ static_cast<std::uint64_t>(number >> 63);
    for (; rest >= 0x80; rest >>= 7) result.push_back(static_cast<char>(rest | 0x80));
    result.push_back(static_cast<char>(rest));
  }
  return result;
}

Position Position::from_bytes(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) throw_malformed(0);
  std::vector<std::int64_t> numbers;
  std::uint64_t value = 0;
  int shift = 0;
  for (std::size_t i = kMagic.size(); i < bytes.size(); ++i) {
    if (shift > 63) throw_malformed(i);
    value |= static_cast<std::uint64_t>(bytes[i] & 0x7f) << shift;
    shift += 7;
    if (bytes[i] & 0x80) continue;
    numbers.push_back(static_cast<std::int64_t>(value >> 1) ^
                      -static_cast<std::int64_t>(value & 1));
    value = 0;
    shift = 0;
  }
  if (shift != 0) throw_malformed(bytes.size());
  return Position(std::move(numbers));
}

void PositionWriter::put_stages(std::string_view stages) { put(hash_of(stages)); }

void PositionWriter::put(const Position& position) {
  put(static_cast<std::int64_t>(position.numbers().size()));
  append(position);
}

void PositionWriter::append(const Position& position) {
  numbers_.insert(numbers_.end(), position.numbers().begin(), position.numbers().end());
}

void PositionReader::expect_stages(std::string_view stages) {
  if (left_.empty() || get_unsigned() != hash_of(stages)) throw_other_pipeline(stages);
}

std::int64_t PositionReader::get() {
  if (left_.empty()) throw_other_pipeline();
  const std::int64_t number = left_.front();
  left_ = left_.subspan(1);
  return number;
}

Position PositionReader::get_position() {
  const std::int64_t size = get();
  if (size < 0 || static_cast<std::size_t>(size) > left_.size()) throw_other_pipeline();
  Position result(std::vector<std::int64_t>(left_.begin(), left_.begin() + size));
  left_ = left_.subspan(size);
  return result;
}

void PositionReader::expect_end() const {
  if (!left_.empty()) throw_other_pipeline();
}

}  // namespace cohort::data
