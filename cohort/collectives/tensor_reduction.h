#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cohort/collectives/reduce_op.h"

/// Reductions of whole tensors, one from each replica. Pure functions: no threads, no contexts.
namespace cohort::collectives {

/// "float [3, 4]", for errors.
std::string describe(const at::Tensor& tensor);

/// Throws InvalidArgument unless all tensors have the dtype, the shape and the layout (dense or
/// sparse) of the first; names the replica that differs. `first_replica` is the id of values[0].
void check_same(const char* where, std::span<const at::Tensor> values, int first_replica = 0);

/// The dtype that values are divided in: their own, float32 for integers of 8 and 16 bits, float64
/// for longer ones.
c10::ScalarType quotient_dtype(c10::ScalarType dtype);

/// The sum or mean in tree order, in a new tensor on the device of values[0]; the MEAN of integers
/// has their `quotient_dtype`. A single value of any dtype is its own sum and mean. Sparse tensors
/// are concatenated in replica order instead of added, so their result is not coalesced; MEAN
/// divides their values. Where only some are sparse, all count as dense. Throws as `check_same`,
/// and InvalidArgument for dtypes that can't be added.
at::Tensor reduce_tensors(ReduceOp op, std::span<const at::Tensor> values);

/// A way of adding up of the user's own: one tensor from each replica, in their order, to one.
using Accumulation = std::function<at::Tensor(std::span<const at::Tensor>)>;

/// The same with an accumulation in place of addition; an empty one is addition.
at::Tensor reduce_tensors(ReduceOp op, std::span<const at::Tensor> values,
                          const Accumulation& accumulation);

/// The values concatenated along `axis`, which may be negative; a single one as it is. Throws
/// ValueError for scalars and an axis out of range, InvalidArgument for shapes that differ
/// elsewhere than in `axis`.
at::Tensor gather_tensors(std::span<const at::Tensor> values, std::int64_t axis);

}  // namespace cohort::collectives
