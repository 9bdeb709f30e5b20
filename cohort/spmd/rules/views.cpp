// Views in another order of dimensions, and of parts: tiles of a view are views of tiles, so that
// what is written to one is written to the tensor.

#include "cohort/spmd/rules/views.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <numeric>

#include "cohort/base/error.h"

namespace cohort::spmd {

Tensor permute_tiles(const Tensor& x, at::IntArrayRef order) {
  const Operation operation("aten::permute");
  const BelowAutograd below;
  const Layout& old = layout_of(x);
  Dims sizes, strides, wrapped;
  std::vector<Cuts> cuts;
  for (const std::int64_t each : order) {
    const std::int64_t d = at::maybe_wrap_dim(each, x.dim());
    wrapped.push_back(d);
    sizes.push_back(x.size(d));
    strides.push_back(x.stride(d));
    cuts.push_back(old.cuts(static_cast<int>(d)));
  }
  auto derived = Derived::make(old, sizes, std::move(cuts), [&](const Dims& place) {
    Dims before(place.size(), 0);
    for (std::size_t i = 0; i < place.size(); ++i) before[wrapped[i]] = place[i];
    return before;
  });
  return derived.view_of(x, strides, x.storage_offset(),
                         [&](const Tensor& tile, int) { return tile.permute(wrapped); });
}

Tensor slice_of(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end,
                std::int64_t step) {
  const Operation operation("aten::slice");
  const BelowAutograd below;
  if (step <= 0) throw ValueError("slice", cat("slice step must be positive, got ", step));
  const Layout& old = layout_of(x);
  const int d = static_cast<int>(at::maybe_wrap_dim(dim, x.dim()));
  const std::int64_t size = x.size(d);
  const auto inside = [&](std::int64_t i) {
    return std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size);
  };
  start = inside(start);
  end = std::max(start, inside(end));
  // What each part has of the slice: its first element there, and how many come before it.
  std::vector<int> kept;
  std::vector<std::int64_t> first;
  Cuts cuts{0};
  for (int part = 0; part < old.parts(d); ++part) {
    const std::int64_t from = std::max(start, old.cuts(d)[part]);
    const std::int64_t to = std::min(end, old.cuts(d)[part + 1]);
    const std::int64_t begin = start + (from - start + step - 1) / step * step;
    if (begin >= to) continue;
    kept.push_back(part);
    first.push_back(begin - old.cuts(d)[part]);
    cuts.push_back(cuts.back() + (to - begin + step - 1) / step);
  }
  if (kept.empty()) {
    kept = {0};
    first = {0};
    cuts = {0, 0};
  }
  Dims sizes = dims_of(x.sizes()), strides = dims_of(x.strides());
  sizes[d] = cuts.back();
  strides[d] *= step;
  std::vector<Cuts> all = old.cuts();
  all[d] = cuts;
  std::vector<int> part_of_tile;
  auto derived = Derived::make(old, sizes, std::move(all), [&](const Dims& place) {
    part_of_tile.push_back(static_cast<int>(place[d]));
    Dims before = place;
    before[d] = kept[place[d]];
    return before;
  });
  return derived.view_of(x, strides, x.storage_offset() + start * x.stride(d),
                         [&](const Tensor& tile, int i) {
                           const int part = part_of_tile[i];
                           const std::int64_t count = cuts[part + 1] - cuts[part];
                           if (count == 0) return tile.narrow(d, 0, 0);
                           const std::int64_t begin = first[part];
                           return tile.slice(d, begin, begin + (count - 1) * step + 1, step);
                         });
}

Tensor without_dims(const Tensor& x, const std::vector<bool>& gone) {
  const Layout& old = layout_of(x);
  Dims sizes, strides;
  std::vector<Cuts> cuts;
  std::vector<int> kept;
  for (int d = 0; d < old.dim(); ++d) {
    if (gone[d]) continue;
    kept.push_back(d);
    sizes.push_back(x.size(d));
    strides.push_back(x.stride(d));
    cuts.push_back(old.cuts(d));
  }
  auto derived = Derived::make(old, sizes, std::move(cuts), [&](const Dims& place) {
    Dims before(old.dim(), 0);
    for (std::size_t i = 0; i < kept.size(); ++i) before[kept[i]] = place[i];
    return before;
  });
  return derived.view_of(x, strides, x.storage_offset(), [&](Tensor tile, int) {
    for (int d = old.dim() - 1; d >= 0; --d) {
      if (gone[d]) tile = tile.select(d, 0);
    }
    return tile;
  });
}

