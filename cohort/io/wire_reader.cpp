#include "cohort/io/wire_reader.h"

#include "cohort/base/error.h"

namespace cohort::io {

WireReader::Field WireReader::scalar_field(std::uint32_t number, WireType type) {
  switch (type) {
    case WireType::VARINT:
      return {number, type, varint(), {}};
    case WireType::FIXED64:
      return {number, type, 0, take(8)};
    case WireType::FIXED32:
      return {number, type, 0, take(4)};
    default:
      fail("a field has a wrong type");
  }
}

std::uint64_t WireReader::long_varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ == end_) fail("a number is cut off");
    const auto byte = static_cast<unsigned char>(*at_++);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail("a number has more than 10 bytes");
}

void WireReader::fail(std::string_view what) const {
  throw InvalidArgument("Example", cat("malformed: ", what, " at byte ", at_ - record_));
}

}  // namespace cohort::io
