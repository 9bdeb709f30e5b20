#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string_view>
#include <vector>

#include "cohort/collectives/reduce_op.h"
#include "cohort/collectives/tensor_reduction.h"
#include "cohort/collectives/world_lane.h"

/// Reductions of whole tensors over all replicas of a world. `values` has one tensor from each
/// local replica; every worker calls the same function, as the next collective of the lane, and
/// gets the same bits. In a world of one worker, `reduce_tensors` and `gather_tensors`.
namespace cohort {

/// Sparse tensors as dense ones, if any replica of the job has a dense one: as in `reduce_tensors`.
std::vector<at::Tensor> in_one_layout_of_world(WorldLane& lane, std::string_view call,
                                               std::span<const at::Tensor> values);

/// The sum or mean in tree order: see collectives::reduce_tensors. Throws InvalidArgument on all
/// workers where dtypes, shapes or layouts differ.
at::Tensor reduce_over_world(WorldLane& lane, std::string_view call, ReduceOp op,
                             std::span<const at::Tensor> values,
                             const collectives::Accumulation& accumulation = {});

/// The tensors of all replicas of the job, in their order; those of this worker are `values`. Their
/// shapes may differ, and so may the sizes of sparse ones.
std::vector<at::Tensor> all_of_world(WorldLane& lane, std::string_view call,
                                     std::span<const at::Tensor> values);

/// The chief's tensor, of whatever type and shape, on the device of `own`.
at::Tensor of_chief(WorldLane& lane, std::string_view call, const at::Tensor& own);

/// Every tensor takes the chief's values, in place. Dense tensors, alike on all workers.
void broadcast_over_world(WorldLane& lane, std::string_view call,
                          std::span<const at::Tensor> tensors);

/// "all_reduce(SUM) of float [3], float [2]": a call with all of its tensors, for comparison
/// between workers.
std::string call_with_tensors(std::string_view call, std::span<const at::Tensor> tensors);

}  // namespace cohort
