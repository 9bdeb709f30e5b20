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
    Field field{};
    const std::uint64_t key = varint();
    field.number = static_cast<std::uint32_t>(key >> 3);
    field.type = static_cast<WireType>(key & 7);
    if (key >> 3 == 0 || key >> 3 > kMostNumber) fail("a field has a wrong number");
    switch (field.type) {
      case WireType::VARINT:
        field.varint = varint();
        break;
      case WireType::FIXED64:
        field.bytes = take(8);
        break;
      case WireType::BYTES:
        field.bytes = take(varint());
        break;
      case WireType::FIXED32:
        field.bytes = take(4);
        break;
      default:
        fail("a field has a wrong type");
    }
    return field;
  }

  /// The next number of variable length; there must be one.
  std::uint64_t varint() {
    if (at_ < end_ && static_cast<signed char>(*at_) >= 0) {
      return static_cast<unsigned char>(*at_++);
    }
    return long_varint();
  }

  [[noreturn]] void fail(std::string_view what) const;

 private:
  static constexpr std::uint64_t kMostNumber = (std::uint64_t{1} << 29) - 1;

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
