#pragma once

#include <cstdint>
#include <string_view>

namespace cohort::io {

/// How the value of a field is written.
enum class WireType : std::uint8_t { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/// Reads the fields of a message of protocol buffers in order, without a copy.
///
/// Throws InvalidArgument for malformed bytes, with their place in the record that the message is a
/// part of.
class WireReader {
 public:
  struct Field {
    std::uint32_t number;
    WireType type;
    std::uint64_t varint;    // the value of a VARINT
    std::string_view bytes;  // the value of another type
  };

  /// `record` is where the record starts.
  WireReader(std::string_view message, const char* record)
      : at_(message.data()), end_(at_ + message.size()), record_(record) {}

  bool is_done() const { return at_ == end_; }
  const char* position() const { return at_; }

  /// The next field; there must be one.
  Field field() {
    const std::uint64_t key = varint();
    const std::uint64_t number = key >> 3;
    const auto type = static_cast<WireType>(key & 7);
    if (number == 0 || number > kMostNumber) fail("a field has a wrong number");
    if (type == WireType::BYTES) {
      return {static_cast<std::uint32_t>(number), type, 0, take(varint())};
    }
    return scalar_field(static_cast<std::uint32_t>(number), type);
  }

  /// The next number of variable length; there must be one. Nearly all have one or two bytes.
  std::uint64_t varint() {
    constexpr unsigned kMore = 0x80;
    const auto* next = reinterpret_cast<const unsigned char*>(at_);
    if (at_ < end_ && next[0] < kMore) {
      ++at_;
      return next[0];
    }
    if (end_ - at_ >= 2 && next[1] < kMore) {
      at_ += 2;
      return (next[0] & (kMore - 1)) | static_cast<std::uint64_t>(next[1]) << 7;
    }
    return long_varint();
  }

  [[noreturn]] void fail(std::string_view what) const;

 private:
  static constexpr std::uint64_t kMostNumber = (std::uint64_t{1} << 29) - 1;

  Field scalar_field(std::uint32_t number, WireType type);
  std::uint64_t long_varint();

  std::string_view take(std::uint64_t bytes) {
    if (bytes > static_cast<std::uint64_t>(end_ - at_)) fail("a field is longer than its message");
    const std::string_view taken(at_, bytes);
    at_ += bytes;
    return taken;
  }

  const char* at_;
  const char* end_;
  const char* record_;
};

}  // namespace cohort::io
