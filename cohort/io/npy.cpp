#include "cohort/io/npy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/whole_tensor.h"

namespace cohort::io {
namespace {

/// Turns around the bytes of every number; a complex element is two.
void swap_bytes(at::Tensor& tensor) {
  const auto width = tensor.element_size() / (tensor.is_complex() ? 2 : 1);
  auto* bytes = static_cast<char*>(tensor.data_ptr());
  for (auto* end = bytes + tensor.nbytes(); width > 1 && bytes < end; bytes += width) {
    std::reverse(bytes, bytes + width);
  }
}

/// `bytes` of the file's elements, from a byte of the file on, as a tensor of these sizes.
at::Tensor read_elements_at(const File& file, const NpyHeader& header, at::IntArrayRef sizes,
                            std::int64_t offset) {
  // A byte that is neither 0 nor 1 is no bool.
  const bool is_bool = header.dtype == at::kBool;
  at::Tensor tensor = at::empty(sizes, is_bool ? at::kByte : header.dtype);
  const std::size_t got = file.read_at(tensor.data_ptr(), tensor.nbytes(), offset);
  if (got < tensor.nbytes()) {
    file.fail(cat("the file became shorter: expected ", tensor.nbytes(), " bytes, got ", got),
              offset);
  }
  if (header.is_big_endian) swap_bytes(tensor);
  return is_bool ? tensor.ne(0) : tensor;
}

at::Tensor read_all(const File& file, const NpyHeader& header) {
  std::vector<std::int64_t> sizes = header.sizes;
  if (!header.is_fortran_order) return read_elements_at(file, header, sizes, header.data_offset);
  std::reverse(sizes.begin(), sizes.end());
  const at::Tensor reversed = read_elements_at(file, header, sizes, header.data_offset);
  std::vector<std::int64_t> dimensions(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    dimensions[i] = static_cast<std::int64_t>(sizes.size() - 1 - i);
  }
  return reversed.permute(dimensions).contiguous();
}

}  // namespace

at::Tensor read_npy(const std::string& path) {
  const File file = File::open(path, "read_npy");
  return read_all(file, read_npy_header(file));
}

void write_npy(const std::string& path, const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) {
    throw InvalidArgument("write_npy", cat("expected a dense tensor, got ", tensor.layout()));
  }
  const at::Tensor dense = as_read(tensor.detach().cpu());
  const std::string header = npy_header(dense.scalar_type(), dense.sizes().vec());
  File file = File::create(path, "write_npy");
  file.write(header);
  file.write({static_cast<const char*>(dense.data_ptr()), dense.nbytes()});
  file.close();
}

NpyRows::NpyRows(const std::string& path)
    : file_(File::open(path, "NpyRows")), header_(read_npy_header(file_)) {
  if (header_.sizes.empty()) file_.fail("the array has no rows: its shape is ()", 0);
  if (header_.is_fortran_order) all_ = read_all(file_, header_);
}

at::Tensor NpyRows::read(std::int64_t from, std::int64_t to) const {
  if (from < 0 || from > to || to > size()) {
    throw ValueError("NpyRows::read", cat(file_.path(), ": rows ", from, " to ", to,
                                          " are not in [0, ", size(), "]"));
  }
  if (all_.defined()) return all_.slice(0, from, to).clone();
  std::vector<std::int64_t> sizes = header_.sizes;
  sizes[0] = to - from;
  const std::int64_t row_bytes = size() == 0 ? 0 : header_.num_bytes() / size();
  return read_elements_at(file_, header_, sizes, header_.data_offset + from * row_bytes);
}

}  // namespace cohort::io
