// What depends on the order of elements: triangles, running sums, sorting. A dimension that things
// go along is summed up in the order of its parts, or is needed whole.

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <numeric>

#include "cohort/base/error.h"
#include "cohort/spmd/partition.h"
#include "cohort/spmd/rules/relayout.h"
#include "cohort/spmd/rules/short_types.h"

namespace cohort::spmd {
namespace {

using Task = Partition::Task;

// Triangles: a tile has its own diagonal.

using Triangle = Tensor (*)(const Tensor&, std::int64_t diagonal);

Tensor triangle_of(const char* name, const Tensor& x, std::int64_t diagonal, Triangle triangle) {
  const std::string letters = letters_of(x.dim());
  if (x.dim() < 2) {
    throw InvalidArgument(name, cat("at least two dimensions are needed, got ", x.sizes()));
  }
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

// The median of all elements: each device sorts its own, and one looks up ranks in all of them.

/// The element that has `rank` others before it, among numbers that are sorted tile by tile.
Tensor element_at(const std::vector<Tensor>& sorted, std::int64_t rank) {
  const std::size_t count = sorted.size();
  std::vector<std::int64_t> low(count, 0), high;  // of each tile: which ones it may be
  for (const Tensor& tile : sorted) high.push_back(tile.numel());
  while (true) {
    std::size_t longest = 0;
    for (std::size_t i = 1; i < count; ++i) {
      if (high[i] - low[i] > high[longest] - low[longest]) longest = i;
    }
    const Tensor pivot = sorted[longest].narrow(0, (low[longest] + high[longest]) / 2, 1);
    std::vector<std::int64_t> less, up_to;  // the numbers of each tile that are so
    for (const Tensor& tile : sorted) {
      less.push_back(at::searchsorted(tile, pivot).item<std::int64_t>());
      up_to.push_back(at::searchsorted(tile, pivot, false, /*right=*/true).item<std::int64_t>());
    }
    if (rank < std::accumulate(less.begin(), less.end(), std::int64_t{0})) {
      high = less;
    } else if (rank >= std::accumulate(up_to.begin(), up_to.end(), std::int64_t{0})) {
      low = up_to;
    } else {
      return pivot.select(0, 0).clone();
    }
  }
}

Tensor median_of(const char* name, const Tensor& x, bool skips_nan) {
  const Operation operation(name);
  const BelowAutograd below;
  const ShardedTensorImpl& own = *impl(x);
  const at::ScalarType type = is_short(x.scalar_type()) ? at::kFloat : x.scalar_type();
  std::vector<std::int64_t> numbers(own.layout()->tiles());  // that are some, of each tile
  auto sorted = make_tiles(*own.mesh(), *own.layout(), [&](int i) {
    const Tensor tile = std::get<0>(own.tiles()[i].flatten().to(type).sort());
    numbers[i] = tile.numel() - tile.isnan().sum().item<std::int64_t>();
    return tile;
  });
  std::int64_t count = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (numbers[i] < sorted[i].numel() && !skips_nan) return sorted[i][-1].to(x.scalar_type());
    sorted[i] = sorted[i].narrow(0, 0, numbers[i]);
    count += numbers[i];
  }
  if (count == 0) return at::median(gather(x));  // NaN
  return element_at(sorted, (count - 1) / 2).to(x.scalar_type());
}
Tensor median_tiles(const Tensor& x) { return median_of("aten::median", x, false); }
Tensor nanmedian_tiles(const Tensor& x) { return median_of("aten::nanmedian", x, true); }

}  // namespace

void register_ordering(torch::Library& library) {
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
  library.impl("median", median_tiles);
  library.impl("nanmedian", nanmedian_tiles);
}

}  // namespace cohort::spmd
