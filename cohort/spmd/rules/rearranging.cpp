// Tensors enlarged, repeated and turned: elements of one dimension are taken in another order,
// several times, or not at all. Each device makes its tile of the result out of the parts that it
// needs.

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/spmd/dispatch.h"
#include "cohort/spmd/rules/relayout.h"

namespace cohort::spmd {
namespace {

/// A stretch of a dimension: `count` elements from `first` on, forwards (1), backwards (-1), or the
/// same one again (0).
struct Run {
  std::int64_t first, count, step;

  std::int64_t begin() const { return step < 0 ? first - count + 1 : first; }
  std::int64_t end() const { return step > 0 ? first + count : first + 1; }
};

/// For each index of the result, that of the tensor.
using Source = FunctionRef<std::int64_t(std::int64_t)>;

std::vector<Run> runs_of(const Source& source, std::int64_t begin, std::int64_t end) {
  std::vector<Run> runs;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t at = source(i);
    if (!runs.empty()) {
      Run& last = runs.back();
      if (last.count == 1 && std::abs(at - last.first) <= 1) last.step = at - last.first;
      if (at == last.first + last.count * last.step) {
        ++last.count;
        continue;
      }
    }
    runs.push_back({at, 1, 1});
  }
  return runs;
}

/// Element i of the result, along one dimension, is element source(i).
Tensor taken_along(const Tensor& x, std::int64_t d, std::int64_t size, const Source& source) {
  Dims sizes = dims_of(x.sizes());
  sizes[d] = size;
  return laid_out_like(x, sizes, [&](const Region& region) {
    std::vector<Tensor> pieces;
    for (const Run& run : runs_of(source, region.begin[d], region.end[d])) {
      Region part = region;
      part.begin[d] = run.begin();
      part.end[d] = run.end();
      Tensor piece = fetch(x, part);
      if (run.step < 0) piece = piece.flip(d);
      if (run.step == 0) {
        Dims wide = part.sizes();
        wide[d] = run.count;
        piece = piece.expand(wide);
      }
      pieces.push_back(piece);
    }
    return pieces.empty() ? at::empty(region.sizes(), x.options()) : at::cat(pieces, d);
  });
}

/// The adjoint: element i of the gradient is added to element source(i) of the result.
Tensor given_back_along(const Tensor& gradient, std::int64_t d, std::int64_t size,
                        const Source& source) {
  const ShardedTensorImpl& own = *impl(gradient);
  const Layout& layout = *own.layout();
  Dims sizes = dims_of(gradient.sizes());
  sizes[d] = size;
  std::vector<std::vector<Piece>> pieces_of(layout.tiles());
  own.mesh()->run(layout.devices(), [&](int i) {
    Region region = layout.region(i);
    std::int64_t at = 0;
    for (const Run& run : runs_of(source, region.begin[d], region.end[d])) {
      Tensor values = own.tiles()[i].narrow(d, at, run.count);
      at += run.count;
      if (run.step < 0) values = values.flip(d);
      if (run.step == 0) values = values.sum(d, true);
      Region part = region;
      part.begin[d] = run.begin();
      part.end[d] = run.end();
      pieces_of[i].push_back({part, values});
    }
  });
  std::vector<Piece> pieces;
  for (auto& each : pieces_of) pieces.insert(pieces.end(), each.begin(), each.end());
  return sum_of_pieces(own.mesh(), layout_like(layout, sizes), pieces);
}

// Borders.

/// The index that stands for one beyond the border.
using Border = std::int64_t (*)(std::int64_t i, std::int64_t size);

std::int64_t reflected(std::int64_t i, std::int64_t size) {
  return size - 1 - std::abs(size - 1 - std::abs(i));
}
std::int64_t replicated(std::int64_t i, std::int64_t size) {
  return std::clamp<std::int64_t>(i, 0, size - 1);
}

/// `padding` is (before, after) of the last dimension, of the one before it, and so on.
template <Border border>
void pad_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operation operation(op.schema().name().c_str());
  const BelowAutograd below;
  const auto arguments = BoxedCall(op, stack).take();
  Tensor x = arguments[0].toTensor();
  const auto padding = arguments[1].toIntVector();
  for (std::size_t i = 0; i < padding.size() / 2; ++i) {
    const std::int64_t d = x.dim() - 1 - static_cast<std::int64_t>(i), size = x.size(d);
    const std::int64_t before = padding[2 * i], after = padding[2 * i + 1];
    if (border == reflected && (before >= size || after >= size)) {
      throw InvalidArgument(op.schema().name(), cat("a padding of ", before, " and ", after,
                                                    " needs a longer dimension than ", size));
    }
    if (size + before + after <= 0) {
      throw InvalidArgument(op.schema().name(), "the result has no elements");
    }
    x = taken_along(x, d, size + before + after,
                    [&](std::int64_t at) { return border(at - before, size); });
  }
  stack->emplace_back(x);
}

template <Border border>
void pad_backward_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operation operation(op.schema().name().c_str());
  const BelowAutograd below;
  const auto arguments = BoxedCall(op, stack).take();
  Tensor gradient = arguments[0].toTensor();
  const Tensor& x = arguments[1].toTensor();
  const auto padding = arguments[2].toIntVector();
  if (!is_sharded(gradient)) {
    gradient = reshard(gradient, impl(x)->mesh(), layout_like(layout_of(x), gradient.sizes()));
  }
  for (std::size_t i = 0; i < padding.size() / 2; ++i) {
    const std::int64_t d = x.dim() - 1 - static_cast<std::int64_t>(i), size = x.size(d);
    gradient = given_back_along(gradient, d, size,
                                [&](std::int64_t at) { return border(at - padding[2 * i], size); });
  }
  stack->emplace_back(gradient);
}

