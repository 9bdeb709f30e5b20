// Pooling: each task has a part of the batch, of the channels and of each dimension of the result,
// and reads what its windows reach.

#include "cohort/spmd/rules/pooling.h"

#include <ATen/ATen.h>

#include <numeric>

#include "cohort/base/error.h"

namespace cohort::spmd {

Pooling pooling_of(const Tensor& x, int dims, at::IntArrayRef kernel, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  const Dims k = for_each_dim(kernel, dims), p = for_each_dim(padding, dims);
  const Dims s = stride.empty() ? k : for_each_dim(stride, dims), l = for_each_dim(dilation, dims);
  Pooling pooling{static_cast<int>(x.dim()) - dims, {}, {}, {}, ceil_mode};
  for (int d = 0; d < dims; ++d) {
    const Window window{k[d], s[d], p[d], l[d]};
    const std::int64_t in = x.size(pooling.lead + d);
    const std::int64_t room = in + 2 * p[d] - window.extent();
    if (room < 0 || 2 * p[d] > k[d]) {
      throw InvalidArgument("pooling", cat("windows of sizes ", kernel, " with padding ", padding,
                                           " don't fit into an input of sizes ", x.sizes()));
    }
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

Dims outputs_of(const Pooling& pooling, const Block& block) {
  const Dims sizes = block.output.sizes();
  return {sizes.begin() + pooling.lead, sizes.end()};
}

int last_cut(const Pooling& pooling, const Block& block) {
  for (int d = pooling.dims() - 1; d >= 0; --d) {
    const int dim = pooling.lead + d;
    if (block.input.begin[dim] != 0 || block.input.end[dim] != pooling.in[d]) return d;
  }
  return -1;
}

namespace {

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

}  // namespace

std::vector<Tensor> pool_tiles(const char* name, const Tensor& x, const Pooling& pooling,
                               double pad, std::size_t count, PoolForward pool) {
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

Tensor gradient_tiles(const char* name, const Tensor& gradient, const Tensor& x,
                      const Tensor& indices, const Pooling& pooling, PoolBackward pool) {
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

}  // namespace cohort::spmd
