// Pooling: each task has a part of the batch, of the channels and of each dimension of the result,
// and reads what its windows reach. The places of maxima are those in the whole tensor.

#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>

#include <limits>
#include <numeric>

#include "cohort/spmd/rules/windows.h"

namespace cohort::spmd {
namespace {

/// The sizes and options of a call, with `dims` dimensions that windows move along; the others come
/// first.
struct Pooling {
  int lead;
  Dims in, out;
  std::vector<Window> windows;  // empty if they adapt to the sizes
  bool ceil_mode = false;

  int dims() const { return static_cast<int>(out.size()); }
  Dims kernel() const { return each(&Window::kernel); }
  Dims stride() const { return each(&Window::stride); }
  Dims dilation() const { return each(&Window::dilation); }

  /// What the outputs [begin, end) of one dimension read.
  Reach reach(int d, std::int64_t begin, std::int64_t end) const {
    if (!windows.empty()) return reach_of(windows[d], in[d], out[d], begin, end);
    return {begin * in[d] / out[d], (end * in[d] + out[d] - 1) / out[d]};
  }
  /// Whether LibTorch, given only what these outputs read, finds the same windows.
  bool fits(int d, std::int64_t begin, std::int64_t end) const {
    return !windows.empty() || end - begin == 1 ||
           (begin * in[d] % out[d] == 0 && end * in[d] % out[d] == 0);
  }

