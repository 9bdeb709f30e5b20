#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/io/file.h"

namespace cohort::io {

/// What the header of a .npy file says.
struct NpyHeader {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> sizes;
  bool is_big_endian = false;
  bool is_fortran_order = false;  ///< The first index changes fastest, not the last.
  std::int64_t data_offset = 0;   ///< Of the first element in the file.

  std::int64_t numel() const;
  std::int64_t num_bytes() const;  ///< Of the elements.
};

/// Reads the header of a file of any of the versions 1 to 3.
///
/// Throws InvalidArgument, with the file, the byte and what is wrong, for a file that is no .npy
/// file, that has elements which LibTorch 1.13 has no type for (uint16, text, structures), or that
/// is shorter than the header says.
NpyHeader read_npy_header(const File& file);
NpyHeader read_npy_header(const std::string& path);

/// The header of version 1 for an array in C order and little-endian, as `write_npy` writes it.
/// Throws InvalidArgument for a type that NumPy does not have, such as bfloat16.
std::string npy_header(at::ScalarType dtype, const std::vector<std::int64_t>& sizes);

}  // namespace cohort::io
