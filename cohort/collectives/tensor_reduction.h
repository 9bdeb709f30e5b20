#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cohort/collectives/reduce_op.h"
#include "cohort/collectives/reduction_tree.h"

/// Reductions of whole tensors, one from each replica. Pure functions: no threads, no contexts.
namespace cohort::collectives {

/// "Float [3, 4]", for errors. Throws nothing, whatever kind of tensor it is.
std::string describe(const at::Tensor& tensor);

/// What to do with a nested tensor, for errors.
inline constexpr const char* kPadIt = "give to_padded_tensor() of it";

/// Throws ValueError, which names the replica, if one of the tensors is undefined. `first_replica`
/// is the id of values[0].
void check_defined(const char* where, std::span<const at::Tensor> values, int first_replica = 0);

/// Throws InvalidArgument unless all tensors have the dtype, the shape and the layout (dense or
/// sparse) of the first, and for nested ones; names the replica that differs. Also throws as
/// `check_defined`.
void check_same(const char* where, std::span<const at::Tensor> values, int first_replica = 0);

/// Throws InvalidArgument for a dtype that has no addition.
void check_addable(const char* where, c10::ScalarType dtype);

/// Throws as `check_same` and `check_addable` if these tensors have no sum; sparse and dense ones
/// may be mixed.
void check_reducible(const char* where, std::span<const at::Tensor> values, int first_replica = 0);

/// True for what `ordered_sum` reads: dense memory of the CPU. Anything else goes through
/// LibTorch's operations.
bool kernel_reads(const at::Tensor& tensor);

/// The dtype that values are divided in: their own, float32 for integers of 8 and 16 bits, float64
/// for longer ones.
c10::ScalarType quotient_dtype(c10::ScalarType dtype);

/// The sum of one node of the tree over replicas: `values` are those of its replicas. A single
/// value is itself. Dense tensors, alike. `divisor` is Division::in_kernel.
at::Tensor sum_in_tree(std::span<const at::Tensor> values, Node node, double divisor = 1);

/// A sum divided by so many replicas, in its `quotient_dtype`; of a sparse one the entries.
at::Tensor quotient(const at::Tensor& sum, std::size_t count);

/// How the sum of so many dense tensors becomes what is asked for. A mean takes no pass of its own
/// where `ordered_sum` can divide what it adds.
struct Division {
  Division(ReduceOp op, const at::Tensor& like, std::size_t count);

  /// The rest, for a sum that has been divided by `in_kernel`.
  at::Tensor finish(const at::Tensor& sum) const {
    return afterwards == 1 ? sum : quotient(sum, afterwards);
  }

  double in_kernel = 1;        // the divisor of `ordered_sum`
  std::size_t afterwards = 1;  // or that of `quotient`
};

/// The sum or mean in tree order, in a new tensor on the device of values[0]; the MEAN of integers
/// has their `quotient_dtype`. A single value of any dtype is its own sum and mean. Sparse tensors
/// are concatenated in replica order instead of added, so their result is not coalesced; MEAN
/// divides their values. Where only some are sparse, all count as dense. Throws as
/// `check_reducible`.
at::Tensor reduce_tensors(ReduceOp op, std::span<const at::Tensor> values);

/// A way of adding up of the user's own: one tensor from each replica, in their order, to one.
using Accumulation = std::function<at::Tensor(std::span<const at::Tensor>)>;

/// The same with an accumulation in place of addition; an empty one is addition.
at::Tensor reduce_tensors(ReduceOp op, std::span<const at::Tensor> values,
                          const Accumulation& accumulation);

/// The values concatenated along `axis`, which may be negative; a single one as it is. Throws
/// ValueError for undefined tensors, scalars and an axis out of range, InvalidArgument for nested
/// ones, for dtypes that differ, and for shapes that differ elsewhere than in `axis`. `where` is
/// the user's call.
at::Tensor gather_tensors(const char* where, std::span<const at::Tensor> values, std::int64_t axis);

}  // namespace cohort::collectives
