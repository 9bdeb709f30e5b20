// Tensors put together, enlarged, turned and put in order. Each device makes its tile of the result
// out of the parts that it needs; what goes along one dimension is summed up, or sorted, with that
// dimension whole or in the order of its parts.

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>

#include "cohort/spmd/partition.h"
#include "cohort/spmd/rules/relayout.h"

namespace cohort::spmd {
namespace {

using Task = Partition::Task;

/// A tensor of these sizes, laid out like another: tile(region) is the part of it.
template <class F>
Tensor laid_out_like(const Tensor& like, at::IntArrayRef sizes, F&& tile) {
  const MeshPtr& mesh = impl(like)->mesh();
  const LayoutPtr layout = layout_like(layout_of(like), sizes);
  return wrap(mesh, layout,
              make_tiles(*mesh, *layout, [&](int i) { return tile(layout->region(i)); }));
}

// One tensor after the other.

/// Without the empty tensors of one dimension, which LibTorch lets go with any.
std::vector<Tensor> those_to_join(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> kept;
  for (const Tensor& each : tensors) {
    if (each.dim() != 1 || each.size(0) != 0) kept.push_back(each);
  }
  return kept;
}

void check_fit(const Tensor& a, const Tensor& b, std::int64_t dim) {
  bool fits = a.dim() == b.dim();
  for (std::int64_t d = 0; fits && d < a.dim(); ++d) fits = d == dim || a.size(d) == b.size(d);
  TORCH_CHECK(fits, "cat: sizes must match except in dimension ", dim, ": got ", a.sizes(), " and ",
              b.sizes());
}

Tensor joined(const char* name, const std::vector<Tensor>& all, std::int64_t dim) {
  const Operation operation(name);
  const BelowAutograd below;
  const std::vector<Tensor> tensors = those_to_join(all);
  if (!common_mesh(name, tensors)) {
    return tensors.empty() ? gather(all[0]).clone() : at::cat(tensors, dim);
  }
  const Tensor& leader = leader_of(tensors);
  const std::int64_t d = at::maybe_wrap_dim(dim, leader.dim());
  Dims sizes = dims_of(leader.sizes());
  sizes[d] = 0;
  at::ScalarType type = leader.scalar_type();
  for (const Tensor& each : tensors) {
    check_fit(leader, each, d);
    sizes[d] += each.size(d);
    type = c10::promoteTypes(type, each.scalar_type());
  }
  return laid_out_like(leader, sizes, [&](const Region& region) {
    std::vector<Tensor> pieces;
    std::int64_t before = 0;
    for (const Tensor& each : tensors) {
      Region part = region;
      part.begin[d] = std::max<std::int64_t>(region.begin[d] - before, 0);
      part.end[d] = std::min(region.end[d] - before, each.size(d));
      before += each.size(d);
      if (part.begin[d] < part.end[d]) pieces.push_back(fetch(each, part).to(type));
    }
    return pieces.empty() ? at::empty(region.sizes(), at::TensorOptions(type)) : at::cat(pieces, d);
  });
}

void cat_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const auto arguments = BoxedCall(op, stack).take();
  stack->emplace_back(joined("aten::cat", arguments[0].toTensorVector(), arguments[1].toInt()));
}

void stack_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operation operation("aten::stack");
  const BelowAutograd below;
  const auto arguments = BoxedCall(op, stack).take();
  std::vector<Tensor> tensors = arguments[0].toTensorVector();
  const std::int64_t dim = at::maybe_wrap_dim(arguments[1].toInt(), tensors[0].dim() + 1);
  for (Tensor& each : tensors) {
    TORCH_CHECK(each.sizes() == arguments[0].toTensorVector()[0].sizes(),
                "stack: the tensors must have one size, got ", each.sizes());
    each = each.unsqueeze(dim);
  }
  stack->emplace_back(joined("aten::stack", tensors, dim));
}

