#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

/// Packs: many small tensors sent as few large ones.
namespace cohort::collectives {

/// Deals tensors of these sizes to packs, in order; each pack is a list of indices. A pack is full
/// when it holds more than `bytes_per_pack`, so all but the last hold at least that; 0 means one
/// pack. Sizes 128, 32, 800, 4 with a limit of 200 give {0, 1, 2}, {3}.
std::vector<std::vector<std::size_t>> packs_by_size(std::span<const std::int64_t> bytes,
                                                    std::int64_t bytes_per_pack);

/// Where `elements` are cut into `packs` pieces of the same length, of which the last takes the
/// rest: the begin of each piece, and the end. Fewer pieces if there are fewer elements.
std::vector<std::int64_t> pack_boundaries(std::int64_t elements, int packs);

/// One tensor from each replica, and the results on each destination.
using TensorPerReplica = std::vector<at::Tensor>;

/// Reduces many values as one: joins the tensors of each replica, flattened, end to end, calls
/// `reduce` once for each of `packs` pieces of that (with the number of the piece), and cuts the
/// results up again. All tensors must have one dtype, and each value the same shape on all
/// replicas.
std::vector<TensorPerReplica> reduce_joined(
    std::span<const TensorPerReplica> values, int packs,
    const std::function<TensorPerReplica(std::span<const at::Tensor>, std::size_t)>& reduce);

}  // namespace cohort::collectives
