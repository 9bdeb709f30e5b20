#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace cohort {

/// Some rows of a tensor: `values[i]` belongs to row `indices[i]`. A row may come several times.
///
///     table.scatter_add({.values = rows, .indices = ids});
struct IndexedSlices {
  at::Tensor values;   ///< As many rows as there are indices.
  at::Tensor indices;  ///< int32 or int64, of rank 1.

  /// The shape of the whole tensor; empty means "as where the rows go".
  std::vector<std::int64_t> dense_shape = {};

  /// The rows of a tensor in COO layout, such as the gradient of a sparse embedding; not coalesced.
  /// Throws ValueError unless it is sparse in its first dimension only.
  static IndexedSlices from_sparse(const at::Tensor& tensor);
};

}  // namespace cohort
