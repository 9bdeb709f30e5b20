// Views: tiles of a view are views of tiles, so that what is written to one is written to the
// tensor. Where the cuts do not fit a new shape, the tensor is cut elsewhere first, and the result
// is a copy that can't be written to.

#include <ATen/ATen.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <numeric>

#include "cohort/spmd/partition.h"

namespace cohort::spmd {
namespace {

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
    if (old.is_frozen()) impl(result)->freeze();
    return result;
  }
};

// The same elements in another order of dimensions.

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

// Parts.

Tensor slice_of(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end,
                std::int64_t step) {
  const Operation operation("aten::slice");
  const BelowAutograd below;
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
                           const std::int64_t begin = first[part];
                           return tile.slice(d, begin, begin + (count - 1) * step + 1, step);
                         });
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

/// Without the dimensions at which `gone` is true, each of one part.
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

Tensor select_tiles(const Tensor& x, std::int64_t dim, std::int64_t index) {
  const Operation operation("aten::select");
  const BelowAutograd below;
  const std::int64_t d = at::maybe_wrap_dim(dim, x.dim());
  TORCH_CHECK_INDEX(index >= -x.size(d) && index < x.size(d), "select(): index ", index,
                    " out of range for tensor of size ", x.sizes(), " at dimension ", d);
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
    TORCH_CHECK(own == 1 || own == wanted, "expand: a dimension of size ", own,
                " can't become one of size ", wanted);
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

Tensor detach_tiles(const Tensor& x) {
  const ShardedTensorImpl& old = *impl(x);
  Tensor result = wrap_view(old.mesh(), old.layout(), old.tiles(), x.strides(), x.storage_offset());
  if (old.is_frozen()) impl(result)->freeze();
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
  TORCH_CHECK(begin == x.size(dim), "split_with_sizes: the sizes ", sizes, " must add up to ",
              x.size(dim));
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

// Other shapes.

/// Dimensions of two shapes that hold the same elements: [before_begin, before_end) become
/// [after_begin, after_end).
struct Group {
  int before_begin, before_end, after_begin, after_end;
};

/// The smallest such groups, in order; none if there are no elements.
std::vector<Group> groups_of(at::IntArrayRef before, at::IntArrayRef after) {
  std::vector<Group> groups;
  int b = 0, a = 0;
  const int bn = static_cast<int>(before.size()), an = static_cast<int>(after.size());
  while (b < bn || a < an) {
    Group group{b, b, a, a};
    std::int64_t nb = 1, na = 1;
    do {
      if ((nb <= na && b < bn) || a == an) {
        nb *= before[b++];
      } else {
        na *= after[a++];
      }
    } while (nb != na || (nb == 1 && group.before_begin == b && group.after_begin == a));
    group.before_end = b;
    group.after_end = a;
    groups.push_back(group);
  }
  return groups;
}

std::int64_t product(at::IntArrayRef sizes, int begin, int end) {
  std::int64_t result = 1;
  for (int d = begin; d < end; ++d) result *= sizes[d];
  return result;
}

/// The first dimension of a range that is not 1; its end if there is none.
int first_real(at::IntArrayRef sizes, int begin, int end) {
  while (begin < end && sizes[begin] == 1) ++begin;
  return begin;
}

/// The new cuts if each tile can be seen as a tile of the new shape; nothing if not.
std::optional<std::vector<Cuts>> cuts_in_shape(const Layout& old, at::IntArrayRef after) {
  std::vector<Cuts> cuts;
  for (const std::int64_t size : after) cuts.push_back({0, size});
  const at::IntArrayRef before = old.sizes();
  for (const Group& group : groups_of(before, after)) {
    const int outer = first_real(before, group.before_begin, group.before_end);
    for (int d = group.before_begin; d < group.before_end; ++d) {
      if (d != outer && old.parts(d) > 1) return std::nullopt;
    }
    if (outer == group.before_end || old.parts(outer) == 1) continue;
    const int new_outer = first_real(after, group.after_begin, group.after_end);
    if (new_outer == group.after_end) return std::nullopt;
    const std::int64_t inner_before = product(before, outer + 1, group.before_end);
    const std::int64_t inner_after = product(after, new_outer + 1, group.after_end);
    Cuts& own = cuts[new_outer];
    own.clear();
    for (const std::int64_t cut : old.cuts(outer)) {
      if (cut * inner_before % inner_after != 0) return std::nullopt;
      own.push_back(cut * inner_before / inner_after);
    }
  }
  return cuts;
}

/// Cuts another dimension instead, so that the new shape fits; null if there is none.
LayoutPtr layout_that_fits(const Tensor& x, at::IntArrayRef after) {
  const int devices = impl(x)->mesh()->size();
  LayoutPtr best;
  std::int64_t best_size = 1;
  for (const Group& group : groups_of(x.sizes(), after)) {
    const int outer = first_real(x.sizes(), group.before_begin, group.before_end);
    const int new_outer = first_real(after, group.after_begin, group.after_end);
    if (outer == group.before_end || new_outer == group.after_end) continue;
    const std::int64_t inner_before = product(x.sizes(), outer + 1, group.before_end);
    const std::int64_t inner_after = product(after, new_outer + 1, group.after_end);
    // Cut only where both shapes have a cut: every `unit` elements of the outer dimension.
    const std::int64_t unit = inner_after / std::gcd(inner_before, inner_after);
    const std::int64_t units = x.size(outer) / unit;
    if (units * unit != x.size(outer) || units <= best_size) continue;
    best_size = units;
    std::vector<Cuts> cuts;
    for (const std::int64_t size : x.sizes()) cuts.push_back({0, size});
    cuts[outer] = even_cuts(units, devices);
    for (std::int64_t& cut : cuts[outer]) cut *= unit;
    std::vector<int> owners(cuts[outer].size() - 1);
    std::iota(owners.begin(), owners.end(), 0);
    best = std::make_shared<Layout>(x.sizes(), std::move(cuts), std::move(owners));
  }
  return best;
}

Tensor in_shape(const char* name, const Tensor& x, at::IntArrayRef wanted, bool is_view) {
  Operation operation(name);
  const BelowAutograd below;
  const auto sizes = at::infer_size(wanted, x.numel());
  const auto strides = at::detail::computeStride(x.sizes(), x.strides(), sizes);
  const Layout& old = layout_of(x);
  auto cuts = x.numel() == 0 ? std::nullopt : cuts_in_shape(old, sizes);
  if (cuts && strides) {
    std::vector<int> tiles(old.tiles());
    std::iota(tiles.begin(), tiles.end(), 0);
    const Layout shape(sizes, *cuts, tiles);
    bool all_views = true;
    const auto view = [&](const Tensor& tile, int i) {
      const Dims own = shape.region(i).sizes();
      const bool fits = at::detail::computeStride(tile.sizes(), tile.strides(), own).has_value();
      all_views &= fits;
      return fits ? tile.view(own) : tile.reshape(own);
    };
    Derived derived{std::move(*cuts), Dims(sizes.begin(), sizes.end()), std::move(tiles)};
    Tensor result = derived.view_of(x, *strides, x.storage_offset(), view);
    if (is_view && !all_views) impl(result)->freeze();
    return result;
  }
  TORCH_CHECK(strides, name, ": the tensor can't be seen in the shape ", wanted,
              " without a copy: use reshape()");
  const LayoutPtr other = x.numel() == 0 ? nullptr : layout_that_fits(x, sizes);
  if (!other && old.tiles() > 1) {
    operation.gathers("its cuts don't fit the new shape", describe({&x, 1}));
  }
  const LayoutPtr fitting =
      other ? other : std::make_shared<Layout>(Layout::whole(x.sizes(), old.device(0)));
  const Tensor moved = reshard(x, impl(x)->mesh(), fitting);
  std::vector<Cuts> new_cuts;
  if (x.numel() > 0) {
    new_cuts = *cuts_in_shape(*fitting, sizes);
  } else {
    for (const std::int64_t size : sizes) new_cuts.push_back({0, size});
  }
  const auto layout = std::make_shared<Layout>(sizes, std::move(new_cuts), fitting->devices());
  std::vector<Tensor> tiles;
  for (int i = 0; i < layout->tiles(); ++i) {
    tiles.push_back(impl(moved)->tiles()[i].reshape(layout->region(i).sizes()));
  }
  Tensor result = wrap_view(impl(x)->mesh(), layout, std::move(tiles), *strides,
                            is_view ? x.storage_offset() : 0);
  if (is_view) impl(result)->freeze();
  return result;
}

Tensor view_tiles(const Tensor& x, at::IntArrayRef size) {
  return in_shape("aten::view", x, size, true);
}
Tensor unsafe_view_tiles(const Tensor& x, at::IntArrayRef size) {
  return in_shape("aten::_unsafe_view", x, size, false);
}
Tensor reshape_alias_tiles(const Tensor& x, at::IntArrayRef size, at::IntArrayRef) {
  return in_shape("aten::_reshape_alias", x, size, true);
}

/// How autograd spells a view that was changed in place: taken apart into slices, an order and new
/// dimensions where possible.
Tensor as_strided_tiles(const Tensor& x, at::IntArrayRef size, at::IntArrayRef stride,
                        c10::optional<std::int64_t> offset) {
  Operation operation("aten::as_strided");
  const BelowAutograd below;
  std::int64_t rest = offset.value_or(x.storage_offset()) - x.storage_offset();
  std::vector<int> by_stride(x.dim());
  std::iota(by_stride.begin(), by_stride.end(), 0);
  std::stable_sort(by_stride.begin(), by_stride.end(),
                   [&](int a, int b) { return x.stride(a) > x.stride(b); });
  std::vector<std::int64_t> start(x.dim(), 0);
  for (const int d : by_stride) {
    if (x.stride(d) == 0 || x.size(d) == 1) continue;
    start[d] = std::min(rest / x.stride(d), x.size(d) - 1);
    rest -= start[d] * x.stride(d);
  }
  bool fits = rest == 0;
  std::vector<int> dim_of(size.size(),
                          -1);  // the dimension that each dimension of the view goes along
  std::vector<bool> used(x.dim(), false);
  Tensor part = x;
  for (std::size_t j = 0; j < size.size() && fits; ++j) {
    if (size[j] == 1 || stride[j] == 0) continue;
    for (const int d : by_stride) {
      if (used[d] || x.stride(d) == 0 || stride[j] % x.stride(d) != 0) continue;
      const std::int64_t step = stride[j] / x.stride(d);
      if (start[d] + (size[j] - 1) * step >= x.size(d)) continue;
      dim_of[j] = d;
      used[d] = true;
      part = slice_of(part, d, start[d], start[d] + (size[j] - 1) * step + 1, step);
      break;
    }
    fits &= dim_of[j] >= 0;
  }
  if (!fits) {
    operation.gathers("it is no slice of the tensor", describe({&x, 1}));
    const Tensor copy = gather(x).contiguous().as_strided(size, stride, offset.value_or(0));
    Tensor result =
        wrap_view(impl(x)->mesh(), std::make_shared<Layout>(Layout::whole(copy.sizes(), 0)), {copy},
                  stride, offset.value_or(x.storage_offset()));
    impl(result)->freeze();
    return result;
  }
  // What the view does not go along is one element.
  std::vector<bool> gone(x.dim(), false);
  for (int d = 0; d < x.dim(); ++d) {
    if (used[d]) continue;
    gone[d] = true;
    part = slice_of(part, d, start[d], start[d] + 1, 1);
  }
  part = without_dims(part, gone);
  Dims order, grown;
  for (std::size_t j = 0; j < size.size(); ++j) {
    if (dim_of[j] < 0) continue;
    order.push_back(std::count(used.begin(), used.begin() + dim_of[j], true));
  }
  part = permute_tiles(part, order);
  for (std::size_t j = 0; j < size.size(); ++j) {
    if (dim_of[j] < 0) part = unsqueeze_tiles(part, static_cast<std::int64_t>(j));
  }
  part = expand_tiles(part, size, false);
  part.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  return part;
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

// Derivatives of views: zeros, but for a part.

Tensor placed(const char* name, const Tensor& gradient, at::IntArrayRef sizes, std::int64_t dim,
              std::int64_t start, std::int64_t step) {
  Operation operation(name);
  const BelowAutograd below;
  const ShardedTensorImpl& own = *impl(gradient);
  const int d = static_cast<int>(at::maybe_wrap_dim(dim, static_cast<std::int64_t>(sizes.size())));
  // Cut where the gradient is cut: the last part of it gets what comes after.
  std::vector<Cuts> cuts = own.layout()->cuts();
  for (std::int64_t& cut : cuts[d]) cut = start + cut * step;
  cuts[d].front() = 0;
  cuts[d].back() = sizes[d];
  const auto layout = std::make_shared<Layout>(sizes, std::move(cuts), own.layout()->devices());
  return wrap(own.mesh(), layout, make_tiles(*own.mesh(), *layout, [&](int i) {
                const Region region = layout->region(i);
                const Tensor& tile = own.tiles()[i];
                Tensor result = at::zeros(region.sizes(), tile.options());
                const std::int64_t first =
                    start + own.layout()->region(i).begin[d] * step - region.begin[d];
                if (tile.numel() > 0) {
                  result.slice(d, first, first + (tile.size(d) - 1) * step + 1, step).copy_(tile);
                }
                return result;
              }));
}

Tensor slice_backward_tiles(const Tensor& gradient, at::IntArrayRef sizes, std::int64_t dim,
                            std::int64_t start, std::int64_t, std::int64_t step) {
  const std::int64_t d = at::maybe_wrap_dim(dim, static_cast<std::int64_t>(sizes.size()));
  const std::int64_t begin =
      std::clamp<std::int64_t>(start < 0 ? start + sizes[d] : start, 0, sizes[d]);
  return placed("aten::slice_backward", gradient, sizes, d, begin, step);
}

Tensor select_backward_tiles(const Tensor& gradient, at::IntArrayRef sizes, std::int64_t dim,
                             std::int64_t index) {
  const std::int64_t d = at::maybe_wrap_dim(dim, static_cast<std::int64_t>(sizes.size()));
  const BelowAutograd below;
  return placed("aten::select_backward", unsqueeze_tiles(gradient, d), sizes, d,
                index < 0 ? index + sizes[d] : index, 1);
}

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
  library.impl("view", view_tiles);
  library.impl("_unsafe_view", unsafe_view_tiles);
  library.impl("_reshape_alias", reshape_alias_tiles);
  library.impl("as_strided", as_strided_tiles);
  library.impl("unsqueeze_", unsqueeze_in_place);
  library.impl("squeeze_", squeeze_in_place);
  library.impl("squeeze_.dim", squeeze_dim_in_place);
  library.impl("transpose_", transpose_in_place);
  library.impl("t_", t_in_place);
  library.impl("slice_backward", slice_backward_tiles);
  library.impl("select_backward", select_backward_tiles);
}

}  // namespace cohort::spmd
