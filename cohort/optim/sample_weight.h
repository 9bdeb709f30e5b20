#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace cohort {

/// The weights in the shape of the values. Axes are matched from the left, as in Keras: the weight
/// of an example counts for all of its values. A weight may have one axis of size 1 too many.
/// Throws InvalidArgument, with `where` and both shapes, for weights that do not fit.
at::Tensor in_shape_of(const at::Tensor& values, const at::Tensor& sample_weight,
                       std::string_view where);

}  // namespace cohort