Tensor constant_pad_tiles(const Tensor& x, at::IntArrayRef padding, const at::Scalar& value) {
  const Operation operation("aten::constant_pad_nd");
  Dims sizes = dims_of(x.sizes()), before(x.dim(), 0);
  for (std::size_t i = 0; i < padding.size() / 2; ++i) {
    const std::size_t d = sizes.size() - 1 - i;
    before[d] = padding[2 * i];
    sizes[d] += padding[2 * i] + padding[2 * i + 1];
    if (sizes[d] >= 0) continue;
    throw InvalidArgument("constant_pad_nd", cat("dimension ", d, " would have size ", sizes[d]));
  }
  return laid_out_like(x, sizes, [&](Region region) {
    for (int d = 0; d < region.dim(); ++d) {
      region.begin[d] -= before[d];
      region.end[d] -= before[d];
    }
    return fetch_copy(x, region, value.toDouble());
  });
}

// Repeating and turning.

Tensor repeat_tiles(const Tensor& x, at::IntArrayRef repeats) {
  const Operation operation("aten::repeat");
  const BelowAutograd below;
  if (static_cast<std::int64_t>(repeats.size()) < x.dim()) {
    throw ValueError("repeat", cat("a number is needed for each of the ", x.dim(),
                                   " dimensions, got ", repeats.size()));
  }
  Tensor result = x;
  while (result.dim() < static_cast<std::int64_t>(repeats.size())) result = result.unsqueeze(0);
  bool is_copy = false;
  for (std::size_t d = 0; d < repeats.size(); ++d) {
    const std::int64_t size = result.size(static_cast<std::int64_t>(d));
    if (repeats[d] == 1) continue;
    is_copy = true;
    result = taken_along(result, static_cast<std::int64_t>(d), size * repeats[d],
                         [&](std::int64_t i) { return i % size; });
  }
  return is_copy ? result : result.clone();
}

Tensor flip_tiles(const Tensor& x, at::IntArrayRef dims) {
  const Operation operation("aten::flip");
  const BelowAutograd below;
  Tensor result = x;
  for (const std::int64_t dim : dims) {
    const std::int64_t d = at::maybe_wrap_dim(dim, x.dim());
    if (x.dim() == 0) continue;
    result = taken_along(result, d, x.size(d), [&](std::int64_t i) { return x.size(d) - 1 - i; });
  }
  return dims.empty() || x.dim() == 0 ? x.clone() : result;
}

Tensor roll_tiles(const Tensor& x, at::IntArrayRef shifts, at::IntArrayRef dims) {
  const Operation operation("aten::roll");
  const BelowAutograd below;
  if (dims.empty()) {
    return at::_unsafe_view(roll_tiles(at::_unsafe_view(x.contiguous(), {-1}), shifts, 0),
                            x.sizes());
  }
  if (shifts.size() != dims.size()) {
    throw ValueError("roll", cat("as many shifts as dimensions are needed, got ", shifts.size(),
                                 " and ", dims.size()));
  }
  Tensor result = x;
  for (std::size_t k = 0; k < dims.size(); ++k) {
    const std::int64_t d = at::maybe_wrap_dim(dims[k], x.dim()), size = x.size(d);
    result = taken_along(result, d, size,
                         [&](std::int64_t i) { return ((i - shifts[k]) % size + size) % size; });
  }
  return result;
}

/// Turned by k quarters, from the first of two dimensions towards the second.
Tensor rot90_tiles(const Tensor& x, std::int64_t k, at::IntArrayRef dims) {
  const Operation operation("aten::rot90");
  const BelowAutograd below;
  if (dims.size() != 2) {
    throw ValueError("rot90", cat("two dimensions are needed, got ", dims.size()));
  }
  const std::int64_t a = at::maybe_wrap_dim(dims[0], x.dim());
  const std::int64_t b = at::maybe_wrap_dim(dims[1], x.dim());
  if (a == b) throw ValueError("rot90", cat("the dimensions must differ, got ", dims));
  switch ((k % 4 + 4) % 4) {
    case 1:
      return flip_tiles(x, b).transpose(a, b).contiguous();
    case 2:
      return flip_tiles(x, {a, b});
    case 3:
      return flip_tiles(x, a).transpose(a, b).contiguous();
    default:
      return x.clone();
  }
}

Tensor narrow_copy_tiles(const Tensor& x, std::int64_t dim, std::int64_t start,
                         std::int64_t length) {
  const Operation operation("aten::narrow_copy");
  const BelowAutograd below;
  return x.narrow(dim, start, length).clone();
}

}  // namespace

void register_rearranging(torch::Library& library) {
  for (const std::string dims : {"1d", "2d", "3d"}) {
    const auto name = [&](const char* kind, const char* more) { return kind + dims + more; };
    library.impl(name("reflection_pad", "").c_str(), boxed<&pad_boxed<reflected>>());
    library.impl(name("replication_pad", "").c_str(), boxed<&pad_boxed<replicated>>());
    library.impl(name("reflection_pad", "_backward").c_str(),
                 boxed<&pad_backward_boxed<reflected>>());
    library.impl(name("replication_pad", "_backward").c_str(),
                 boxed<&pad_backward_boxed<replicated>>());
  }
  library.impl("constant_pad_nd", constant_pad_tiles);
  library.impl("repeat", repeat_tiles);
  library.impl("flip", flip_tiles);
  library.impl("roll", roll_tiles);
  library.impl("rot90", rot90_tiles);
  library.impl("narrow_copy", narrow_copy_tiles);
}

}  // namespace cohort::spmd
