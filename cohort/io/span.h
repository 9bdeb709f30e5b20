#pragma once

#include <cstdint>
#include <string_view>

namespace cohort::io {

/// A run of bytes inside a block that somebody else holds.
struct Span {
  std::uint64_t begin = 0;
  std::uint64_t length = 0;

  std::string_view of(const char* block) const { return {block + begin, length}; }
  bool operator==(const Span&) const = default;
};

}  // namespace cohort::io
