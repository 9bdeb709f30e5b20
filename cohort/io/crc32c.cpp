#include "cohort/io/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace cohort::io {

std::uint32_t crc32c(std::string_view bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // ISA-L counts in an int
  auto* at = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
  std::uint32_t crc = 0xffffffffU;
  for (std::size_t left = bytes.size(); left > 0;) {
    const std::size_t step = std::min(left, kMost);
    crc = crc32_iscsi(at, static_cast<int>(step), crc);
    at += step;
    left -= step;
  }
  return ~crc;
}

}  // namespace cohort::io
