// Views in other shapes. Where the cuts do not fit a new shape, the tensor is cut elsewhere first,
// and the result is a copy that can't be written to.

#include <ATen/ATen.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>

#include <numeric>

#include "cohort/base/error.h"
#include "cohort/spmd/rules/relayout.h"
#include "cohort/spmd/rules/views.h"

namespace cohort::spmd {
namespace {

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

/// Where the shapes have no cut in common: the elements in their order, cut as the new shape can
/// be.
Tensor cut_anew(const Tensor& x, at::IntArrayRef sizes, at::IntArrayRef strides,
                std::int64_t offset) {
  const Tensor row = flat(x);
  const MeshPtr& mesh = impl(x)->mesh();
  const LayoutPtr layout = layout_in_rows(x, sizes);
  std::vector<std::int64_t> begins(1, 0);
  for (int i = 0; i < layout->tiles(); ++i) {
    begins.push_back(begins.back() + c10::multiply_integers(layout->region(i).sizes()));
  }
  auto tiles = make_tiles(*mesh, *layout, [&](int i) {
    return fetch(row, {{begins[i]}, {begins[i + 1]}}).reshape(layout->region(i).sizes());
  });
  return wrap_view(mesh, layout, std::move(tiles), strides, offset);
}

Tensor in_shape(const char* name, const Tensor& x, at::IntArrayRef wanted, bool is_view);

/// Makes a copy stand for a view in another shape.
void stand_for_shape(const Tensor& copy, const Tensor& base) {
  const auto in = [](const Tensor& x, const Dims& sizes) {
    return in_shape("aten::view", x.contiguous(), sizes, false);
  };
  stand_for_view(
      copy, base,
      [in, sizes = dims_of(copy.sizes())](const Tensor& from) { return in(from, sizes); },
      [in, sizes = dims_of(base.sizes())](const Tensor& to, const Tensor& view) {
        write_to(to, in(view, sizes));
      });
}

Tensor in_shape(const char* name, const Tensor& x, at::IntArrayRef wanted, bool is_view) {
  const Operation operation(name);
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
    if (is_view && !all_views) stand_for_shape(result, x);
    return result;
  }
  if (!strides) {
    throw InvalidArgument(name, cat("the tensor can't be seen in the shape ", wanted,
                                    " without a copy: use reshape()"));
  }
  const LayoutPtr other = x.numel() == 0 ? nullptr : layout_that_fits(x, sizes);
  if (!other && old.tiles() > 1 && x.numel() > 0) {
    Tensor result = cut_anew(x, sizes, *strides, is_view ? x.storage_offset() : 0);
    if (is_view) stand_for_shape(result, x);
    return result;
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
  if (is_view) stand_for_shape(result, x);
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

}  // namespace

void register_reshaping(torch::Library& library) {
  library.impl("view", view_tiles);
  library.impl("_unsafe_view", unsafe_view_tiles);
  library.impl("_reshape_alias", reshape_alias_tiles);
}

}  // namespace cohort::spmd
