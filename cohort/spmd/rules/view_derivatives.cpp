// What autograd asks for besides views: a view of something that was changed in place, spelled with
// strides, and the derivatives of parts, which are zeros but for a part.

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <numeric>

#include "cohort/spmd/rules/views.h"

namespace cohort::spmd {
namespace {

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

void register_view_derivatives(torch::Library& library) {
  library.impl("as_strided", as_strided_tiles);
  library.impl("slice_backward", slice_backward_tiles);
  library.impl("select_backward", select_backward_tiles);
}

}  // namespace cohort::spmd
