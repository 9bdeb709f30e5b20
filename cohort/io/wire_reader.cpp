#include "cohort/io/wire_reader.h"

#include "cohort/base/error.h"

namespace cohort::io {

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
