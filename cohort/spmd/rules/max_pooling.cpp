// Pooling of maxima, with their places in the whole tensor. Places are numbers of elements, of one
// channel: of a block at first.

#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>

#include <limits>

#include "cohort/spmd/rules/pooling.h"

namespace cohort::spmd {
namespace {

/// Of a window whose elements are all the smallest number there is, LibTorch names the first one
/// that lies in the tensor, not in the padding. Corrects the outputs whose windows begin in the
/// padding of dimension d, which a block reads from `begin` on. One step along it is `unit` in
/// `places`.
void leave_padding(const Tensor& places, int dim, const Window& window, std::int64_t begin,
                   std::int64_t unit) {
  const std::int64_t outputs =
      std::min((-begin + window.stride - 1) / window.stride, places.size(dim));
  const Tensor first = places.narrow(dim, 0, outputs);
  for (std::int64_t rest = -begin; rest > 0; rest -= window.dilation) {
    first.copy_(at::where(at::lt(first, 0), at::add(first, window.dilation * unit), first));
  }
}

/// Takes numbers of elements apart: the place in each dimension of these sizes.
std::vector<Tensor> places_in(const Tensor& numbers, at::IntArrayRef sizes) {
  std::vector<Tensor> places(sizes.size());
  Tensor rest = numbers;
  for (std::size_t d = sizes.size(); d-- > 1;) {
    const Tensor before = at::floor_divide(rest, sizes[d]);
    places[d] = at::sub(rest, at::mul(before, sizes[d]));
    rest = before;
  }
  places[0] = rest;
  return places;
}

Tensor number_of(const std::vector<Tensor>& places, at::IntArrayRef sizes) {
  Tensor number = places[0];
  for (std::size_t d = 1; d < sizes.size(); ++d) {
    number = at::add(at::mul(number, sizes[d]), places[d]);
  }
  return number;
}

/// The part of a block's sizes or places that windows move along.
at::IntArrayRef spatial(const Pooling& pooling, const Dims& values) {
  return at::IntArrayRef(values).slice(pooling.lead);
}

/// If only the first dimension is cut, the elements that come before those of a block.
std::int64_t elements_before(const Pooling& pooling, const Block& block) {
  std::int64_t elements = block.input.begin[pooling.lead];
  for (int d = 1; d < pooling.dims(); ++d) elements *= pooling.in[d];
  return elements;
}

/// May change its argument.
Tensor in_tensor(const Pooling& pooling, const Block& block, const Tensor& of_block) {
  const int last = last_cut(pooling, block);
  if (last < 0) return of_block;
  const auto begin = spatial(pooling, block.input.begin);
  if (last == 0) {
    const std::int64_t before = elements_before(pooling, block);
    of_block.add_(before);
    if (begin[0] < 0) {
      leave_padding(of_block, pooling.lead, pooling.windows[0], begin[0], before / begin[0]);
    }
    return of_block;
  }
  const Dims sizes = block.input.sizes();
  auto places = places_in(of_block, spatial(pooling, sizes));
  for (int d = 0; d < pooling.dims(); ++d) {
    if (begin[d] == 0) continue;
    places[d] = at::add(places[d], begin[d]);
    if (begin[d] < 0) leave_padding(places[d], pooling.lead + d, pooling.windows[d], begin[d], 1);
  }
  return number_of(places, pooling.in);
}

Tensor in_block(const Pooling& pooling, const Block& block, const Tensor& of_tensor) {
  const int last = last_cut(pooling, block);
  if (last < 0) return of_tensor;
  if (last == 0) return at::sub(of_tensor, elements_before(pooling, block));
  const Dims sizes = block.input.sizes();
  auto places = places_in(of_tensor, pooling.in);
  for (int d = 0; d < pooling.dims(); ++d) {
    const std::int64_t begin = block.input.begin[pooling.lead + d];
    if (begin != 0) places[d] = at::sub(places[d], begin);
  }
  return number_of(places, spatial(pooling, sizes));
}

using Pair = std::tuple<Tensor, Tensor>;

/// What padding is filled with: the smallest number of a type.
double smallest_of(at::ScalarType type) {
  if (at::isFloatingType(type)) return -std::numeric_limits<double>::infinity();
  switch (type) {
    case at::kByte:
      return 0;
    case at::kChar:
      return std::numeric_limits<std::int8_t>::min();
    case at::kShort:
      return std::numeric_limits<std::int16_t>::min();
    case at::kInt:
      return std::numeric_limits<std::int32_t>::min();
    default:
      return static_cast<double>(std::numeric_limits<std::int64_t>::min());
  }
}

template <class F>
Pair max_tiles_with(const char* name, const Tensor& x, const Pooling& pooling, F&& pool) {
  const auto results =
      pool_tiles(name, x, pooling, smallest_of(x.scalar_type()), 2,
                 [&](const Block& block, const Tensor& part) {
                   auto [values, indices] = pool(part, block);
                   return std::vector<Tensor>{values, in_tensor(pooling, block, indices)};
                 });
  return {results[0], results[1]};
}

template <class F>
Tensor max_gradient_with(const char* name, const Tensor& gradient, const Tensor& x,
                         const Tensor& indices, const Pooling& pooling, F&& pool) {
  return gradient_tiles(name, gradient, x, indices, pooling,
                        [&](const Block& block, const Tensor& own, const Tensor& like) {
                          const Tensor of_tensor = fetch(indices, block.output);
                          return pool(own, like, block,
                                      in_block(pooling, block, of_tensor).contiguous());
                        });
}

template <int dims>
Pair max_pool_tiles(const Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride,
                    at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  const auto pool = dims == 2 ? at::max_pool2d_with_indices : at::max_pool3d_with_indices;
  const Pooling of = pooling_of(x, dims, kernel, stride, padding, dilation, ceil_mode);
  return max_tiles_with(
      dims == 2 ? "aten::max_pool2d_with_indices" : "aten::max_pool3d_with_indices", x, of,
      [&](const Tensor& part, const Block& block) {
        return pool(part, of.kernel(), of.stride(), block.padding, of.dilation(), ceil_mode);
      });
}

template <int dims>
Tensor max_pool_backward_tiles(const Tensor& gradient, const Tensor& x, at::IntArrayRef kernel,
                               at::IntArrayRef stride, at::IntArrayRef padding,
                               at::IntArrayRef dilation, bool ceil_mode, const Tensor& indices) {
  const auto pool =
      dims == 2 ? at::max_pool2d_with_indices_backward : at::max_pool3d_with_indices_backward;
  const Pooling of = pooling_of(x, dims, kernel, stride, padding, dilation, ceil_mode);
  return max_gradient_with(
      dims == 2 ? "aten::max_pool2d_with_indices_backward"
                : "aten::max_pool3d_with_indices_backward",
      gradient, x, indices, of,
      [&](const Tensor& own, const Tensor& like, const Block& block, const Tensor& places) {
        return pool(own, like, of.kernel(), of.stride(), block.padding, of.dilation(), ceil_mode,
                    places);
      });
}

template <int dims>
Pair adaptive_max_pool_tiles(const Tensor& x, at::IntArrayRef output) {
  const auto pool = dims == 2 ? at::adaptive_max_pool2d : at::adaptive_max_pool3d;
  const Pooling of = adaptive_pooling_of(x, for_each_dim(output, dims));
  return max_tiles_with(
      dims == 2 ? "aten::adaptive_max_pool2d" : "aten::adaptive_max_pool3d", x, of,
      [&](const Tensor& part, const Block& block) { return pool(part, outputs_of(of, block)); });
}

template <int dims>
Tensor adaptive_max_pool_backward_tiles(const Tensor& gradient, const Tensor& x,
                                        const Tensor& indices) {
  const auto pool = dims == 2 ? at::adaptive_max_pool2d_backward : at::adaptive_max_pool3d_backward;
  return max_gradient_with(
      dims == 2 ? "aten::adaptive_max_pool2d_backward" : "aten::adaptive_max_pool3d_backward",
      gradient, x, indices, adaptive_pooling_of(x, gradient.sizes().slice(gradient.dim() - dims)),
      [&](const Tensor& own, const Tensor& like, const Block&, const Tensor& places) {
        return pool(own, like, places);
      });
}

/// Of one dimension, maxima alone: where no gradient is wanted LibTorch reads the memory of its
/// argument above all rules, so this stands in its place for all tensors.
Tensor max_pool1d_of_any(const Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride,
                         at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  if (!is_sharded(x))
    return at::native::max_pool1d(x, kernel, stride, padding, dilation, ceil_mode);
  return std::get<0>(at::max_pool1d_with_indices(x, kernel, stride, padding, dilation, ceil_mode));
}

}  // namespace

void register_max_pooling(torch::Library& library) {
  static torch::Library above(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCPU, __FILE__,
                              __LINE__);
  above.impl("max_pool1d", max_pool1d_of_any);
  library.impl("max_pool1d", max_pool1d_of_any);
  library.impl("max_pool2d_with_indices", max_pool_tiles<2>);
  library.impl("max_pool3d_with_indices", max_pool_tiles<3>);
  library.impl("max_pool2d_with_indices_backward", max_pool_backward_tiles<2>);
  library.impl("max_pool3d_with_indices_backward", max_pool_backward_tiles<3>);
  library.impl("adaptive_max_pool2d", adaptive_max_pool_tiles<2>);
  library.impl("adaptive_max_pool3d", adaptive_max_pool_tiles<3>);
  library.impl("adaptive_max_pool2d_backward", adaptive_max_pool_backward_tiles<2>);
  library.impl("adaptive_max_pool3d_backward", adaptive_max_pool_backward_tiles<3>);
}

}  // namespace cohort::spmd
