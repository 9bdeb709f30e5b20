// Sums, extremes and norms: each device reduces its tiles, then the results are combined in
// the order of the tiles.

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include "cohort/spmd/partition.h"
#include "cohort/spmd/rules/short_types.h"

namespace cohort::spmd {
namespace {

using Task = Partition::Task;

/// The dimensions that a reduction goes over; all of them where none are named.
struct Reduced {
  std::vector<std::int64_t> dims;
  std::vector<bool> is_reduced;
  std::int64_t count = 1;  // elements that become one

  Reduced(const Tensor& x, at::OptionalIntArrayRef named) : is_reduced(x.dim(), false) {
    if (named.has_value()) {
      for (const std::int64_t d : *named) {
        if (x.dim() > 0) is_reduced[at::maybe_wrap_dim(d, x.dim())] = true;
      }
    }
    if (!named.has_value() || named->empty()) is_reduced.assign(x.dim(), true);
    for (std::int64_t d = 0; d < x.dim(); ++d) {
      if (!is_reduced[d]) continue;
      dims.push_back(d);
      count *= x.size(d);
    }
  }

  /// Letters of the argument: lower case for what stays, upper case for what goes.
  std::string letters() const {
    std::string letters;
    for (std::size_t d = 0; d < is_reduced.size(); ++d) {
      letters += static_cast<char>((is_reduced[d] ? 'A' : 'a') + d);
    }
    return letters;
  }
  std::string result_letters(bool keep) const {
    std::string letters;
    for (std::size_t d = 0; d < is_reduced.size(); ++d) {
      if (!is_reduced[d]) letters += static_cast<char>('a' + d);
      if (is_reduced[d] && keep) letters += '*';
    }
    return letters;
  }
};

using OptionalType = c10::optional<at::ScalarType>;

Tensor sum_over(const char* name, const Tensor& x, at::OptionalIntArrayRef dims, bool keep,
                OptionalType dtype) {
  const Reduced reduced(x, dims);
  Partition parts(name);
  parts.take(x, reduced.letters());
  return parts.give(reduced.result_letters(keep), [&](const Task& t) {
    return x.dim() == 0 ? at::sum(t[0], dtype) : at::sum(t[0], reduced.dims, keep, dtype);
  });
}

Tensor sum_tiles(const Tensor& x, OptionalType dtype) {
  return sum_over("aten::sum", x, c10::nullopt, false, dtype);
}
Tensor sum_dim_tiles(const Tensor& x, at::OptionalIntArrayRef dims, bool keep, OptionalType dtype) {
  return sum_over("aten::sum", x, dims, keep, dtype);
}

Tensor nansum_tiles(const Tensor& x, at::OptionalIntArrayRef dims, bool keep, OptionalType dtype) {
  const Reduced reduced(x, dims);
  Partition parts("aten::nansum");
  parts.take(x, reduced.letters());
  return parts.give(reduced.result_letters(keep),
                    [&](const Task& t) { return at::nansum(t[0], reduced.dims, keep, dtype); });
}
Tensor count_nonzero_dims_tiles(const Tensor& x, at::IntArrayRef dims) {
  const Operation operation("aten::count_nonzero");
  const BelowAutograd below;
  return sum_over("aten::count_nonzero", at::ne(x, 0), dims, false, at::kLong);
}
Tensor count_nonzero_tiles(const Tensor& x, c10::optional<std::int64_t> dim) {
  return count_nonzero_dims_tiles(x, dim ? at::IntArrayRef(*dim) : at::IntArrayRef());
}

// Extremes and logic.

void take_larger(Tensor& all, const Tensor& more) { all = at::maximum(all, more); }
void take_smaller(Tensor& all, const Tensor& more) { all = at::minimum(all, more); }
void take_either(Tensor& all, const Tensor& more) { all.logical_or_(more); }
void take_both(Tensor& all, const Tensor& more) { all.logical_and_(more); }
void multiply(Tensor& all, const Tensor& more) { all.mul_(more); }

template <class F>
Tensor combined(const char* name, const Tensor& x, at::OptionalIntArrayRef dims, bool keep,
                Partition::Combine combine, F&& reduce) {
  const Reduced reduced(x, dims);
  Partition parts(name);
  parts.take(x, reduced.letters());
  return parts.give(
      reduced.result_letters(keep), [&](const Task& t) { return reduce(t[0], reduced.dims); },
      combine);
}

Tensor amax_tiles(const Tensor& x, at::IntArrayRef dims, bool keep) {
  return combined("aten::amax", x, dims, keep, take_larger,
                  [&](const Tensor& part, auto& own) { return at::amax(part, own, keep); });
}
Tensor amin_tiles(const Tensor& x, at::IntArrayRef dims, bool keep) {
  return combined("aten::amin", x, dims, keep, take_smaller,
                  [&](const Tensor& part, auto& own) { return at::amin(part, own, keep); });
}
std::tuple<Tensor, Tensor> aminmax_tiles(const Tensor& x, c10::optional<std::int64_t> dim,
                                         bool keep) {
  const Operation operation("aten::aminmax");
  const at::IntArrayRef dims = dim ? at::IntArrayRef(*dim) : at::IntArrayRef();
  return {amin_tiles(x, dims, keep), amax_tiles(x, dims, keep)};
}
Tensor max_tiles(const Tensor& x) {
  return combined("aten::max", x, c10::nullopt, false, take_larger,
                  [](const Tensor& part, auto&) { return at::max(part); });
}
Tensor min_tiles(const Tensor& x) {
  return combined("aten::min", x, c10::nullopt, false, take_smaller,
                  [](const Tensor& part, auto&) { return at::min(part); });
}
Tensor any_tiles(const Tensor& x) {
  return combined("aten::any", x, c10::nullopt, false, take_either,
                  [](const Tensor& part, auto&) { return at::any(part); });
}
Tensor all_tiles(const Tensor& x) {
  return combined("aten::all", x, c10::nullopt, false, take_both,
                  [](const Tensor& part, auto&) { return at::all(part); });
}
Tensor any_dim_tiles(const Tensor& x, std::int64_t dim, bool keep) {
  if (x.dim() == 0) return any_tiles(x);
  return combined("aten::any", x, at::IntArrayRef(dim), keep, take_either,
                  [&](const Tensor& part, auto& own) { return at::any(part, own[0], keep); });
}
Tensor all_dim_tiles(const Tensor& x, std::int64_t dim, bool keep) {
  if (x.dim() == 0) return all_tiles(x);
  return combined("aten::all", x, at::IntArrayRef(dim), keep, take_both,
                  [&](const Tensor& part, auto& own) { return at::all(part, own[0], keep); });
}
Tensor prod_tiles(const Tensor& x, OptionalType dtype) {
  return combined("aten::prod", x, c10::nullopt, false, multiply,
                  [&](const Tensor& part, auto&) { return at::prod(part, dtype); });
}
Tensor prod_dim_tiles(const Tensor& x, std::int64_t dim, bool keep, OptionalType dtype) {
  if (x.dim() == 0) return prod_tiles(x, dtype);
  return combined(
      "aten::prod", x, at::IntArrayRef(dim), keep, multiply,
      [&](const Tensor& part, auto& own) { return at::prod(part, own[0], keep, dtype); });
}
bool equal_tiles(const Tensor& a, const Tensor& b) {
  const Operation operation("aten::equal");
  const BelowAutograd below;
  return a.sizes() == b.sizes() && gather(at::all(at::eq(a, b))).item<bool>();
}

bool is_same_size_tiles(const Tensor& a, const Tensor& b) { return a.sizes() == b.sizes(); }

// Variances: the mean first, then the squares of what differs from it.

std::tuple<Tensor, Tensor> var_and_mean(const char* name, const Tensor& x,
                                        at::OptionalIntArrayRef dims, double correction,
                                        bool keep) {
  const Operation operation(name);
  const BelowAutograd below;
  if (is_short(x.scalar_type())) {
    auto [var, mean] = var_and_mean(name, x.to(at::kFloat), dims, correction, keep);
    return {var.to(x.scalar_type()), mean.to(x.scalar_type())};
  }
  const Reduced reduced(x, dims);
  const Tensor mean = at::div(sum_over(name, x, dims, true, c10::nullopt), reduced.count);
  const Tensor distance = at::sub(x, mean);
  const Tensor squares = at::square(x.is_complex() ? at::abs(distance) : distance);
  const double count = std::max(0.0, static_cast<double>(reduced.count) - correction);
  const Tensor var = at::div(sum_over(name, squares, dims, keep, c10::nullopt), count);
  const Tensor own_mean =
      keep ? mean : at::div(sum_over(name, x, dims, false, c10::nullopt), reduced.count);
  return {var, own_mean};
}

/// The correction is an int? in LibTorch 1.13 and a Scalar? in 2.
double correction_of(const c10::IValue& value) {
  return value.isNone() ? 1 : value.toScalar().toDouble();
}

void var_mean_boxed(const c10::OperatorHandle& op, Stack* stack, bool has_var, bool has_mean,
                    bool is_root) {
  BoxedCall call(op, stack);
  const auto arguments = call.take();
  std::vector<std::int64_t> dims;
  if (!arguments[1].isNone()) dims = arguments[1].toIntVector();
  auto [var, mean] =
      var_and_mean(op.schema().name().c_str(), arguments[0].toTensor(), at::IntArrayRef(dims),
                   correction_of(arguments[2]), arguments[3].toBool());
  const BelowAutograd below;
  if (has_var) stack->emplace_back(is_root ? at::sqrt(var) : var);
  if (has_mean) stack->emplace_back(mean);
}
void var_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  var_mean_boxed(op, stack, true, false, false);
}
void std_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  var_mean_boxed(op, stack, true, false, true);
}
void var_and_mean_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  var_mean_boxed(op, stack, true, true, false);
}
void std_and_mean_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  var_mean_boxed(op, stack, true, true, true);
}

