#include "cohort/variables/indexed_slices.h"

#include <ATen/ATen.h>

#include "cohort/base/error.h"

namespace cohort {

IndexedSlices IndexedSlices::from_sparse(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_sparse() || tensor.sparse_dim() != 1) {
    throw ValueError("IndexedSlices.from_sparse",
                     "expected a COO tensor that is sparse in its first dimension only; make one "
                     "of a dense tensor with to_sparse(1)");
  }
  return {tensor._values(), tensor._indices().squeeze(0), tensor.sizes().vec()};
}

}  // namespace cohort
