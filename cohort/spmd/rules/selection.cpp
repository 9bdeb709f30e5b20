#include "cohort/spmd/rules/selection.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <numeric>

#include "cohort/base/error.h"
#include "cohort/spmd/rules/relayout.h"

namespace cohort::spmd {

Selection::Selection(at::IntArrayRef x_sizes, std::vector<Tensor> given)
    : sizes(x_sizes.begin(), x_sizes.end()), indices(std::move(given)) {
  if (indices.size() > sizes.size()) {
    throw ValueError(
        "index", cat("too many indices for a tensor of sizes ", x_sizes, ": got ", indices.size()));
  }
  indices.resize(sizes.size());
  std::vector<int> indexed;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (!indices[d].defined()) continue;
    indexed.push_back(static_cast<int>(d));
    const auto wide = at::infer_size(shape, indices[d].sizes());
    shape.assign(wide.begin(), wide.end());
  }
  const int count = static_cast<int>(indexed.size());
  if (count > 0 && indexed.back() - indexed.front() + 1 == count) at = indexed.front();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (!indices[d].defined()) result.push_back(sizes[d]);
  }
  result.insert(result.begin() + at, shape.begin(), shape.end());
  int next = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (next == at) next += dims();
    result_dim.push_back(indices[d].defined() ? -1 : next++);
  }
}

std::vector<int> Selection::dims_of_index(const Tensor& index) const {
  std::vector<int> dims_of(index.dim());
  std::iota(dims_of.begin(), dims_of.end(), at + dims() - static_cast<int>(index.dim()));
  return dims_of;
}
std::vector<int> Selection::dims_of_values(const Tensor& values) const {
  std::vector<int> dims_of(values.dim());
  std::iota(dims_of.begin(), dims_of.end(), static_cast<int>(result.size() - values.dim()));
  return dims_of;
}

namespace {

/// The part of a tensor that goes with a part of what it is broadcast to.
Tensor fetch_broadcast(const Tensor& tensor, const Region& region) {
  Region part = Region::all_of(tensor.sizes());
  const int before = region.dim() - part.dim();
  for (int d = 0; d < part.dim(); ++d) {
    if (part.end[d] == 1) continue;
    part.begin[d] = region.begin[d + before];
    part.end[d] = region.end[d + before];
  }
  return fetch(tensor, part).expand(region.sizes());
}

/// A region of the given dimensions of another.
Region part_of_dims(const Region& region, int begin, int count) {
  return {Dims(region.begin.begin() + begin, region.begin.begin() + begin + count),
          Dims(region.end.begin() + begin, region.end.begin() + begin + count)};
}

/// The indices in a part of their shape, as lists, from 0 on; undefined where there are none.
std::vector<Tensor> lists_of(const Selection& selection, const Region& part) {
  std::vector<Tensor> lists(selection.indices.size());
  for (std::size_t d = 0; d < lists.size(); ++d) {
    if (!selection.indices[d].defined()) continue;
    const Tensor list = fetch_broadcast(selection.indices[d], part).reshape({-1}).to(at::kLong);
    const std::int64_t size = selection.sizes[d];
    if (list.numel() > 0) {
      const std::int64_t low = list.min().item<std::int64_t>();
      const std::int64_t high = list.max().item<std::int64_t>();
      if (low < (selection.from_the_end ? -size : 0) || high >= size) {
        throw ValueError("index", cat("index ", high < size ? low : high,
                                      " is out of bounds for dimension ", d, " with size ", size));
      }
      lists[d] = low < 0 ? at::where(list.lt(0), list.add(size), list) : list;
    } else {
      lists[d] = list;
    }
  }
  return lists;
}

/// The indices that fall into a box of x.
struct Chosen {
  Tensor which;               // their numbers; undefined for all
  std::vector<Tensor> lists;  // counted from where the box begins

