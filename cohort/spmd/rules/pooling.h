#pragma once

#include <vector>

#include "cohort/spmd/rules/windows.h"

/// What rules for pooling are made of.
namespace cohort::spmd {

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
                   at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode);
Pooling adaptive_pooling_of(const Tensor& x, at::IntArrayRef output);

/// What one call of LibTorch computes.
struct Block {
  Region input, output;
  Dims padding;
};

/// The number of outputs that a block has along each dimension of the windows.
Dims outputs_of(const Pooling& pooling, const Block& block);

/// The last dimension of the windows of which a block reads only a part; -1 if it reads all.
int last_cut(const Pooling& pooling, const Block& block);

using PoolForward = FunctionRef<std::vector<Tensor>(const Block&, const Tensor& part)>;

/// The `count` results of pooling; `pool` computes those of a block.
std::vector<Tensor> pool_tiles(const char* name, const Tensor& x, const Pooling& pooling,
                               double pad, std::size_t count, PoolForward pool);

using PoolBackward = FunctionRef<Tensor(const Block&, const Tensor& gradient, const Tensor& like)>;

/// The gradient of the input; `pool` computes that of what a block reads, a tensor that is `like`
/// that. `indices` may be undefined.
Tensor gradient_tiles(const char* name, const Tensor& gradient, const Tensor& x,
                      const Tensor& indices, const Pooling& pooling, PoolBackward pool);

}  // namespace cohort::spmd
