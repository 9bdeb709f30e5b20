#pragma once

#include <cstdint>
#include <string_view>

/// CRC-32C (Castagnoli), the checksum of TFRecord files.
namespace cohort::io {

/// The checksum of some bytes.
std::uint32_t crc32c(std::string_view bytes);

/// The checksum as TFRecord stores it: rotated and moved by a constant, so that a checksum of data
/// that holds checksums stays a good one.
inline std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

}  // namespace cohort::io
