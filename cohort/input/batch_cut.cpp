#include "cohort/input/batch_cut.h"

#include <ATen/ATen.h>

#include "cohort/base/error.h"

namespace cohort {

void detail::throw_unbatched() {
  throw ValueError("distribute_dataset",
                   "an element has no first dimension to share out among replicas: batch the "
                   "dataset with .batch(global_batch_size) before it is distributed");
}

at::Tensor empty_tensor(const data::LeafSpec& spec) {
  auto shape = spec.shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d == 0 || shape[d] == data::LeafSpec::kUnknown) shape[d] = 0;
  }
  return at::zeros(shape, data::dtype_of_name(spec.dtype));
}

}  // namespace cohort