// Elements of one dimension taken in another order, several times, or not at all.

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
    TORCH_CHECK(border != reflected || (before < size && after < size), op.schema().name(),
                ": a padding of ", before, " and ", after, " needs a longer dimension than ", size);
    TORCH_CHECK(size + before + after > 0, op.schema().name(), ": the result has no elements");
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
    TORCH_CHECK(sizes[d] >= 0, "constant_pad_nd: dimension ", d, " would have size ", sizes[d]);
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
  TORCH_CHECK(static_cast<std::int64_t>(repeats.size()) >= x.dim(),
              "repeat: a number is needed for each of the ", x.dim(), " dimensions");
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
  TORCH_CHECK(shifts.size() == dims.size(), "roll: as many shifts as dimensions are needed, got ",
              shifts.size(), " and ", dims.size());
  Tensor result = x;
  for (std::size_t k = 0; k < dims.size(); ++k) {
    const std::int64_t d = at::maybe_wrap_dim(dims[k], x.dim()), size = x.size(d);
    result = taken_along(result, d, size,
                         [&](std::int64_t i) { return ((i - shifts[k]) % size + size) % size; });
  }
  return result;
}

Tensor narrow_copy_tiles(const Tensor& x, std::int64_t dim, std::int64_t start,
                         std::int64_t length) {
  const Operation operation("aten::narrow_copy");
  const BelowAutograd below;
  return x.narrow(dim, start, length).clone();
}

// Triangles: a tile has its own diagonal.

using Triangle = Tensor (*)(const Tensor&, std::int64_t diagonal);

Tensor triangle_of(const char* name, const Tensor& x, std::int64_t diagonal, Triangle triangle) {
  const std::string letters = letters_of(x.dim());
  TORCH_CHECK(x.dim() >= 2, name, ": at least two dimensions are needed, got ", x.sizes());
  const char row = letters[x.dim() - 2], column = letters[x.dim() - 1];
  Partition parts(name);
  parts.take(x, letters);
  return parts.give(letters, [&](const Task& t) {
    return triangle(t[0], diagonal + t.begin(row) - t.begin(column));
  });
}
Tensor tril_tiles(const Tensor& x, std::int64_t diagonal) {
  return triangle_of("aten::tril", x, diagonal, at::tril);
}
Tensor triu_tiles(const Tensor& x, std::int64_t diagonal) {
  return triangle_of("aten::triu", x, diagonal, at::triu);
}
Tensor& tril_in_place(Tensor& x, std::int64_t diagonal) {
  write_to(x, tril_tiles(x, diagonal));
  return x;
}
Tensor& triu_in_place(Tensor& x, std::int64_t diagonal) {
  write_to(x, triu_tiles(x, diagonal));
  return x;
}

// Running sums: each part its own, then what the parts before it end with is added.

using OptionalType = c10::optional<at::ScalarType>;
using Join = Tensor (*)(const Tensor&, const Tensor&);

template <class Scan>
Tensor running(const char* name, const Tensor& x, std::int64_t dim, Scan&& scan, Join join) {
  const Operation operation(name);
  if (!is_split_along(x, dim)) {
    Partition parts(name);
    parts.take(x, letters_but(x, dim));
    return parts.give(letters_but(x, dim), [&](const Task& t) { return scan(t[0]); });
  }
  const int d = static_cast<int>(at::maybe_wrap_dim(dim, x.dim()));
  const ShardedTensorImpl& own = *impl(x);
  const LayoutPtr& layout = own.layout();
  const Tensor local =
      wrap(own.mesh(), layout,
           make_tiles(*own.mesh(), *layout, [&](int i) { return scan(own.tiles()[i]); }));
  return wrap(own.mesh(), layout, make_tiles(*own.mesh(), *layout, [&](int i) {
                Region last = layout->region(i);
                const Tensor& tile = impl(local)->tiles()[i];
                Tensor before;
                for (std::int64_t part = 0; part < layout->place(i)[d]; ++part) {
                  last.end[d] = layout->cuts(d)[part + 1];
                  last.begin[d] = last.end[d] - 1;
                  const Tensor end = fetch(local, last);
                  before = before.defined() ? join(before, end) : end;
                }
                return before.defined() ? join(before, tile) : tile;
              }));
}