 private:
  Dims each(std::int64_t Window::*option) const {
    Dims values;
    for (const Window& window : windows) values.push_back(window.*option);
    return values;
  }
};

Pooling pooling_of(const Tensor& x, int dims, at::IntArrayRef kernel, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  const Dims k = for_each_dim(kernel, dims), p = for_each_dim(padding, dims);
  const Dims s = stride.empty() ? k : for_each_dim(stride, dims), l = for_each_dim(dilation, dims);
  Pooling pooling{static_cast<int>(x.dim()) - dims, {}, {}, {}, ceil_mode};
  for (int d = 0; d < dims; ++d) {
    const Window window{k[d], s[d], p[d], l[d]};
    const std::int64_t in = x.size(pooling.lead + d);
    const std::int64_t room = in + 2 * p[d] - window.extent();
    TORCH_CHECK(room >= 0 && 2 * p[d] <= k[d], "pooling: windows of sizes ", kernel,
                " with padding ", padding, " don't fit into an input of sizes ", x.sizes());
    std::int64_t out = (room + (ceil_mode ? s[d] - 1 : 0)) / s[d] + 1;
    if (ceil_mode && (out - 1) * s[d] >= in + p[d]) --out;  // it would begin in the padding
    pooling.in.push_back(in);
    pooling.out.push_back(out);
    pooling.windows.push_back(window);
  }
  return pooling;
}

Pooling adaptive_pooling_of(const Tensor& x, at::IntArrayRef output) {
  const int lead = static_cast<int>(x.dim()) - static_cast<int>(output.size());
  return {
      lead, {x.sizes().begin() + lead, x.sizes().end()}, {output.begin(), output.end()}, {}, false};
}

/// What one call of LibTorch computes.
struct Block {
  Region input, output;
  Dims padding;
};

/// A task as blocks: one, unless windows that adapt differ from those of the part alone.
std::vector<Block> blocks_of(const Pooling& pooling, const Region& task) {
  Region rest = task;
  std::vector<Block> blocks;
  for (int d = 0; d < pooling.dims(); ++d) {
    const int dim = pooling.lead + d;
    if (pooling.fits(d, task.begin[dim], task.end[dim])) continue;
    for (std::int64_t i = task.begin[dim]; i < task.end[dim]; ++i) {
      rest.begin[dim] = i;
      rest.end[dim] = i + 1;
      for (Block& block : blocks_of(pooling, rest)) blocks.push_back(std::move(block));
    }
    return blocks;
  }
  Block block{task, task, {}};
  for (int d = 0; d < pooling.dims(); ++d) {
    const int dim = pooling.lead + d;
    const Reach reach = pooling.reach(d, task.begin[dim], task.end[dim]);
    block.input.begin[dim] = reach.begin;
    block.input.end[dim] = reach.end;
    block.padding.push_back(reach.padding);
  }
  return {block};
}

/// The number of outputs that a block has along each dimension of the windows.
Dims outputs_of(const Pooling& pooling, const Block& block) {
  const Dims sizes = block.output.sizes();
  return {sizes.begin() + pooling.lead, sizes.end()};
}

/// The tasks, cut as the tensors are: the input, or what has the sizes of the result.
Layout tasks_of(Operation& operation, const Pooling& pooling, const Mesh& mesh,
                std::span<const Tensor> tensors) {
  Dims sizes(tensors[0].sizes().begin(), tensors[0].sizes().begin() + pooling.lead);
  sizes.append(pooling.out.begin(), pooling.out.end());
  TaskGrid grid(mesh, sizes);
  std::vector<int> dims(sizes.size());
  std::iota(dims.begin(), dims.end(), 0);
  for (const Tensor& tensor : tensors) {
    if (!is_sharded(tensor)) continue;
    for (const int d : dims) grid.cut_like(d, layout_of(tensor).cuts(d));
  }
  if (is_any_cut(tensors)) {
    grid.cut_longest(dims);
    if (grid.tasks() == 1) {
      operation.gathers("no dimension that could be split is left", describe(tensors));
    }
  }
  return grid.with_devices(tensors, dims);
}

/// The part of a task's result that a block is.
Tensor part_at(const Tensor& result, const Region& task, Region block) {
  for (int d = 0; d < task.dim(); ++d) {
    block.begin[d] -= task.begin[d];
    block.end[d] -= task.begin[d];
  }
  return fetch(result, block);
}

using Forward = FunctionRef<std::vector<Tensor>(const Block&, const Tensor& part)>;

/// The `count` results of pooling; `pool` computes those of a block.
std::vector<Tensor> pool_tiles(const char* name, const Tensor& x, const Pooling& pooling,
                               double pad, std::size_t count, Forward pool) {
  Operation operation(name);
  const MeshPtr& mesh = impl(x)->mesh();
  const auto tasks =
      std::make_shared<Layout>(tasks_of(operation, pooling, *mesh, std::span(&x, 1)));
  std::vector<std::vector<Tensor>> tiles(count, std::vector<Tensor>(tasks->tiles()));
  mesh->run(tasks->devices(), [&](int i) {
    const Region task = tasks->region(i);
    const std::vector<Block> blocks = blocks_of(pooling, task);
    for (const Block& block : blocks) {
      const auto results = pool(block, fetch(x, block.input, pad));
      for (std::size_t r = 0; r < count; ++r) {
        Tensor& tile = tiles[r][i];
        if (blocks.size() == 1) {
          tile = results[r];
          continue;
        }
        if (!tile.defined()) tile = at::empty(task.sizes(), results[r].options());
        part_at(tile, task, block.output).copy_(results[r]);
      }
    }
  });
  std::vector<Tensor> results;
  for (auto& each : tiles) results.push_back(wrap(mesh, tasks, std::move(each)));
  return results;
}

using Backward = FunctionRef<Tensor(const Block&, const Tensor& gradient, const Tensor& like)>;

/// The gradient of the input; `pool` computes that of what a block reads, a tensor that is `like`
/// that. `indices` may be undefined.
Tensor gradient_tiles(const char* name, const Tensor& gradient, const Tensor& x,
                      const Tensor& indices, const Pooling& pooling, Backward pool) {
  Operation operation(name);
  const std::vector<Tensor> tensors{x, gradient, indices};
  const MeshPtr mesh = common_mesh(name, tensors);
  const Layout tasks = tasks_of(operation, pooling, *mesh, tensors);
  std::vector<std::vector<Piece>> pieces(tasks.tiles());
  mesh->run(tasks.devices(), [&](int i) {
    for (const Block& block : blocks_of(pooling, tasks.region(i))) {
      const Tensor own = fetch(gradient, block.output).contiguous();
      const Tensor like = at::empty(block.input.sizes(), own.options());
      pieces[i].push_back({block.input, pool(block, own, like)});
    }
  });
  std::vector<Piece> all;
  for (auto& each : pieces) all.insert(all.end(), each.begin(), each.end());
  return gradient_of(x, mesh, tasks, std::move(all));
}

// Maxima. Their places are numbers of elements, of one channel: of a block at first.

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

/// The last dimension of the windows of which a block reads only a part; -1 if it reads all.
int last_cut(const Pooling& pooling, const Block& block) {
  for (int d = pooling.dims() - 1; d >= 0; --d) {
    const int dim = pooling.lead + d;
    if (block.input.begin[dim] != 0 || block.input.end[dim] != pooling.in[d]) return d;
  }
  return -1;
}
bool is_whole(const Pooling& pooling, const Block& block) { return last_cut(pooling, block) < 0; }

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
constexpr double kSmallest = -std::numeric_limits<double>::infinity();

template <class F>
Pair max_tiles_with(const char* name, const Tensor& x, const Pooling& pooling, F&& pool) {
  const auto results =
      pool_tiles(name, x, pooling, kSmallest, 2, [&](const Block& block, const Tensor& part) {
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

// Averages. What a sum is divided by depends on where a window lies; tasks that have a part of the
// windows compute sums, and divide.

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

void register_pooling(torch::Library& library) {
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
