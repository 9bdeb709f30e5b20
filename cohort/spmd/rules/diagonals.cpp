// Diagonals: views, whose tiles are parts of the diagonals of tiles, and tensors that have nothing
// but one.

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/spmd/rules/relayout.h"
#include "cohort/spmd/rules/views.h"

namespace cohort::spmd {
namespace {

void check_different(std::int64_t first, std::int64_t second) {
  if (first != second) return;
  throw ValueError("diagonal",
                   cat("diagonal dimensions cannot be identical ", first, ", ", second));
}

/// Which diagonal: element i of it has index i + row in one dimension and i + column in another.
struct Diagonal {
  std::int64_t first, second;  // the dimensions
  std::int64_t row, column, length;

  Diagonal(at::IntArrayRef sizes, std::int64_t offset, std::int64_t dim1, std::int64_t dim2)
      : first(at::maybe_wrap_dim(dim1, static_cast<std::int64_t>(sizes.size()))),
        second(at::maybe_wrap_dim(dim2, static_cast<std::int64_t>(sizes.size()))),
        row(std::max<std::int64_t>(-offset, 0)),
        column(std::max<std::int64_t>(offset, 0)),
        length(std::max<std::int64_t>(0, std::min(sizes[first] - row, sizes[second] - column))) {
    check_different(first, second);
  }

