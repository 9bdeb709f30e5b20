// Pooling of averages. What a sum is divided by depends on where a window lies; tasks that have a
// part of the windows compute sums, and divide.

#include <ATen/ATen.h>

#include "cohort/spmd/rules/pooling.h"

namespace cohort::spmd {
namespace {

bool is_whole(const Pooling& pooling, const Block& block) { return last_cut(pooling, block) < 0; }

using Count = c10::optional<std::int64_t>;

struct Averaging {
  Pooling of;
  bool counts_padding;
  Count divisor;

  /// What the sums of a block are divided by: of the sizes of its windows' dimensions.
  Tensor divisors(const Block& block, const Tensor& like) const {
    Tensor product = at::ones({}, like.options());
    for (int d = 0; d < of.dims() && !divisor; ++d) {
      const std::int64_t begin = block.output.begin[of.lead + d];
      const std::int64_t end = block.output.end[of.lead + d];
      std::vector<double> counts;
      for (std::int64_t i = begin; i < end; ++i) {
        const Window& window = of.windows[d];
        const std::int64_t from = i * window.stride - window.padding;
        const std::int64_t to = std::min(from + window.kernel, of.in[d] + window.padding);
        const std::int64_t inside = std::min(to, of.in[d]) - std::max<std::int64_t>(from, 0);
        counts.push_back(static_cast<double>(counts_padding ? to - from : inside));
      }
      const Tensor own = at::tensor(counts, like.options());
      product = at::mul(product.unsqueeze(-1), own);
    }
    return divisor ? at::full({}, static_cast<double>(*divisor), like.options()) : product;
  }
};

template <int dims>
Tensor avg_pool_tiles(const Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride,
                      at::IntArrayRef padding, bool ceil_mode, bool counts_padding, Count divisor) {
  const auto pool = dims == 2 ? at::avg_pool2d : at::avg_pool3d;
  const Averaging average{pooling_of(x, dims, kernel, stride, padding, {1}, ceil_mode),
                          counts_padding, divisor};
  const Pooling& of = average.of;
  const auto part_of = [&](const Block& block, const Tensor& part) -> std::vector<Tensor> {
    const bool divides = is_whole(of, block);
    Tensor sums = pool(part, of.kernel(), of.stride(), block.padding, ceil_mode,
                       !divides || counts_padding, divides ? divisor : Count(1));
    return {divides ? sums : sums.div_(average.divisors(block, sums))};
  };
  return pool_tiles(dims == 2 ? "aten::avg_pool2d" : "aten::avg_pool3d", x, of, 0, 1, part_of)[0];
}

template <int dims>
Tensor avg_pool_backward_tiles(const Tensor& gradient, const Tensor& x, at::IntArrayRef kernel,
                               at::IntArrayRef stride, at::IntArrayRef padding, bool ceil_mode,
                               bool counts_padding, Count divisor) {
  const auto pool = dims == 2 ? at::avg_pool2d_backward : at::avg_pool3d_backward;
  const Averaging average{pooling_of(x, dims, kernel, stride, padding, {1}, ceil_mode),
                          counts_padding, divisor};
  const Pooling& of = average.of;
  const auto part_of = [&](const Block& block, const Tensor& own, const Tensor& like) {
    const bool divides = is_whole(of, block);
    return pool(divides ? own : at::div(own, average.divisors(block, own)), like, of.kernel(),
                of.stride(), block.padding, ceil_mode, !divides || counts_padding,
                divides ? divisor : Count(1));
  };
  return gradient_tiles(dims == 2 ? "aten::avg_pool2d_backward" : "aten::avg_pool3d_backward",
                        gradient, x, Tensor(), of, part_of);
}

template <int dims>
Tensor adaptive_avg_pool_tiles(const Tensor& x, at::IntArrayRef output) {
  const auto pool = dims == 2 ? at::_adaptive_avg_pool2d : at::_adaptive_avg_pool3d;
  const Pooling of = adaptive_pooling_of(x, for_each_dim(output, dims));
  const auto part_of = [&](const Block& block, const Tensor& part) -> std::vector<Tensor> {
    return {pool(part, outputs_of(of, block))};
  };
  return pool_tiles(dims == 2 ? "aten::_adaptive_avg_pool2d" : "aten::_adaptive_avg_pool3d", x, of,
                    0, 1, part_of)[0];
}

template <int dims>
Tensor adaptive_avg_pool_backward_tiles(const Tensor& gradient, const Tensor& x) {
  const auto pool =
      dims == 2 ? at::_adaptive_avg_pool2d_backward : at::_adaptive_avg_pool3d_backward;
  return gradient_tiles(
      dims == 2 ? "aten::_adaptive_avg_pool2d_backward" : "aten::_adaptive_avg_pool3d_backward",
      gradient, x, Tensor(), adaptive_pooling_of(x, gradient.sizes().slice(gradient.dim() - dims)),
      [&](const Block&, const Tensor& own, const Tensor& like) { return pool(own, like); });
}

}  // namespace

void register_average_pooling(torch::Library& library) {
  library.impl("avg_pool2d", avg_pool_tiles<2>);
  library.impl("avg_pool3d", avg_pool_tiles<3>);
  library.impl("avg_pool2d_backward", avg_pool_backward_tiles<2>);
  library.impl("avg_pool3d_backward", avg_pool_backward_tiles<3>);
  library.impl("_adaptive_avg_pool2d", adaptive_avg_pool_tiles<2>);
  library.impl("_adaptive_avg_pool3d", adaptive_avg_pool_tiles<3>);
  library.impl("_adaptive_avg_pool2d_backward", adaptive_avg_pool_backward_tiles<2>);
  library.impl("_adaptive_avg_pool3d_backward", adaptive_avg_pool_backward_tiles<3>);
}

}  // namespace cohort::spmd
