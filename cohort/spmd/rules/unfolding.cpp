// Windows of one dimension, as a dimension of their own: views where that dimension is whole, else
// copies, for which devices fetch what their windows reach into.

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include "cohort/base/error.h"
#include "cohort/spmd/rules/relayout.h"
#include "cohort/spmd/rules/views.h"

namespace cohort::spmd {
namespace {

/// The windows that begin in each part of a dimension.
Cuts cuts_of_windows(const Cuts& cuts, std::int64_t windows, std::int64_t step) {
  Cuts own{0};
  for (std::size_t part = 1; part < cuts.size(); ++part) {
    const std::int64_t end = std::min(windows, (cuts[part] + step - 1) / step);
    if (end > own.back() && end < windows) own.push_back(end);
  }
  own.push_back(windows);
  return own;
}

Tensor unfold_tiles(const Tensor& x, std::int64_t dim, std::int64_t size, std::int64_t step) {
  const Operation operation("aten::unfold");
  const BelowAutograd below;
  if (x.dim() == 0) return slice_of(unsqueeze_tiles(x, 0), 0, 0, size, 1);
  const int d = static_cast<int>(at::maybe_wrap_dim(dim, x.dim()));
  if (size < 0 || size > x.size(d)) {
    throw ValueError("unfold", cat("maximum size for tensor at dimension ", d, " is ", x.size(d),
                                   " but size is ", size));
  }
  if (step <= 0) throw ValueError("unfold", cat("step is ", step, " but must be > 0"));
  const Layout& old = layout_of(x);
  Dims sizes = dims_of(x.sizes()), strides = dims_of(x.strides());
  sizes[d] = (x.size(d) - size) / step + 1;
  strides.push_back(strides[d]);
  strides[d] *= step;
  std::vector<Cuts> cuts = old.cuts();
  cuts[d] = cuts_of_windows(old.cuts(d), sizes[d], step);
  cuts.push_back({0, size});
  const Cuts windows = cuts[d];
  sizes.push_back(size);
  Dims first(windows.size(), 0);  // the part in which each part's windows begin
  for (std::size_t i = 0; i + 1 < windows.size(); ++i) {
    while (old.cuts(d)[first[i] + 1] <= windows[i] * step) ++first[i];
  }
  auto derived = Derived::make(old, sizes, std::move(cuts), [&](const Dims& place) {
    Dims before(place.begin(), place.end() - 1);
    before[d] = first[place[d]];
    return before;
  });
  if (old.parts(d) == 1) {
    return derived.view_of(x, strides, x.storage_offset(),
                           [&](const Tensor& tile, int) { return tile.unfold(d, size, step); });
  }
  std::vector<int> devices;
  for (const int tile : derived.from) devices.push_back(old.device(tile));
  const auto layout = std::make_shared<Layout>(sizes, std::move(derived.cuts), std::move(devices));
  const auto copies = make_tiles(*impl(x)->mesh(), *layout, [&](int i) {
    Region region = layout->region(i);
    region.begin[d] *= step;
    region.end[d] = (region.end[d] - 1) * step + size;
    region.begin.pop_back();
    region.end.pop_back();
    return fetch(x, region).unfold(d, size, step);
  });
  Tensor result = wrap_view(impl(x)->mesh(), layout, copies, strides, x.storage_offset());
  stand_for_view(
      result, x, [=](const Tensor& base) { return unfold_tiles(base, dim, size, step); }, nullptr);
  return result;
}

Tensor unfold_backward_tiles(const Tensor& gradient, at::IntArrayRef sizes, std::int64_t dim,
                             std::int64_t, std::int64_t step) {
  const Operation operation("aten::unfold_backward");
  const BelowAutograd below;
  if (sizes.empty()) return gradient.squeeze(0);
  const int d = static_cast<int>(at::maybe_wrap_dim(dim, static_cast<std::int64_t>(sizes.size())));
  const Layout& old = layout_of(gradient);
  std::vector<Cuts> cuts = old.cuts();
  // Each part of the windows gives a piece, as long as they reach.
  const MeshPtr& mesh = impl(gradient)->mesh();
  std::vector<Piece> pieces(old.tiles());
  mesh->run(old.devices(), [&](int i) {
    Region region = old.region(i);
    const Tensor& tile = impl(gradient)->tiles()[i];
    const std::int64_t inner = region.begin.back();
    region.begin.pop_back();
    region.end.pop_back();
    if (tile.numel() > 0) {
      region.begin[d] = region.begin[d] * step + inner;
      region.end[d] = (region.end[d] - 1) * step + inner + tile.size(-1);
    }
    pieces[i] = {region, at::unfold_backward(tile, region.sizes(), d, tile.size(-1), step)};
  });
  cuts.pop_back();
  int tiles = 1;
  for (const Cuts& each : cuts) tiles *= static_cast<int>(each.size()) - 1;
  Dims before = old.sizes();
  before.pop_back();
  std::vector<int> devices(tiles);
  for (int i = 0; i < tiles; ++i) devices[i] = old.device(i * (old.tiles() / tiles));
  const Layout like(before, std::move(cuts), std::move(devices));
  return sum_of_pieces(mesh, layout_like(like, sizes), pieces);
}

}  // namespace

void register_unfolding(torch::Library& library) {
  library.impl("unfold", unfold_tiles);
  library.impl("unfold_backward", unfold_backward_tiles);
}

}  // namespace cohort::spmd