  /// A part of the diagonal of a box that begins at index `rows` and `columns`.
  Tensor of(const Tensor& box, std::int64_t begin, std::int64_t count, std::int64_t rows,
            std::int64_t columns) const {
    if (count == 0) return box.narrow(first, 0, 0).diagonal(0, first, second);
    return box.narrow(first, begin + row - rows, count)
        .narrow(second, begin + column - columns, count)
        .diagonal(0, first, second);
  }
};

/// The part that an index is in.
int part_at(const Cuts& cuts, std::int64_t index) {
  const auto next = std::upper_bound(cuts.begin(), cuts.end() - 1, index);
  return std::max(0, static_cast<int>(next - cuts.begin()) - 1);
}

}  // namespace

Tensor diagonal_tiles(const Tensor& x, std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
  const Operation operation("aten::diagonal");
  const BelowAutograd below;
  const Diagonal diagonal(x.sizes(), offset, dim1, dim2);
  const Layout& old = layout_of(x);
  const Cuts& rows = old.cuts(static_cast<int>(diagonal.first));
  const Cuts& columns = old.cuts(static_cast<int>(diagonal.second));
  Dims sizes, strides, kept;
  std::vector<Cuts> cuts;
  for (std::int64_t d = 0; d < x.dim(); ++d) {
    if (d == diagonal.first || d == diagonal.second) continue;
    kept.push_back(d);
    sizes.push_back(x.size(d));
    strides.push_back(x.stride(d));
    cuts.push_back(old.cuts(static_cast<int>(d)));
  }
  Cuts own{0, diagonal.length};
  for (const std::int64_t cut : rows) own.push_back(cut - diagonal.row);
  for (const std::int64_t cut : columns) own.push_back(cut - diagonal.column);
  std::erase_if(own, [&](std::int64_t cut) { return cut < 0 || cut > diagonal.length; });
  std::sort(own.begin(), own.end());
  own.erase(std::unique(own.begin(), own.end()), own.end());
  if (own.size() == 1) own = {0, 0};
  sizes.push_back(diagonal.length);
  strides.push_back(x.stride(diagonal.first) + x.stride(diagonal.second));
  cuts.push_back(own);

  std::vector<int> part_of_tile;
  const auto row_part = [&](int part) { return part_at(rows, own[part] + diagonal.row); };
  const auto column_part = [&](int part) { return part_at(columns, own[part] + diagonal.column); };
  auto derived = Derived::make(old, sizes, std::move(cuts), [&](const Dims& place) {
    const int part = static_cast<int>(place.back());
    part_of_tile.push_back(part);
    Dims before(x.dim(), 0);
    for (std::size_t i = 0; i < kept.size(); ++i) before[kept[i]] = place[i];
    before[diagonal.first] = row_part(part);
    before[diagonal.second] = column_part(part);
    return before;
  });
  const std::int64_t begin = x.storage_offset() + diagonal.row * x.stride(diagonal.first) +
                             diagonal.column * x.stride(diagonal.second);
  return derived.view_of(x, strides, begin, [&](const Tensor& tile, int i) {
    const int part = part_of_tile[i];
    return diagonal.of(tile, own[part], own[part + 1] - own[part], rows[row_part(part)],
                       columns[column_part(part)]);
  });
}

namespace {

/// Zeros but for a diagonal, whose values have its dimension as the last one. Cut where they are.
Tensor on_diagonal(const char* name, const Tensor& values, at::IntArrayRef sizes,
                   std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
  const Operation operation(name);
  const BelowAutograd below;
  const Diagonal diagonal(sizes, offset, dim1, dim2);
  const ShardedTensorImpl& own = *impl(values);
  const Layout& old = *own.layout();
  std::vector<Cuts> cuts;
  for (int d = 0, next = 0; d < static_cast<int>(sizes.size()); ++d) {
    if (d == diagonal.second) {
      cuts.push_back({0, sizes[d]});
    } else {
      cuts.push_back(old.cuts(d == diagonal.first ? old.dim() - 1 : next++));
    }
  }
  Cuts& rows = cuts[diagonal.first];
  for (std::int64_t& cut : rows) cut += diagonal.row;
  rows.front() = 0;
  rows.back() = sizes[diagonal.first];
  const auto tile_of = [&](const Dims& place) {
    Dims before;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const auto dim = static_cast<std::int64_t>(d);
      if (dim != diagonal.first && dim != diagonal.second) before.push_back(place[d]);
    }
    before.push_back(place[diagonal.first]);
    return before;
  };
  const Derived derived = Derived::make(old, dims_of(sizes), cuts, tile_of);
  std::vector<int> devices;
  for (const int tile : derived.from) devices.push_back(old.device(tile));
  const auto layout = std::make_shared<Layout>(sizes, std::move(cuts), std::move(devices));
  return wrap(own.mesh(), layout, make_tiles(*own.mesh(), *layout, [&](int i) {
                const Region region = layout->region(i);
                const Tensor& tile = own.tiles()[derived.from[i]];
                const Tensor result = at::zeros(region.sizes(), tile.options());
                diagonal
                    .of(result, old.region(derived.from[i]).begin.back(), tile.size(-1),
                        region.begin[diagonal.first], region.begin[diagonal.second])
                    .copy_(tile);
                return result;
              }));
}

Tensor diagonal_backward_tiles(const Tensor& gradient, at::IntArrayRef sizes, std::int64_t offset,
                               std::int64_t dim1, std::int64_t dim2) {
  return on_diagonal("aten::diagonal_backward", gradient, sizes, offset, dim1, dim2);
}

Tensor diag_embed_tiles(const Tensor& x, std::int64_t offset, std::int64_t dim1,
                        std::int64_t dim2) {
  const std::int64_t first = at::maybe_wrap_dim(dim1, x.dim() + 1);
  const std::int64_t second = at::maybe_wrap_dim(dim2, x.dim() + 1);
  check_different(first, second);
  Dims sizes = dims_of(x.sizes());
  const std::int64_t size = sizes.back() + std::abs(offset);
  sizes.pop_back();
  sizes.insert(sizes.begin() + std::min(first, second), size);
  sizes.insert(sizes.begin() + std::max(first, second), size);
  return on_diagonal("aten::diag_embed", x, sizes, offset, first, second);
}

Tensor diag_tiles(const Tensor& x, std::int64_t offset) {
  const Operation operation("aten::diag");
  const BelowAutograd below;
  if (x.dim() != 1 && x.dim() != 2) {
    throw InvalidArgument("diag", cat("a vector or a matrix is expected, got sizes ", x.sizes()));
  }
  return x.dim() == 1 ? diag_embed_tiles(x, offset, 0, 1)
                      : at::clone(diagonal_tiles(x, offset, 0, 1), at::MemoryFormat::Contiguous);
}

Tensor trace_tiles(const Tensor& x) {
  const Operation operation("aten::trace");
  const BelowAutograd below;
  if (x.dim() != 2) {
    throw InvalidArgument("trace", cat("expected a matrix, but got tensor with dim ", x.dim()));
  }
  return at::sum(diagonal_tiles(x, 0, 0, 1));
}

}  // namespace

void register_diagonals(torch::Library& library) {
  library.impl("diagonal", diagonal_tiles);
  library.impl("diagonal_backward", diagonal_backward_tiles);
  library.impl("diag_embed", diag_embed_tiles);
  library.impl("trace", trace_tiles);
  // LibTorch 2 takes it apart itself.
  const auto diag = c10::Dispatcher::singleton().findSchema({"aten::diag", ""});
  if (diag && !diag->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    library.impl("diag", diag_tiles);
  }
}

}  // namespace cohort::spmd
