// Elements chosen one by one: gather and scatter along a dimension, and masks.
//
// Gathering, each device looks into one tile of the tensor after the other. Scattering, it takes
// what falls into its own tile. A mask counts elements in the order of rows, for which the first
// dimension is cut.

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>

#include <numeric>

#include "cohort/base/error.h"
#include "cohort/spmd/dispatch.h"
#include "cohort/spmd/rules/relayout.h"

namespace cohort::spmd {
namespace {

std::vector<int> own_dims(const Tensor& x) {
  std::vector<int> dims(x.dim());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}
std::vector<int> own_dims_but(const Tensor& x, std::int64_t d) {
  std::vector<int> dims = own_dims(x);
  if (x.dim() > 0) dims[d] = -1;
  return dims;
}

void check_bounds(const char* op, const Tensor& index, std::int64_t size) {
  if (index.numel() == 0) return;
  const auto low = index.min().item<std::int64_t>(), high = index.max().item<std::int64_t>();
  if (low >= 0 && high < size) return;
  throw ValueError(
      op, cat("index ", low < 0 ? low : high, " is out of bounds for a dimension of size ", size));
}

// Gathering.

/// Elements of the region along all dimensions but d; there, those that the index names.
Tensor found_along(const Tensor& x, std::int64_t d, const Tensor& index, Region region) {
  if (!is_split_along(x, d)) {
    region.begin[d] = 0;
    region.end[d] = x.size(d);
    return at::gather(fetch(x, region), d, index);
  }
  const Cuts& cuts = layout_of(x).cuts(static_cast<int>(d));
  check_bounds("gather", index, x.size(d));
  Tensor result;
  for (std::size_t part = 0; part + 1 < cuts.size(); ++part) {
    region.begin[d] = cuts[part];
    region.end[d] = cuts[part + 1];
    const Tensor own = index.clamp(cuts[part], cuts[part + 1] - 1).sub_(cuts[part]);
    const Tensor found = at::gather(fetch(x, region), d, own);
    result = result.defined() ? at::where(index.ge(cuts[part]), found, result) : found;
  }
  return result;
}

Tensor gather_tiles(const Tensor& x, std::int64_t dim, const Tensor& index, bool) {
  const Operation operation("aten::gather");
  const BelowAutograd below;
  if (x.dim() == 0 || index.dim() == 0) {
    const auto wide = [](const Tensor& t) { return t.dim() == 0 ? t.unsqueeze(0) : t; };
    return at::_unsafe_view(gather_tiles(wide(x), 0, wide(index), false), index.sizes());
  }
  const std::int64_t d = at::maybe_wrap_dim(dim, x.dim());
  const std::vector<Tensor> both{x, index};
  const MeshPtr mesh = common_mesh("aten::gather", both);
  const LayoutPtr layout =
      Following(index.sizes()).after(x, own_dims_but(x, d)).after(index, own_dims(index)).layout();
  return wrap(mesh, layout, make_tiles(*mesh, *layout, [&](int i) {
                const Region region = layout->region(i);
                return found_along(x, d, fetch(index, region), region);
              }));
}

// Scattering: the operation itself, on each tile.

/// The part of an index, or of a source, that goes to a region along all dimensions but d.
Region part_for(const Region& region, const Tensor& index, std::int64_t d) {
  Region part = Region::all_of(index.sizes());
  for (int e = 0; e < part.dim(); ++e) {
    if (e == d) continue;
    part.begin[e] = region.begin[e];
    part.end[e] = std::min(region.end[e], part.end[e]);
  }
  return part;
}

/// A call of scatter, scatter_add or the like: (self, dim, index, source or value, …).
class Scatter {
 public:
  Scatter(const c10::OperatorHandle& op, std::vector<c10::IValue> arguments)
      : op_(op),
        arguments_(std::move(arguments)),
        self_(arguments_[0].toTensor()),
        index_(arguments_[2].toTensor()),
        dim_(at::maybe_wrap_dim(arguments_[1].toInt(), self_.dim())) {
    if (arguments_[3].isTensor()) source_ = arguments_[3].toTensor();
  }

  const Tensor& self() const { return self_; }
  MeshPtr mesh() const {
    const std::vector<Tensor> all{self_, index_, source_};
    return common_mesh(op_.schema().name().c_str(), all);
  }
  LayoutPtr layout() const {
    if (is_sharded(self_)) return impl(self_)->layout();
    Following following(self_.sizes());
    if (source_.defined()) following.after(source_, own_dims_but(source_, dim_));
    return following.after(index_, own_dims_but(index_, dim_)).layout();
  }

