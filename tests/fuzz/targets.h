#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/io/crc32c.h"
#include "cohort/io/csv.h"
#include "cohort/io/example.h"
#include "cohort/io/idx.h"
#include "cohort/io/little_endian.h"
#include "cohort/io/npy.h"
#include "cohort/io/tfrecord.h"

/// The readers on any bytes: each function may refuse them with a cohort::Error, and do nothing
/// else than that or read them. libFuzzer calls them (`make fuzz`), and so does a test.
namespace cohort::fuzz {

/// A file that is only in memory.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("fuzz", 0)) {
    if (::write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      std::abort();
    }
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

/// Calls a function that may throw a cohort::Error; returns its text.
template <class Function>
std::string refusal_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline void expect(bool holds) {
  if (!holds) std::abort();
}

/// Both ways to read must agree.
inline void read_records(const std::string& path, io::Compression compression) {
  std::vector<std::string> by_one;
  const std::string refusal = refusal_of([&] {
    io::TFRecordReader reader(path, compression);
    for (std::string_view record; reader.next(record);) by_one.emplace_back(record);
  });
  std::vector<std::string> by_blocks;
  const std::string other_refusal = refusal_of([&] {
    io::TFRecordReader reader(path, compression);
    std::shared_ptr<const char[]> block;
    for (std::vector<io::Span> spans; reader.next_block(3, block, spans) > 0; spans.clear()) {
      for (const io::Span& span : spans) by_blocks.emplace_back(span.of(block.get()));
    }
  });
  expect(by_one == by_blocks && refusal == other_refusal);
}

/// The bytes with right checksums wherever their lengths say that there is one: else no change gets
/// past the first.
inline std::string with_checksums(std::string bytes) {
  for (std::size_t at = 0; at + 12 <= bytes.size();) {
    io::store(bytes.data() + at + 8, io::masked(io::crc32c({bytes.data() + at, 8})));
    const auto length = io::load<std::uint64_t>(bytes.data() + at);
    if (length > bytes.size() || at + 16 + length > bytes.size()) break;
    const char* data = bytes.data() + at + 12;
    io::store(bytes.data() + at + 12 + length, io::masked(io::crc32c({data, length})));
    at += 16 + length;
  }
  return bytes;
}

inline void tfrecord(std::string_view bytes) {
  const MemoryFile file(bytes);
  for (const auto compression : {io::Compression::NONE, io::Compression::GZIP,
                                 io::Compression::ZLIB, io::Compression::AUTO}) {
    read_records(file.path(), compression);
  }
  read_records(MemoryFile(with_checksums(std::string(bytes))).path(), io::Compression::NONE);
}

inline void example(std::string_view bytes) {
  refusal_of([&] {
    for (const auto& [name, feature] : io::features_of(bytes)) {
      std::vector<std::string_view> strings;
      std::vector<float> floats;
      std::vector<std::int64_t> numbers;
      feature.append(strings);
      feature.append(floats);
      feature.append(numbers);
      expect(strings.size() + floats.size() + numbers.size() == feature.size());
      for (const std::string_view string : strings) {
        expect(string.empty() || (string.data() >= bytes.data() &&
                                  string.data() + string.size() <= bytes.data() + bytes.size()));
      }
    }
  });
}

inline void npy(std::string_view bytes) {
  const MemoryFile file(bytes);
  refusal_of([&] { io::read_npy(file.path()); });
  refusal_of([&] {
    const io::NpyRows rows(file.path());
    expect(rows.read(rows.size() / 2, rows.size()).size(0) == rows.size() - rows.size() / 2);
  });
}

inline void idx(std::string_view bytes) {
  const MemoryFile file(bytes);
  refusal_of([&] { io::read_idx(file.path()); });
}

/// Each row has as many fields as the first.
inline void csv(std::string_view bytes) {
  const MemoryFile file(bytes);
  for (const bool has_quotes : {true, false}) {
    refusal_of([&] {
      io::CsvReader reader(file.path(), {.has_quotes = has_quotes});
      std::size_t fields = 0;
      for (std::vector<std::string> row; reader.next(row); fields = row.size()) {
        expect(!row.empty() && (fields == 0 || fields == row.size()));
      }
    });
  }
}

}  // namespace cohort::fuzz