Tensor sum_of_both(const Tensor& a, const Tensor& b) { return at::add(a, b); }
Tensor product_of_both(const Tensor& a, const Tensor& b) { return at::mul(a, b); }

Tensor cumsum_tiles(const Tensor& x, std::int64_t dim, OptionalType dtype) {
  return running(
      "aten::cumsum", x, dim, [&](const Tensor& t) { return at::cumsum(t, dim, dtype); },
      sum_of_both);
}
Tensor cumprod_tiles(const Tensor& x, std::int64_t dim, OptionalType dtype) {
  return running(
      "aten::cumprod", x, dim, [&](const Tensor& t) { return at::cumprod(t, dim, dtype); },
      product_of_both);
}
Tensor logcumsumexp_tiles(const Tensor& x, std::int64_t dim) {
  return running(
      "aten::logcumsumexp", x, dim, [&](const Tensor& t) { return at::logcumsumexp(t, dim); },
      at::logaddexp);
}
Tensor& cumsum_in_place(Tensor& x, std::int64_t dim, OptionalType dtype) {
  write_to(x, cumsum_tiles(x, dim, dtype));
  return x;
}
Tensor& cumprod_in_place(Tensor& x, std::int64_t dim, OptionalType dtype) {
  write_to(x, cumprod_tiles(x, dim, dtype));
  return x;
}

// What must see a dimension whole: the cut moves elsewhere.

/// Operations that take a tensor and the argument `dim`, and give values, places, or both.
void along_whole_dimension(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operation operation(op.schema().name().c_str());
  BoxedCall call(op, stack);
  const std::size_t dim_at = call.index_of("dim");
  const auto arguments = call.take();
  const Tensor& x = arguments[0].toTensor();
  const std::int64_t dim = arguments[dim_at].toInt();
  bool keeps = true;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (op.schema().arguments()[i].name() == "keepdim") keeps = arguments[i].toBool();
  }
  const std::string letters = letters_but(x, dim);
  std::string result = letters;
  if (!keeps && x.dim() > 0) result.erase(at::maybe_wrap_dim(dim, x.dim()), 1);
  Partition parts(op.schema().name().c_str());
  parts.take(x, letters);
  const std::vector<std::string> all(op.schema().returns().size(), result);
  const auto results = parts.give_all(all, [&](const Task& t) {
    Stack own(arguments.begin(), arguments.end());
    own[0] = t[0];
    op.callBoxed(&own);
    std::vector<Tensor> own_results;
    for (const c10::IValue& each : own) own_results.push_back(each.toTensor());
    return own_results;
  });
  for (const Tensor& each : results) stack->emplace_back(each);
}

}  // namespace

void register_joining(torch::Library& library) {
  library.impl("cat", boxed<&cat_boxed>());
  library.impl("stack", boxed<&stack_boxed>());
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
  library.impl("narrow_copy", narrow_copy_tiles);
  library.impl("tril", tril_tiles);
  library.impl("triu", triu_tiles);
  library.impl("tril_", tril_in_place);
  library.impl("triu_", triu_in_place);
  library.impl("cumsum", cumsum_tiles);
  library.impl("cumprod", cumprod_tiles);
  library.impl("cumsum_", cumsum_in_place);
  library.impl("cumprod_", cumprod_in_place);
  library.impl("logcumsumexp", logcumsumexp_tiles);
  for (const char* name : {"sort", "sort.stable", "argsort.stable", "topk", "cummax", "cummin",
                           "kthvalue", "mode", "median.dim", "nanmedian.dim"}) {
    library.impl(name, boxed<&along_whole_dimension>());
  }
}

}  // namespace cohort::spmd
