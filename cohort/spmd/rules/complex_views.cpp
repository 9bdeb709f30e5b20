// Views of complex numbers as pairs of real ones, and the other way round; conjugates.

#include <ATen/ATen.h>

#include <numeric>

#include "cohort/base/error.h"
#include "cohort/spmd/rules/views.h"

namespace cohort::spmd {
namespace {

/// A view whose tiles are views of the tiles, cut in the same way but for the last dimension.
Tensor tile_by_tile(const Tensor& x, Dims sizes, std::vector<Cuts> cuts, const Dims& strides,
                    std::int64_t offset, FunctionRef<Tensor(const Tensor&)> view) {
  std::vector<int> tiles(layout_of(x).tiles());
  std::iota(tiles.begin(), tiles.end(), 0);
  Derived derived{std::move(cuts), std::move(sizes), std::move(tiles)};
  return derived.view_of(x, strides, offset, [&](const Tensor& tile, int) { return view(tile); });
}

Tensor view_as_real_tiles(const Tensor& x) {
  const Operation operation("aten::view_as_real");
  const BelowAutograd below;
  Dims sizes = dims_of(x.sizes()), strides = dims_of(x.strides());
  for (std::int64_t& stride : strides) stride *= 2;
  sizes.push_back(2);
  strides.push_back(1);
  std::vector<Cuts> cuts = layout_of(x).cuts();
  cuts.push_back({0, 2});
  bool is_copy = false;  // of a conjugate, which has other numbers than its memory
  Tensor result = tile_by_tile(x, std::move(sizes), std::move(cuts), strides,
                               2 * x.storage_offset(), [&](const Tensor& tile) {
                                 is_copy |= tile.is_conj();
                                 return at::view_as_real(tile.resolve_conj());
                               });
  if (is_copy) {
    stand_for_view(result, x, view_as_real_tiles, [](const Tensor& base, const Tensor& view) {
      write_to(base, at::view_as_complex(view));
    });
  }
  return result;
}

Tensor view_as_complex_tiles(const Tensor& x) {
  const Operation operation("aten::view_as_complex");
  const BelowAutograd below;
  if (x.dim() == 0 || x.size(-1) != 2 || x.stride(-1) != 1) {
    throw InvalidArgument("view_as_complex",
                          cat("the last dimension must have size 2 and stride 1, got sizes ",
                              x.sizes(), " and strides ", x.strides()));
  }
  Dims sizes = dims_of(x.sizes()), strides = dims_of(x.strides());
  for (std::int64_t& stride : strides) stride /= 2;
  sizes.pop_back();
  strides.pop_back();
  const bool is_split = layout_of(x).parts(layout_of(x).dim() - 1) > 1;
  // Numbers that are split in two have to be copied to one device.
  const Tensor pairs = is_split ? at::stack({x.select(-1, 0), x.select(-1, 1)}, -1) : x;
  std::vector<Cuts> cuts = layout_of(pairs).cuts();
  bool is_copy = is_split;
  const auto view = [&](const Tensor& tile) {
    const bool fits = tile.stride(-1) == 1;
    is_copy |= !fits;
    return at::view_as_complex(fits ? tile : tile.contiguous());
  };
  cuts.pop_back();
  Tensor result =
      tile_by_tile(pairs, std::move(sizes), std::move(cuts), strides, x.storage_offset() / 2, view);
  if (is_copy) {
    stand_for_view(result, x, view_as_complex_tiles, [](const Tensor& base, const Tensor& view) {
      write_to(base, at::view_as_real(view));
    });
  }
  return result;
}

Tensor conj_tiles(const Tensor& x) {
  const Operation operation("aten::_conj");
  const BelowAutograd below;
  return tile_by_tile(x, dims_of(x.sizes()), layout_of(x).cuts(), dims_of(x.strides()),
                      x.storage_offset(), [](const Tensor& tile) { return at::_conj(tile); });
}

}  // namespace

void register_complex_views(torch::Library& library) {
  library.impl("view_as_real", view_as_real_tiles);
  library.impl("view_as_complex", view_as_complex_tiles);
  library.impl("_conj", conj_tiles);
}

}  // namespace cohort::spmd
