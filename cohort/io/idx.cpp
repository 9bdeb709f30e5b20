// The format, numbers big-endian:
//
//     0  0        two zero bytes
//     2  type     0x08: unsigned bytes
//     3  rank     number of dimensions, r
//     4  sizes    r numbers of 4 bytes
//     …  data     the elements in row-major order

#include "cohort/io/idx.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/io/byte_source.h"

namespace cohort::io {
namespace {

std::unique_ptr<ByteSource> open_idx(const std::string& path) {
  try {
    return open_source(path, Compression::AUTO, "read_idx");
  } catch (NotFound& error) {
    error.add_note("`apt-get install dataset-fashion-mnist` brings Fashion-MNIST");
    throw;
  }
}

/// False if the file ends before.
bool read_all(ByteSource& source, unsigned char* target, std::size_t bytes) {
  while (bytes > 0) {
    const std::size_t got = source.read(target, bytes);
    if (got == 0) return false;
    target += got;
    bytes -= got;
  }
  return true;
}

std::uint32_t read_number(ByteSource& source) {
  unsigned char b[4];
  if (!read_all(source, b, 4)) source.fail("the header ends early");
  return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
}

/// The product of the sizes. Those of an array without elements must not overflow either, as
/// LibTorch computes strides of them.
std::int64_t count_elements(const ByteSource& source, const std::vector<std::int64_t>& sizes) {
  std::int64_t count = 1;
  bool is_empty = false;
  for (const std::int64_t size : sizes) {
    is_empty = is_empty || size == 0;
    if (size > 0 && count > std::numeric_limits<std::int64_t>::max() / size) {
      source.fail("the sizes are too large");
    }
    count *= std::max<std::int64_t>(size, 1);
  }
  return is_empty ? 0 : count;
}

/// The elements, read in blocks: a size in the header can't make us allocate more than there is.
std::vector<unsigned char> read_elements(ByteSource& source, std::int64_t count) {
  constexpr std::int64_t kBlock = 1 << 20;
  std::vector<unsigned char> data;
  while (static_cast<std::int64_t>(data.size()) < count) {
    const std::size_t before = data.size();
    data.resize(before + std::min<std::int64_t>(kBlock, count - static_cast<std::int64_t>(before)));
    if (!read_all(source, data.data() + before, data.size() - before)) {
      source.fail(cat("the data ends early: expected ", count, " elements"));
    }
  }
  return data;
}

}  // namespace

at::Tensor read_idx(const std::string& path) {
  const auto file = open_idx(path);
  ByteSource& source = *file;
  const std::uint32_t magic = read_number(source);
  constexpr std::uint32_t kBytes = 0x08;
  if (magic >> 8 != kBytes) source.fail("not an IDX file of unsigned bytes");
  std::vector<std::int64_t> sizes(magic & 0xff);
  for (std::int64_t& size : sizes) size = read_number(source);
  const std::int64_t count = count_elements(source, sizes);
  const auto data = read_elements(source, count);
  at::Tensor result = at::empty(sizes, at::kByte);
  std::copy(data.begin(), data.end(), result.data_ptr<std::uint8_t>());
  return result;
}

}  // namespace cohort::io
