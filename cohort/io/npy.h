#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "cohort/io/file.h"
#include "cohort/io/npy_header.h"

/// .npy, the file format of NumPy's arrays.
namespace cohort::io {

/// The array in a file, in C order and the machine's order of bytes, whatever those of the file.
///
/// Throws NotFound for a file that can't be opened, and InvalidArgument as `read_npy_header`.
at::Tensor read_npy(const std::string& path);

/// Writes a tensor, from any device and of any strides, to a file, which it creates or empties.
///
/// Throws InvalidArgument for a type that NumPy does not have, such as bfloat16, and for a sparse
/// tensor; NotFound if the file can't be created; Unavailable if the disk is full or fails.
void write_npy(const std::string& path, const at::Tensor& tensor);

/// The rows of an array in a file, which are read when they are asked for: the array may be larger
/// than the memory. (One in Fortran order is read at once, as its rows are spread over the file.)
///
///     NpyRows images("images.npy");
///     images.read(0, 128);  // the first 128
///
/// Any number of threads may read at a time.
class NpyRows {
 public:
  /// Throws as `read_npy`, and InvalidArgument for an array with no dimensions.
  explicit NpyRows(const std::string& path);

  /// The sizes of the whole array; the first is the number of rows.
  const std::vector<std::int64_t>& sizes() const { return header_.sizes; }
  std::int64_t size() const { return header_.sizes[0]; }
  at::ScalarType dtype() const { return header_.dtype; }

  /// Rows [from, to), as an array of their own. Throws ValueError unless 0 <= from <= to <= size(),
  /// InvalidArgument if the file became shorter.
  at::Tensor read(std::int64_t from, std::int64_t to) const;

 private:
  File file_;
  NpyHeader header_;
  at::Tensor all_;  // of an array in Fortran order
};

}  // namespace cohort::io