// Norms and sums of exponentials.

Tensor norm_over(const Tensor& x, const at::Scalar& p, at::OptionalIntArrayRef dims, bool keep,
                 OptionalType dtype) {
  const char* name = "aten::linalg_vector_norm";
  const Operation operation(name);
  const BelowAutograd below;
  if (is_short(x.scalar_type())) {
    const at::ScalarType type = dtype.value_or(x.scalar_type());
    return norm_over(x.to(at::kFloat), p, dims, keep, c10::nullopt).to(type);
  }
  const double power = p.toDouble();
  const Reduced reduced(x, dims);
  const Tensor size = at::abs(dtype ? x.to(*dtype) : x);
  if (power == std::numeric_limits<double>::infinity()) {
    return amax_tiles(size, reduced.dims, keep);
  }
  if (power == -std::numeric_limits<double>::infinity()) {
    return amin_tiles(size, reduced.dims, keep);
  }
  if (power == 0) {
    return sum_over(name, at::ne(x, 0), dims, keep, size.scalar_type());
  }
  const Tensor powers = power == 1 ? size : power == 2 ? at::square(size) : at::pow(size, p);
  const Tensor sum = sum_over(name, powers, dims, keep, c10::nullopt);
  return power == 1 ? sum : power == 2 ? at::sqrt(sum) : at::pow(sum, 1 / power);
}

