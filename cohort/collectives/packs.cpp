#include "cohort/collectives/packs.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace cohort::collectives {
namespace {

at::Tensor join(std::span<const TensorPerReplica> values, std::size_t replica) {
  std::vector<at::Tensor> flat;
  flat.reserve(values.size());
  for (const TensorPerReplica& value : values) flat.push_back(value[replica].reshape(-1));
  return at::cat(flat);
}

}  // namespace

std::vector<std::vector<std::size_t>> packs_by_size(std::span<const std::int64_t> bytes,
                                                    std::int64_t bytes_per_pack) {
  std::vector<std::vector<std::size_t>> packs;
  std::int64_t held = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (packs.empty() || (bytes_per_pack > 0 && held > bytes_per_pack)) {
      packs.emplace_back();
      held = 0;
    }
    packs.back().push_back(i);
    held += bytes[i];
  }
  return packs;
}

std::vector<std::int64_t> pack_boundaries(std::int64_t elements, int packs) {
  const std::int64_t count = std::clamp<std::int64_t>(elements, 1, packs);
  std::vector<std::int64_t> boundaries;
  for (std::int64_t i = 0; i < count; ++i) boundaries.push_back(i * (elements / count));
  boundaries.push_back(elements);
  return boundaries;
}

std::vector<TensorPerReplica> reduce_joined(
    std::span<const TensorPerReplica> values, int packs,
    const std::function<TensorPerReplica(std::span<const at::Tensor>, std::size_t)>& reduce) {
  const std::size_t replicas = values[0].size();
  TensorPerReplica joined;
  for (std::size_t r = 0; r < replicas; ++r) joined.push_back(join(values, r));

  const auto boundaries = pack_boundaries(joined[0].numel(), packs);
  std::vector<std::vector<at::Tensor>> pieces;  // of each destination
  for (std::size_t p = 0; p + 1 < boundaries.size(); ++p) {
    TensorPerReplica piece;
    for (const at::Tensor& all : joined) {
      piece.push_back(all.slice(0, boundaries[p], boundaries[p + 1]));
    }
    const TensorPerReplica reduced = reduce(piece, p);
    pieces.resize(reduced.size());
    for (std::size_t d = 0; d < reduced.size(); ++d) pieces[d].push_back(reduced[d]);
  }

  std::vector<TensorPerReplica> results(values.size());
  for (const auto& of_destination : pieces) {
    const at::Tensor all = at::cat(of_destination);
    std::int64_t begin = 0;
    for (std::size_t v = 0; v < values.size(); ++v) {
      const at::Tensor& like = values[v][0];
      results[v].push_back(all.narrow(0, begin, like.numel()).view(like.sizes()));
      begin += like.numel();
    }
  }
  return results;
}

}  // namespace cohort::collectives
