#pragma once

#include <ATen/core/Tensor.h>

#include <string>

/// IDX, the format of the MNIST family of data sets, plain or compressed with gzip.
namespace cohort::io {

/// The array in an IDX file of unsigned bytes, as a uint8 tensor of its shape.
///
/// Throws NotFound for a file that can't be opened, InvalidArgument for one that is no IDX file of
/// bytes or that is shorter than its header says; both name the file, the latter the offset too.
at::Tensor read_idx(const std::string& path);

}  // namespace cohort::io