Tensor vector_norm_tiles(const Tensor& x, const at::Scalar& p, at::OptionalIntArrayRef dims,
                         bool keep, OptionalType dtype) {
  return norm_over(x, p, dims, keep, dtype);
}
Tensor norm_dim_tiles(const Tensor& x, const c10::optional<at::Scalar>& p, at::IntArrayRef dims,
                      bool keep) {
  return norm_over(x, p.value_or(2), dims, keep, c10::nullopt);
}
Tensor norm_tiles(const Tensor& x, const at::Scalar& p) {
  return norm_over(x, p, c10::nullopt, false, c10::nullopt);
}

Tensor norm_type_tiles(const Tensor& x, const c10::optional<at::Scalar>& p, at::ScalarType dtype) {
  return norm_over(x, p.value_or(2), c10::nullopt, false, dtype);
}
Tensor norm_dim_type_tiles(const Tensor& x, const c10::optional<at::Scalar>& p,
                           at::IntArrayRef dims, bool keep, at::ScalarType dtype) {
  return norm_over(x, p.value_or(2), dims, keep, dtype);
}
Tensor dist_tiles(const Tensor& a, const Tensor& b, const at::Scalar& p) {
  const Operation operation("aten::dist");
  const BelowAutograd below;
  return at::linalg_vector_norm(at::sub(a, b), p);
}

Tensor logsumexp_tiles(const Tensor& x, at::IntArrayRef dims, bool keep) {
  const Operation operation("aten::logsumexp");
  const BelowAutograd below;
  const Reduced reduced(x, dims);
  if (reduced.count == 0) return at::log(at::sum(at::exp(x), reduced.dims, keep));
  const Tensor largest = amax_tiles(x, reduced.dims, true);
  const Tensor shift = at::where(at::isfinite(largest), largest, at::zeros_like(largest));
  const Tensor sum = at::sum(at::exp(at::sub(x, shift)), reduced.dims, keep);
  const Tensor own_shift = keep ? shift : amax_tiles(x, reduced.dims, false);
  const Tensor finite =
      keep ? shift : at::where(at::isfinite(own_shift), own_shift, at::zeros_like(own_shift));
  return at::add(at::log(sum), finite);
}

// Extremes with their places: a split dimension gives a candidate for each part.

using Pair = std::tuple<Tensor, Tensor>;

