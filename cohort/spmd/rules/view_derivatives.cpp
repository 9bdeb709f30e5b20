// What autograd asks for besides views: a view of something that was changed in place, spelled with
// strides, and the derivatives of parts, which are zeros but for a part.

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>

#include "cohort/base/error.h"
#include "cohort/spmd/rules/views.h"

namespace cohort::spmd {
namespace {

/// Where elements with these strides lie in memory, counted from the first one.
std::int64_t reach(at::IntArrayRef sizes, at::IntArrayRef strides) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return -1;
    last += (sizes[d] - 1) * strides[d];
  }
  return last;
}

/// A view that is no slice of the tensor, as a copy: element by element.
Tensor copied_with_strides(const Tensor& x, at::IntArrayRef size, at::IntArrayRef stride,
                           std::int64_t offset) {
  const std::int64_t begin = offset - x.storage_offset();
  const std::int64_t end = begin + reach(size, stride) + 1;
  const at::TensorOptions options(at::kLong);
  const Tensor numbers = at::full({std::max(end, reach(x.sizes(), x.strides()) + 1)}, -1, options);
  write_once(numbers.as_strided(x.sizes(), x.strides()),
             at::arange(x.numel(), options).view(x.sizes()));
  const Tensor which = numbers.as_strided(size, stride, std::max<std::int64_t>(begin, 0));
  if (begin < 0 || (which.numel() > 0 && which.min().item<std::int64_t>() < 0)) {
    throw InvalidArgument("as_strided", cat("the sizes ", size, " and strides ", stride,
                                            " reach beyond a sharded tensor of sizes ", x.sizes(),
                                            " and strides ", x.strides()));
  }
  Tensor result = at::take(x, which);
  result.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  result.unsafeGetTensorImpl()->set_storage_offset(offset);
  const bool overlaps = which.numel() > 1 && [&] {
    const Tensor sorted = std::get<0>(which.flatten().sort());
    return sorted.diff().eq(0).any().item<bool>();
  }();
  const auto write = [which](const Tensor& base, const Tensor& view) { base.put_(which, view); };
  stand_for_view(
      result, x, [which](const Tensor& base) { return at::take(base, which); },
      overlaps ? CopiedView::Write() : write);
  return result;
}

/// Where a view begins: an index in each dimension, largest strides first. Nothing if it begins
/// beside the tensor's elements.
std::optional<std::vector<std::int64_t>> start_of(const Tensor& x, std::span<const int> by_stride,
                                                  std::int64_t offset) {
  std::int64_t rest = offset - x.storage_offset();
  if (rest < 0) return std::nullopt;
  std::vector<std::int64_t> start(x.dim(), 0);
  for (const int d : by_stride) {
    if (x.stride(d) == 0 || x.size(d) == 1) continue;
    start[d] = std::min(rest / x.stride(d), x.size(d) - 1);
    rest -= start[d] * x.stride(d);
  }
  if (rest != 0) return std::nullopt;
  return start;
}

/// How autograd spells a view that was changed in place: taken apart into slices, a diagonal, an
/// order and new dimensions where possible.
Tensor as_strided_tiles(const Tensor& x, at::IntArrayRef size, at::IntArrayRef stride,
                        c10::optional<std::int64_t> offset) {
  const Operation operation("aten::as_strided");
  const BelowAutograd below;
  const std::int64_t begin = offset.value_or(x.storage_offset());
  std::vector<int> by_stride(x.dim());
  std::iota(by_stride.begin(), by_stride.end(), 0);
  std::stable_sort(by_stride.begin(), by_stride.end(),
                   [&](int a, int b) { return x.stride(a) > x.stride(b); });
  const auto start = start_of(x, by_stride, begin);
  // The dimension that each dimension of the view goes along; x.dim() for a diagonal of two.
  std::vector<int> dim_of(size.size(), -1);
  std::vector<bool> used(x.dim(), false);
  std::pair<int, int> diagonal(-1, -1);
  Tensor part = x;
  const auto take = [&](std::size_t j, int d, std::int64_t step) {
    if (used[d] || x.stride(d) == 0 || (*start)[d] + (size[j] - 1) * step >= x.size(d))
      return false;
    used[d] = true;
    part = slice_of(part, d, (*start)[d], (*start)[d] + (size[j] - 1) * step + 1, step);
    return true;
  };
  const auto find_dim = [&](std::size_t j) {
    for (const int d : by_stride) {
      if (x.stride(d) == 0 || stride[j] % x.stride(d) != 0) continue;
      if (take(j, d, stride[j] / x.stride(d))) return d;
    }
    return -1;
  };
  const auto find_diagonal = [&](std::size_t j) {
    for (const int a : by_stride) {
      for (const int b : by_stride) {
        if (a == b || used[a] || used[b] || x.stride(a) + x.stride(b) != stride[j]) continue;
        if (!take(j, a, 1) || !take(j, b, 1)) return -1;
        diagonal = {a, b};
        return static_cast<int>(x.dim());
      }
    }
    return -1;
  };
  bool fits = start.has_value();
  for (std::size_t j = 0; j < size.size() && fits; ++j) {
    if (size[j] == 1 || stride[j] == 0) continue;
    dim_of[j] = find_dim(j);
    if (dim_of[j] < 0 && diagonal.first < 0) dim_of[j] = find_diagonal(j);
    fits = dim_of[j] >= 0;
  }
  if (!fits) return copied_with_strides(x, size, stride, begin);
  // What the view does not go along is one element.
  std::vector<bool> gone(x.dim(), false);
  for (int d = 0; d < x.dim(); ++d) {
    if (used[d]) continue;
    gone[d] = true;
    part = slice_of(part, d, (*start)[d], (*start)[d] + 1, 1);
  }
  part = without_dims(part, gone);
  std::vector<int> kept;  // the dimensions of `part`
  for (int d = 0; d < x.dim(); ++d) {
    if (used[d]) kept.push_back(d);
  }
  const auto at = [&](int d) { return std::find(kept.begin(), kept.end(), d) - kept.begin(); };
  if (diagonal.first >= 0) {
    part = diagonal_tiles(part, 0, at(diagonal.first), at(diagonal.second));
    std::erase_if(kept, [&](int d) { return d == diagonal.first || d == diagonal.second; });
    kept.push_back(static_cast<int>(x.dim()));
  }
  Dims order;
  for (std::size_t j = 0; j < size.size(); ++j) {
    if (dim_of[j] >= 0) order.push_back(at(dim_of[j]));
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