  bool is_none() const { return which.defined() && which.numel() == 0; }
};

Chosen choose(const Selection& selection, const std::vector<Tensor>& lists, const Region& box) {
  Tensor is_inside;
  for (std::size_t d = 0; d < lists.size(); ++d) {
    if (!lists[d].defined() || box.end[d] - box.begin[d] == selection.sizes[d]) continue;
    const Tensor own = lists[d].ge(box.begin[d]).logical_and_(lists[d].lt(box.end[d]));
    is_inside = is_inside.defined() ? is_inside.logical_and_(own) : own;
  }
  if (!is_inside.defined()) return {Tensor(), lists};
  Chosen chosen{at::nonzero(is_inside).squeeze(1), lists};
  for (std::size_t d = 0; d < lists.size(); ++d) {
    if (lists[d].defined()) {
      chosen.lists[d] = lists[d].index_select(0, chosen.which).sub_(box.begin[d]);
    }
  }
  return chosen;
}

c10::List<c10::optional<Tensor>> as_list(const std::vector<Tensor>& lists) {
  c10::List<c10::optional<Tensor>> list;
  for (const Tensor& each : lists) {
    list.push_back(each.defined() ? c10::optional<Tensor>(each) : c10::nullopt);
  }
  return list;
}

/// The only dimension with indices; -1 if there are several.
std::int64_t only_dimension(const std::vector<Tensor>& lists) {
  std::int64_t only = -1;
  for (std::size_t d = 0; d < lists.size(); ++d) {
    if (!lists[d].defined()) continue;
    if (only >= 0) return -1;
    only = static_cast<std::int64_t>(d);
  }
  return only;
}

Tensor pick(const Tensor& part, const std::vector<Tensor>& lists) {
  const std::int64_t d = only_dimension(lists);
  return d >= 0 ? at::index_select(part, d, lists[d]) : at::index(part, as_list(lists));
}

void put(Tensor part, const std::vector<Tensor>& lists, const Tensor& values, bool accumulate) {
  const std::int64_t d = only_dimension(lists);
  if (d >= 0 && accumulate && values.dim() == part.dim()) {
    part.index_add_(d, lists[d], values);
  } else {
    part.index_put_(as_list(lists), values, accumulate);
  }
}

/// Calls visit(box) for the boxes into which a tensor's cuts along some dimensions divide a region.
void for_each_box(const Tensor& x, const Region& region, const std::vector<bool>& along,
                  FunctionRef<void(const Region&)> visit, int d = 0) {
  while (d < region.dim() && !(along[d] && is_split_along(x, d))) ++d;
  if (d == region.dim()) return visit(region);
  const Cuts& cuts = layout_of(x).cuts(d);
  for (std::size_t part = 0; part + 1 < cuts.size(); ++part) {
    Region box = region;
    box.begin[d] = std::max(cuts[part], region.begin[d]);
    box.end[d] = std::min(cuts[part + 1], region.end[d]);
    if (box.begin[d] < box.end[d]) for_each_box(x, box, along, visit, d + 1);
  }
}

/// A tile of the result.
Tensor looked_up(const Tensor& x, const Selection& selection, const Region& region) {
  const auto lists = lists_of(selection, part_of_dims(region, selection.at, selection.dims()));
  Region wanted = Region::all_of(x.sizes());
  std::vector<bool> indexed(x.dim());
  for (int d = 0; d < wanted.dim(); ++d) {
    indexed[d] = selection.is_indexed(d);
    if (indexed[d]) continue;
    wanted.begin[d] = region.begin[selection.result_dim[d]];
    wanted.end[d] = region.end[selection.result_dim[d]];
  }
  std::vector<Tensor> values, which;
  for_each_box(x, wanted, indexed, [&](const Region& box) {
    const Chosen chosen = choose(selection, lists, box);
    values.push_back(pick(fetch(x, box), chosen.lists));
    if (chosen.which.defined()) which.push_back(chosen.which);
  });
  if (which.empty()) return values[0].reshape(region.sizes());
  const Tensor found = at::cat(values, selection.at);
  return at::empty_like(found)
      .index_copy_(selection.at, at::cat(which), found)
      .reshape(region.sizes());
}

/// The values that go into a region of x from a part of the indices' shape, as a list of them.
Tensor values_for(const Selection& selection, const Tensor& values, const Region& region,
                  const Region& part) {
  Region wanted = Region::all_of(selection.result);
  Dims sizes;
  for (int d = 0; d < region.dim(); ++d) {
    if (selection.is_indexed(d)) continue;
    wanted.begin[selection.result_dim[d]] = region.begin[d];
    wanted.end[selection.result_dim[d]] = region.end[d];
    sizes.push_back(region.end[d] - region.begin[d]);
  }
  std::copy(part.begin.begin(), part.begin.end(), wanted.begin.begin() + selection.at);
  std::copy(part.end.begin(), part.end.end(), wanted.end.begin() + selection.at);
  sizes.insert(sizes.begin() + selection.at, -1);
  return fetch_broadcast(values, wanted).reshape(sizes);
}

/// Writes what falls into a region of x, which `to` is. The values have all dimensions of the
/// result.
void write_part(const Tensor& to, const Region& region, const Selection& selection,
                const Tensor& values, bool accumulate) {
  std::vector<bool> is_index_dim(selection.result.size(), false);
  std::fill_n(is_index_dim.begin() + selection.at, selection.dims(), true);
  for_each_box(values, Region::all_of(selection.result), is_index_dim, [&](const Region& box) {
    const Region part = part_of_dims(box, selection.at, selection.dims());
    const Chosen chosen = choose(selection, lists_of(selection, part), region);
    if (chosen.is_none()) return;
    const Tensor own = values_for(selection, values, region, part);
    put(to, chosen.lists,
        chosen.which.defined() ? own.index_select(selection.at, chosen.which) : own, accumulate);
  });
}

}  // namespace

