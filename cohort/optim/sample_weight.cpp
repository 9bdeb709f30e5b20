#include "cohort/optim/sample_weight.h"

#include <ATen/ATen.h>

#include "cohort/base/error.h"
#include "cohort/collectives/tensor_reduction.h"

namespace cohort {

at::Tensor in_shape_of(const at::Tensor& values, const at::Tensor& sample_weight,
                       std::string_view where) {
  at::Tensor weight = sample_weight;
  if (weight.dim() == values.dim() + 1 && weight.size(-1) == 1) weight = weight.squeeze(-1);
  while (weight.dim() < values.dim()) weight = weight.unsqueeze(-1);
  bool fits = weight.dim() == values.dim();
  for (std::int64_t axis = 0; fits && axis < values.dim(); ++axis) {
    fits = weight.size(axis) == 1 || weight.size(axis) == values.size(axis);
  }
  if (fits) return weight.expand(values.sizes());
  throw InvalidArgument(
      where, cat("the weights do not fit to the values: expected one for each "
                 "value or example of ",
                 collectives::describe(values), ", got ", collectives::describe(sample_weight)));
}

}  // namespace cohort
