#pragma once

#include <bit>
#include <cstring>
#include <type_traits>

/// Numbers as files store them, least significant byte first.
namespace cohort::io {

static_assert(std::endian::native == std::endian::little, "numbers in files are little-endian");

/// The number at a place of any alignment.
template <class Number>
  requires std::is_arithmetic_v<Number>
Number load(const void* from) {
  Number number;
  std::memcpy(&number, from, sizeof number);
  return number;
}

/// The opposite.
template <class Number>
  requires std::is_arithmetic_v<Number>
void store(void* to, Number number) {
  std::memcpy(to, &number, sizeof number);
}

}  // namespace cohort::io