Selection along_dimension(at::IntArrayRef sizes, std::int64_t dim, const Tensor& index,
                          bool from_the_end) {
  std::vector<Tensor> indices(at::maybe_wrap_dim(dim, static_cast<std::int64_t>(sizes.size())));
  indices.push_back(index);
  Selection selection(sizes, std::move(indices));
  selection.from_the_end = from_the_end;
  return selection;
}

Tensor as_list_of_indices(const Tensor& index) {
  return index.dim() == 0 ? index.unsqueeze(0) : index;
}

Tensor mask_of(const Tensor& x, std::int64_t dim, const Tensor& index) {
  const std::int64_t d = at::maybe_wrap_dim(dim, x.dim());
  std::vector<std::int64_t> sizes(x.dim(), 1);
  sizes[d] = x.size(d);
  const Tensor mask = at::zeros({x.size(d)}, at::TensorOptions(at::kBool));
  return mask.index_fill_(0, gather(index).reshape({-1}), true).reshape(sizes);
}

Tensor read_elements(const char* name, const Tensor& x, const Selection& selection) {
  const Operation operation(name);
  Following following(selection.result);
  std::vector<Tensor> tensors = selection.indices;
  tensors.push_back(x);
  const MeshPtr mesh = common_mesh(name, tensors);
  if (!mesh) return at::index(x, as_list(selection.indices));  // only a mask was sharded
  following.after(x, selection.result_dim);
  for (const Tensor& index : selection.indices) {
    if (index.defined()) following.after(index, selection.dims_of_index(index));
  }
  const LayoutPtr layout = following.layout();
  return wrap(mesh, layout, make_tiles(*mesh, *layout, [&](int i) {
                return looked_up(x, selection, layout->region(i));
              }));
}

LayoutPtr layout_for(const Selection& selection, const Tensor& values) {
  std::vector<int> dim_of(selection.result.size(), -1);
  for (std::size_t d = 0; d < selection.sizes.size(); ++d) {
    if (selection.result_dim[d] >= 0) dim_of[selection.result_dim[d]] = static_cast<int>(d);
  }
  std::vector<int> dims;
  for (const int d : selection.dims_of_values(values)) dims.push_back(dim_of[d]);
  Following following(selection.sizes);
  following.after(values, dims);
  for (const Tensor& index : selection.indices) {
    if (index.defined()) following.after(index, std::vector<int>(index.dim(), -1));
  }
  return following.layout();
}

Tensor written(const MeshPtr& mesh, const LayoutPtr& layout, const Selection& selection,
               Tensor values, bool accumulate, FunctionRef<Tensor(const Region&)> start) {
  while (values.dim() < static_cast<std::int64_t>(selection.result.size())) {
    values = values.unsqueeze(0);
  }
  return wrap(mesh, layout, make_tiles(*mesh, *layout, [&](int i) {
                const Tensor part = start(layout->region(i));
                write_part(part, layout->region(i), selection, values, accumulate);
                return part;
              }));
}

MeshPtr mesh_of(const char* name, const Tensor& x, const Selection& selection,
                const Tensor& values) {
  std::vector<Tensor> tensors = selection.indices;
  tensors.push_back(x);
  tensors.push_back(values);
  return common_mesh(name, tensors);
}

Tensor write_elements(const char* name, const Tensor& x, const Selection& selection,
                      const Tensor& values, bool accumulate) {
  const Operation operation(name);
  const MeshPtr mesh = mesh_of(name, x, selection, values);
  if (!mesh) return at::index_put(x, as_list(selection.indices), values, accumulate);
  const LayoutPtr layout = is_sharded(x) ? impl(x)->layout() : layout_for(selection, values);
  return written(mesh, layout, selection, values, accumulate,
                 [&](const Region& region) { return fetch_copy(x, region); });
}

void write_elements_in_place(const char* name, const Tensor& x, const Selection& selection,
                             const Tensor& values, bool accumulate) {
  const Operation operation(name);
  const Writing writing(x);
  const MeshPtr mesh = mesh_of(name, x, selection, values);
  if (!mesh) return put(x, selection.indices, values, accumulate);
  const LayoutPtr layout = is_sharded(x) ? impl(x)->layout() : layout_for(selection, values);
  written(mesh, layout, selection, values, accumulate,
          [&](const Region& region) { return fetch(x, region); });
}

}  // namespace cohort::spmd
