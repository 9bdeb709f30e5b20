#include "cohort/input/batch_cut.h"

#include <ATen/ATen.h>

#include "cohort/base/error.h"

namespace cohort {

void detail::throw_unbatched() {
  throw ValueError("distribute_dataset",
                   "an element has no first dimension to share out among replicas: batch the "
                   "dataset with .batch(global_batch_size) before it is distributed");
}

namespace {

std::vector<std::int64_t> shape_without_rows(const data::LeafSpec& spec) {
  auto shape = spec.shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d == 0 || shape[d] == data::LeafSpec::kUnknown) shape[d] = 0;
  }
  return shape;
}

}  // namespace

at::Tensor empty_tensor(const LeafLook& look) {
  const auto shape = shape_without_rows(look.spec);
  const auto dtype = data::dtype_of_name(look.spec.dtype);
  if (look.sparse_dims == 0) return at::zeros(shape, dtype);
  std::vector<std::int64_t> values(shape.begin() + look.sparse_dims, shape.end());
  values.insert(values.begin(), 0);
  return at::sparse_coo_tensor(at::zeros({look.sparse_dims, 0}, at::kLong),
                               at::zeros(values, dtype), shape);
}

data::Strings empty_strings(const LeafLook& look) {
  if (look.spec.shape.empty()) return data::Strings::scalar("");
  return data::Strings().reshape(shape_without_rows(look.spec));
}

}  // namespace cohort