Tensor unsqueeze_tiles(const Tensor& x, std::int64_t dim) {
  const Operation operation("aten::unsqueeze");
  const BelowAutograd below;
  const std::int64_t d = at::maybe_wrap_dim(dim, x.dim() + 1);
  const Layout& old = layout_of(x);
  Dims sizes = dims_of(x.sizes()), strides = dims_of(x.strides());
  std::vector<Cuts> cuts = old.cuts();
  const std::int64_t stride = d == x.dim() ? 1 : sizes[d] * strides[d];
  sizes.insert(sizes.begin() + d, 1);
  strides.insert(strides.begin() + d, stride);
  cuts.insert(cuts.begin() + d, {0, 1});
  auto derived = Derived::make(old, sizes, std::move(cuts), [&](Dims place) {
    place.erase(place.begin() + d);
    return place;
  });
  return derived.view_of(x, strides, x.storage_offset(),
                         [&](const Tensor& tile, int) { return tile.unsqueeze(d); });
}

Tensor expand_tiles(const Tensor& x, at::IntArrayRef size, bool) {
  const Operation operation("aten::expand");
  const BelowAutograd below;
  const Layout& old = layout_of(x);
  const int before = static_cast<int>(size.size()) - old.dim();
  Dims sizes, strides;
  std::vector<Cuts> cuts;
  for (int d = 0; d < static_cast<int>(size.size()); ++d) {
    const bool is_old = d >= before;
    const std::int64_t own = is_old ? x.size(d - before) : 1;
    const std::int64_t wanted = size[d] < 0 ? own : size[d];
    if (own != 1 && own != wanted) {
      throw InvalidArgument("expand",
                            cat("a dimension of size ", own, " can't become one of size ", wanted));
    }
    const bool grows = !is_old || own != wanted;
    sizes.push_back(wanted);
    strides.push_back(grows ? 0 : x.stride(d - before));
    cuts.push_back(grows ? Cuts{0, wanted} : old.cuts(d - before));
  }
  auto derived = Derived::make(old, sizes, cuts, [&](const Dims& place) {
    return Dims(place.begin() + before, place.end());
  });
  const Layout shape(sizes, cuts, derived.from);  // for the sizes of tiles
  return derived.view_of(x, strides, x.storage_offset(), [&](const Tensor& tile, int i) {
    return tile.expand(shape.region(i).sizes());
  });
}

