#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace cohort {

/// FNV-1a (Fowler, Noll, Vo) over 64-bit words, with a final mix; the tail is padded with zeros.
class Hash {
 public:
  void add(const void* data, std::size_t bytes) {
    const auto* next = static_cast<const unsigned char*>(data);
    for (; bytes >= 8; bytes -= 8, next += 8) add_word(next, 8);
    if (bytes > 0) add_word(next, bytes);
  }
  void add(std::string_view text) {
    add(text.data(), text.size());
    add_number(text.size());
  }
  void add_number(std::uint64_t number) { add_word(&number, sizeof number); }

  std::uint64_t value() const { return (state_ ^ (state_ >> 31)) * 0x94d049bb133111ebU; }

 private:
  void add_word(const void* data, std::size_t bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, bytes);
    state_ = (state_ ^ word) * 0x100000001b3U;
    state_ ^= state_ >> 29;
  }

  std::uint64_t state_ = 0xcbf29ce484222325U;
};

}  // namespace cohort