template <class F>
Pair extreme_along(const char* name, const Tensor& x, std::int64_t dim, bool keep, bool is_max,
                   F&& find) {
  Operation operation(name);
  const BelowAutograd below;
  if (x.dim() == 0) return extreme_along(name, x.unsqueeze(0), dim, false, is_max, find);
  const std::int64_t d = at::maybe_wrap_dim(dim, x.dim());
  std::string letters;
  for (std::int64_t i = 0; i < x.dim(); ++i) letters += static_cast<char>('a' + i);
  std::string result = letters;
  result[d] = '*';
  Partition parts(name);
  parts.take(x, letters);
  const Cuts cuts = parts.cuts(letters[d]);
  Tensor values, places;
  for (std::size_t part = 0; part + 1 < cuts.size(); ++part) {
    const Tensor own = x.slice(d, cuts[part], cuts[part + 1]);
    Partition one(name);
    std::string whole = letters;
    whole[d] = '*';
    one.take(own, whole);
    auto found = one.give_all({result, result}, [&](const Task& t) {
      auto [value, place] = find(t[0], d, true);
      return std::vector<Tensor>{value, place.add(cuts[part])};
    });
    if (part == 0) {
      values = found[0];
      places = found[1];
      continue;
    }
    const Tensor is_better =
        at::logical_or(is_max ? at::gt(found[0], values) : at::lt(found[0], values),
                       at::logical_and(at::isnan(found[0]), at::logical_not(at::isnan(values))));
    values = at::where(is_better, found[0], values);
    places = at::where(is_better, found[1], places);
  }
  if (keep) return {values, places};
  return {values.squeeze(d), places.squeeze(d)};
}

Pair max_dim_tiles(const Tensor& x, std::int64_t dim, bool keep) {
  return extreme_along("aten::max", x, dim, keep, true,
                       [](const Tensor& t, std::int64_t d, bool k) { return at::max(t, d, k); });
}
Pair min_dim_tiles(const Tensor& x, std::int64_t dim, bool keep) {
  return extreme_along("aten::min", x, dim, keep, false,
                       [](const Tensor& t, std::int64_t d, bool k) { return at::min(t, d, k); });
}
Tensor argmax_tiles(const Tensor& x, c10::optional<std::int64_t> dim, bool keep) {
  if (dim) return std::get<1>(max_dim_tiles(x, *dim, keep));
  const Tensor place = std::get<1>(max_dim_tiles(x.reshape({-1}), 0, false));
  return keep ? place.reshape(std::vector<std::int64_t>(x.dim(), 1)) : place;
}
Tensor argmin_tiles(const Tensor& x, c10::optional<std::int64_t> dim, bool keep) {
  if (dim) return std::get<1>(min_dim_tiles(x, *dim, keep));
  const Tensor place = std::get<1>(min_dim_tiles(x.reshape({-1}), 0, false));
  return keep ? place.reshape(std::vector<std::int64_t>(x.dim(), 1)) : place;
}

}  // namespace

void register_reductions(torch::Library& library) {
  library.impl("sum", sum_tiles);
  library.impl("sum.dim_IntList", sum_dim_tiles);
  library.impl("nansum", nansum_tiles);
  library.impl("count_nonzero", count_nonzero_tiles);
  library.impl("count_nonzero.dim_IntList", count_nonzero_dims_tiles);
  library.impl("amax", amax_tiles);
  library.impl("amin", amin_tiles);
  library.impl("aminmax", aminmax_tiles);
  library.impl("max", max_tiles);
  library.impl("min", min_tiles);
  library.impl("max.dim", max_dim_tiles);
  library.impl("min.dim", min_dim_tiles);
  library.impl("argmax", argmax_tiles);
  library.impl("argmin", argmin_tiles);
  library.impl("any", any_tiles);
  library.impl("all", all_tiles);
  library.impl("any.dim", any_dim_tiles);
  library.impl("all.dim", all_dim_tiles);
  library.impl("equal", equal_tiles);
  library.impl("is_same_size", is_same_size_tiles);
  library.impl("prod", prod_tiles);
  library.impl("prod.dim_int", prod_dim_tiles);
  library.impl("var.correction", boxed<&var_boxed>());
  library.impl("std.correction", boxed<&std_boxed>());
  library.impl("var_mean.correction", boxed<&var_and_mean_boxed>());
  library.impl("std_mean.correction", boxed<&std_and_mean_boxed>());
  library.impl("linalg_vector_norm", vector_norm_tiles);
  library.impl("norm.ScalarOpt_dim", norm_dim_tiles);
  library.impl("norm.Scalar", norm_tiles);
  library.impl("norm.ScalarOpt_dtype", norm_type_tiles);
  library.impl("norm.ScalarOpt_dim_dtype", norm_dim_type_tiles);
  library.impl("dist", dist_tiles);
  library.impl("logsumexp", logsumexp_tiles);
}

}  // namespace cohort::spmd