namespace {

Tensor transpose_tiles(const Tensor& x, std::int64_t a, std::int64_t b) {
  Dims order(x.dim(), 0);
  std::iota(order.begin(), order.end(), 0);
  if (x.dim() > 0) {
    std::swap(order[at::maybe_wrap_dim(a, x.dim())], order[at::maybe_wrap_dim(b, x.dim())]);
  }
  return permute_tiles(x, order);
}

Tensor t_tiles(const Tensor& x) {
  return x.dim() < 2 ? permute_tiles(x, {0}) : transpose_tiles(x, 0, 1);
}

void slice(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  BoxedCall call(op, stack);
  const auto arguments = call.take();
  const auto number = [&](int i, std::int64_t otherwise) {
    return arguments[i].isNone() ? otherwise : arguments[i].toInt();
  };
  stack->emplace_back(slice_of(arguments[0].toTensor(), number(1, 0), number(2, 0),
                               number(3, std::numeric_limits<std::int64_t>::max()), number(4, 1)));
}

Tensor select_tiles(const Tensor& x, std::int64_t dim, std::int64_t index) {
  const Operation operation("aten::select");
  const BelowAutograd below;
  const std::int64_t d = at::maybe_wrap_dim(dim, x.dim());
  if (index < -x.size(d) || index >= x.size(d)) {
    throw ValueError("select", cat("index ", index, " out of range for tensor of size ", x.sizes(),
                                   " at dimension ", d));
  }
  if (index < 0) index += x.size(d);
  std::vector<bool> gone(x.dim(), false);
  gone[d] = true;
  return without_dims(slice_of(x, d, index, index + 1, 1), gone);
}

Tensor squeeze_dims_tiles(const Tensor& x, at::IntArrayRef dims) {
  const Operation operation("aten::squeeze");
  const BelowAutograd below;
  std::vector<bool> gone(x.dim(), false);
  for (const std::int64_t each : dims) {
    const std::int64_t d = at::maybe_wrap_dim(each, x.dim());
    if (x.dim() > 0 && x.size(d) == 1) gone[d] = true;
  }
  return without_dims(x, gone);
}
Tensor squeeze_dim_tiles(const Tensor& x, std::int64_t dim) { return squeeze_dims_tiles(x, dim); }
Tensor squeeze_tiles(const Tensor& x) {
  Dims all(x.dim(), 0);
  std::iota(all.begin(), all.end(), 0);
  return squeeze_dims_tiles(x, all);
}

Tensor detach_tiles(const Tensor& x) {
  const ShardedTensorImpl& old = *impl(x);
  Tensor result = wrap_view(old.mesh(), old.layout(), old.tiles(), x.strides(), x.storage_offset());
  impl(result)->set_copied_view(old.copied_view());
  return result;
}

std::vector<Tensor> unbind_tiles(const Tensor& x, std::int64_t dim) {
  const Operation operation("aten::unbind");
  const std::int64_t d = at::maybe_wrap_dim(dim, x.dim());
  std::vector<Tensor> rows;
  for (std::int64_t i = 0; i < x.size(d); ++i) rows.push_back(select_tiles(x, d, i));
  return rows;
}

std::vector<Tensor> split_with_sizes_tiles(const Tensor& x, at::IntArrayRef sizes,
                                           std::int64_t dim) {
  const Operation operation("aten::split_with_sizes");
  std::vector<Tensor> parts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back(slice_of(x, dim, begin, begin + size, 1));
    begin += size;
  }
  if (begin != x.size(dim)) {
    throw ValueError("split_with_sizes", cat("the sizes ", sizes, " must add up to ", x.size(dim)));
  }
  return parts;
}

std::vector<Tensor> split_tiles(const Tensor& x, std::int64_t size, std::int64_t dim) {
  const std::int64_t d = at::maybe_wrap_dim(dim, x.dim());
  std::vector<std::int64_t> sizes;
  for (std::int64_t rest = x.size(d); rest > 0 || sizes.empty(); rest -= size) {
    sizes.push_back(std::min(size, rest));
    if (size == 0) break;
  }
  return split_with_sizes_tiles(x, sizes, d);
}

// The tensor itself becomes a view of what it was.

Tensor& become(Tensor& x, const Tensor& view) {
  x.unsafeGetTensorImpl()->shallow_copy_from(view.getIntrusivePtr());
  return x;
}
Tensor& unsqueeze_in_place(Tensor& x, std::int64_t dim) {
  return become(x, unsqueeze_tiles(x, dim));
}
Tensor& squeeze_in_place(Tensor& x) { return become(x, squeeze_tiles(x)); }
Tensor& squeeze_dim_in_place(Tensor& x, std::int64_t dim) {
  return become(x, squeeze_dim_tiles(x, dim));
}
Tensor& transpose_in_place(Tensor& x, std::int64_t a, std::int64_t b) {
  return become(x, transpose_tiles(x, a, b));
}
Tensor& t_in_place(Tensor& x) { return become(x, t_tiles(x)); }

}  // namespace

void register_views(torch::Library& library) {
  library.impl("permute", permute_tiles);
  library.impl("transpose.int", transpose_tiles);
  library.impl("t", t_tiles);
  library.impl("slice.Tensor", boxed<&slice>());
  library.impl("select.int", select_tiles);
  library.impl("squeeze", squeeze_tiles);
  library.impl("squeeze.dim", squeeze_dim_tiles);
  library.impl("squeeze.dims", squeeze_dims_tiles);
  library.impl("unsqueeze", unsqueeze_tiles);
  library.impl("expand", expand_tiles);
  library.impl("detach", detach_tiles);
  library.impl("alias", detach_tiles);
  library.impl("unbind.int", unbind_tiles);
  library.impl("split.Tensor", split_tiles);
  library.impl("split_with_sizes", split_with_sizes_tiles);
  library.impl("unsqueeze_", unsqueeze_in_place);
  library.impl("squeeze_", squeeze_in_place);
  library.impl("squeeze_.dim", squeeze_dim_in_place);
  library.impl("transpose_", transpose_in_place);
  library.impl("t_", t_in_place);
}

}  // namespace cohort::spmd