  /// What becomes of a tile of self; it is changed itself if the operation does that.
  Tensor run_on(const Tensor& tile, const Region& region) const {
    const Region part = part_for(region, index_, dim_);
    if (part.is_empty()) return tile;
    const std::int64_t own = region.end[dim_] - region.begin[dim_], size = self_.size(dim_);
    const Tensor index = fetch(index_, part);
    const Tensor source = source_.defined() ? fetch(source_, part) : source_;
    if (own == size) return call(tile, index, source);
    // One more row takes what falls elsewhere.
    check_bounds("scatter", index, size);
    const Tensor shifted = index.sub(region.begin[dim_]);
    const Tensor is_elsewhere = shifted.lt(0).logical_or_(shifted.ge(own));
    const Tensor wide = at::cat({tile, tile.narrow(dim_, 0, 1)}, dim_);
    return call(wide, shifted.masked_fill(is_elsewhere, own), source).narrow(dim_, 0, own);
  }

 private:
  Tensor call(const Tensor& tile, const Tensor& index, const Tensor& source) const {
    Stack own(arguments_.begin(), arguments_.end());
    own[0] = tile;
    own[2] = index;
    if (source.defined()) own[3] = source;
    op_.callBoxed(&own);
    return own[0].toTensor();
  }

  const c10::OperatorHandle& op_;
  const std::vector<c10::IValue> arguments_;
  const Tensor self_, index_;
  Tensor source_;
  const std::int64_t dim_;
};

void scatter_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operation operation(op.schema().name().c_str());
  BoxedCall call(op, stack);
  if (call[0].toTensor().dim() == 0) return gather_and_run(op, stack, "it has one element");
  const bool in_place = call.changes(0);
  const BelowAutograd below;
  const Scatter scatter(op, call.take());
  const Tensor& self = scatter.self();
  const MeshPtr mesh = scatter.mesh();
  const LayoutPtr layout = scatter.layout();
  if (in_place) {
    const Writing writing(self);
    mesh->run(layout->devices(), [&](int i) {
      const Tensor tile = fetch(self, layout->region(i));
      const Tensor changed = scatter.run_on(tile, layout->region(i));
      if (!changed.is_same(tile)) tile.copy_(changed);
    });
    stack->emplace_back(self);
    return;
  }
  stack->emplace_back(wrap(mesh, layout, make_tiles(*mesh, *layout, [&](int i) {
                             const Tensor tile = fetch(self, layout->region(i));
                             const Tensor changed = scatter.run_on(tile, layout->region(i));
                             return changed.is_same(tile) ? tile.clone() : changed;
                           })));
}

/// Reduces whole rows: a scatter whose indices are the same along the other dimensions.
void index_reduce_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  BoxedCall call(op, stack);
  Tensor self = call[0].toTensor();
  if (self.dim() == 0) return gather_and_run(op, stack, "it has one element");
  const Operation operation("aten::index_reduce");
  const BelowAutograd below;
  const bool in_place = call.changes(0);
  const auto arguments = call.take();
  const std::int64_t dim = at::maybe_wrap_dim(arguments[1].toInt(), self.dim());
  const Tensor index = gather(arguments[2].toTensor()), source = arguments[3].toTensor();
  if (index.dim() > 1 || source.dim() != self.dim() || index.numel() != source.size(dim)) {
    throw InvalidArgument("index_reduce", cat(index.sizes(), " indices along dimension ", dim,
                                              " don't fit a source of sizes ", source.sizes()));
  }
  std::vector<std::int64_t> sizes(self.dim(), 1);
  sizes[dim] = index.numel();
  const Tensor result =
      at::scatter_reduce(self, dim, index.view(sizes).expand(source.sizes()).to(at::kLong), source,
                         arguments[4].toStringRef(), arguments[5].toBool());
  stack->emplace_back(in_place ? self.copy_(result) : result);
}

// Masks.

/// Tensors of one dimension, one after the other; without the empty ones.
Tensor one_after_the_other(const MeshPtr& mesh, const Layout& layout, std::vector<Tensor> tiles) {
  Cuts cuts{0};
  std::vector<int> devices;
  std::vector<Tensor> kept;
  for (int i = 0; i < layout.tiles(); ++i) {
    if (tiles[i].numel() == 0) continue;
    cuts.push_back(cuts.back() + tiles[i].numel());
    devices.push_back(layout.device(i));
    kept.push_back(tiles[i]);
  }
  if (kept.empty()) {
    cuts.push_back(0);
    devices.push_back(layout.device(0));
    kept.push_back(tiles[0]);
  }
  const Dims sizes{cuts.back()};
  return wrap(mesh, std::make_shared<Layout>(sizes, std::vector<Cuts>{cuts}, devices),
              std::move(kept));
}

