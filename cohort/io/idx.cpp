// The format, numbers big-endian:
//
//     0  0        two zero bytes
//     2  type     0x08: unsigned bytes
//     3  rank     number of dimensions, r
//     4  sizes    r numbers of 4 bytes
//     …  data     the elements in row-major order

#include "cohort/io/idx.h"

#include <ATen/ATen.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "cohort/base/error.h"

namespace cohort::io {
namespace {

/// A file that zlib reads, which passes plain files through.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (!file_) {
      throw NotFound("read_idx", cat(path,
                                     ": can't be opened; `apt-get install "
                                     "dataset-fashion-mnist` brings Fashion-MNIST"));
    }
  }
  ~Reader() { gzclose(file_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// Up to `bytes`; fewer at the end of the file.
  std::size_t read(void* target, std::size_t bytes) {
    const int got = gzread(file_, target, static_cast<unsigned>(bytes));
    int error = Z_OK;
    if (got < 0) fail(gzerror(file_, &error));
    offset_ += got;
    return static_cast<std::size_t>(got);
  }

  std::uint32_t number() {
    unsigned char b[4];
    if (read(b, 4) != 4) fail("the header ends early");
    return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InvalidArgument("read_idx", cat(path_, ": ", what, " at byte ", offset_));
  }

 private:
  std::string path_;
  gzFile file_;
  std::int64_t offset_ = 0;
};

/// The elements, read in blocks: a size in the header can't make us allocate more than there is.
std::vector<unsigned char> read_elements(Reader& reader, std::int64_t count) {
  constexpr std::int64_t kBlock = 1 << 20;
  std::vector<unsigned char> data;
  while (static_cast<std::int64_t>(data.size()) < count) {
    const std::size_t before = data.size();
    data.resize(before + std::min<std::int64_t>(kBlock, count - static_cast<std::int64_t>(before)));
    const std::size_t got = reader.read(data.data() + before, data.size() - before);
    if (got < data.size() - before) {
      reader.fail(cat("the data ends early: expected ", count, " elements"));
    }
  }
  return data;
}

}  // namespace

at::Tensor read_idx(const std::string& path) {
  Reader reader(path);
  const std::uint32_t magic = reader.number();
  constexpr std::uint32_t kBytes = 0x08;
  if (magic >> 8 != kBytes) reader.fail("not an IDX file of unsigned bytes");
  std::vector<std::int64_t> sizes(magic & 0xff);
  std::int64_t count = 1;
  for (std::int64_t& size : sizes) {
    size = reader.number();
    if (size > 0 && count > std::numeric_limits<std::int64_t>::max() / size) {
      reader.fail("the sizes are too large");
    }
    count *= size;
  }
  const auto data = read_elements(reader, count);
  at::Tensor result = at::empty(sizes, at::kByte);
  std::copy(data.begin(), data.end(), result.data_ptr<std::uint8_t>());
  return result;
}

}  // namespace cohort::io
