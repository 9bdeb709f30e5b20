#pragma once

#include <utility>
#include <vector>

#include "cohort/spmd/dispatch.h"

/// What rules for views are made of.
namespace cohort::spmd {

/// A layout made of another one: tile i of it is part of tile `from[i]`.
struct Derived {
  std::vector<Cuts> cuts;
  Dims sizes;
  std::vector<int> from;

  /// `tile_place(place)` is the place in the old layout of a place in the new one.
  template <class F>
  static Derived make(const Layout& old, Dims sizes, std::vector<Cuts> cuts, F&& tile_place) {
    Derived derived{std::move(cuts), std::move(sizes), {}};
    int tiles = 1;
    for (const Cuts& each : derived.cuts) tiles *= static_cast<int>(each.size()) - 1;
    for (int tile = 0; tile < tiles; ++tile) {
      Dims place(derived.cuts.size(), 0);
      for (int rest = tile, d = static_cast<int>(place.size()) - 1; d >= 0; --d) {
        const int parts = static_cast<int>(derived.cuts[d].size()) - 1;
        place[d] = rest % parts;
        rest /= parts;
      }
      derived.from.push_back(old.tile_at(tile_place(place)));
    }
    return derived;
  }

  /// The view itself; view(tile, i) is tile i of it.
  template <class F>
  Tensor view_of(const Tensor& x, at::IntArrayRef strides, std::int64_t offset, F&& view) {
    const ShardedTensorImpl& old = *impl(x);
    std::vector<Tensor> tiles;
    std::vector<int> devices;
    for (std::size_t i = 0; i < from.size(); ++i) {
      tiles.push_back(view(old.tiles()[from[i]], static_cast<int>(i)));
      devices.push_back(old.layout()->device(from[i]));
    }
    auto layout = std::make_shared<Layout>(sizes, std::move(cuts), std::move(devices));
    Tensor result = wrap_view(old.mesh(), std::move(layout), std::move(tiles), strides, offset);
    impl(result)->set_copied_view(old.copied_view());
    return result;
  }
};

// The views themselves.

Tensor permute_tiles(const Tensor& x, at::IntArrayRef order);
Tensor unsqueeze_tiles(const Tensor& x, std::int64_t dim);
Tensor expand_tiles(const Tensor& x, at::IntArrayRef size, bool is_implicit);

/// Elements start, start + step, … before end of one dimension. Negative places count from its end,
/// those beyond it are cut off.
Tensor slice_of(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end,
                std::int64_t step);

/// A diagonal of two dimensions, as the last one.
Tensor diagonal_tiles(const Tensor& x, std::int64_t offset, std::int64_t dim1, std::int64_t dim2);

/// Without the dimensions at which `gone` is true, each of one part.
Tensor without_dims(const Tensor& x, const std::vector<bool>& gone);

}  // namespace cohort::spmd