/// Two tensors broadcast to each other, and how their elements are dealt out. Where neither is
/// sharded, as `source` is.
struct Masked {
  Tensor x, mask;
  MeshPtr mesh;
  LayoutPtr layout;

  Masked(const char* name, const Tensor& values, const Tensor& own_mask,
         const Tensor& source = {}) {
    const auto sizes = at::infer_size(values.sizes(), own_mask.sizes());
    x = values.expand(sizes);
    mask = own_mask.expand(sizes);
    const std::vector<Tensor> both{x, mask}, all{x, mask, source};
    mesh = common_mesh(name, all);
    layout = layout_in_rows(common_mesh(name, both) ? leader_of(both) : source, sizes);
  }
};

Tensor masked_select_tiles(const Tensor& x, const Tensor& mask) {
  const Operation operation("aten::masked_select");
  const BelowAutograd below;
  const Masked masked("aten::masked_select", x, mask);
  return one_after_the_other(
      masked.mesh, *masked.layout, make_tiles(*masked.mesh, *masked.layout, [&](int i) {
        const Region region = masked.layout->region(i);
        return at::masked_select(fetch(masked.x, region), fetch(masked.mask, region));
      }));
}

Tensor masked_scatter_tiles(const Tensor& x, const Tensor& mask, const Tensor& source) {
  const Operation operation("aten::masked_scatter");
  const BelowAutograd below;
  const Masked masked("aten::masked_scatter", x, mask, source);
  const Layout& layout = *masked.layout;
  const Tensor values = flat(source);
  std::vector<std::int64_t> begin(layout.tiles() + 1, 0);
  masked.mesh->run(layout.devices(), [&](int i) {
    begin[i + 1] = fetch(masked.mask, layout.region(i)).sum().item<std::int64_t>();
  });
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  if (begin.back() > values.size(0)) {
    throw InvalidArgument("masked_scatter", cat("the mask names ", begin.back(),
                                                " elements, the source has ", values.size(0)));
  }
  return wrap(masked.mesh, masked.layout, make_tiles(*masked.mesh, layout, [&](int i) {
                const Region region = layout.region(i);
                return at::masked_scatter(fetch(masked.x, region), fetch(masked.mask, region),
                                          fetch(values, {{begin[i]}, {begin[i + 1]}}));
              }));
}
Tensor& masked_scatter_in_place(Tensor& x, const Tensor& mask, const Tensor& source) {
  const Operation operation("aten::masked_scatter_");
  const BelowAutograd below;
  return x.copy_(masked_scatter_tiles(x, mask, source));
}

/// The derivative of the source: as many elements as the mask names, then zeros.
Tensor masked_scatter_backward_tiles(const Tensor& gradient, const Tensor& mask,
                                     at::IntArrayRef sizes) {
  const Operation operation("aten::masked_scatter_backward");
  const BelowAutograd below;
  const Tensor chosen = masked_select_tiles(gradient, mask);
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return at::_unsafe_view(at::constant_pad_nd(chosen, {0, count - chosen.size(0)}), sizes);
}

/// An ordinary tensor of the places, in order.
Tensor nonzero_tiles(const Tensor& x) {
  const Operation operation("aten::nonzero");
  const BelowAutograd below;
  const MeshPtr& mesh = impl(x)->mesh();
  const LayoutPtr layout = layout_in_rows(x, x.sizes());
  return at::cat(make_tiles(*mesh, *layout, [&](int i) {
    const Region region = layout->region(i);
    const Tensor begin = at::tensor(at::IntArrayRef(region.begin), at::TensorOptions(at::kLong));
    return at::nonzero(fetch(x, region)).add_(begin);
  }));
}

}  // namespace

void register_scattering(torch::Library& library) {
  library.impl("gather", gather_tiles);
  for (const char* name :
       {"scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce", "scatter_add",
        "scatter_reduce.two", "scatter_.src", "scatter_.value", "scatter_.reduce",
        "scatter_.value_reduce", "scatter_add_", "scatter_reduce_.two"}) {
    library.impl(name, boxed<&scatter_boxed>());
  }
  library.impl("index_reduce", boxed<&index_reduce_boxed>());
  library.impl("index_reduce_", boxed<&index_reduce_boxed>());
  library.impl("masked_select", masked_select_tiles);
  library.impl("masked_scatter", masked_scatter_tiles);
  library.impl("masked_scatter_", masked_scatter_in_place);
  library.impl("masked_scatter_backward", masked_scatter_backward_tiles);
  library.impl("nonzero", nonzero_tiles);
}

}  // namespace cohort::spmd
