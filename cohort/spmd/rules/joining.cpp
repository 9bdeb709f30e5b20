// Tensors put together: each device makes its tile of the result out of the parts that it needs.

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/spmd/dispatch.h"
#include "cohort/spmd/rules/relayout.h"

namespace cohort::spmd {
namespace {

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
  if (fits) return;
  throw InvalidArgument("cat", cohort::cat("sizes must match except in dimension ", dim, ": got ",
                                           a.sizes(), " and ", b.sizes()));
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
  }
  for (const Tensor& each : all) type = c10::promoteTypes(type, each.scalar_type());
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
    if (each.sizes() != arguments[0].toTensorVector()[0].sizes()) {
      throw InvalidArgument("stack",
                            cohort::cat("the tensors must have one size, got ", each.sizes()));
    }
    each = each.unsqueeze(dim);
  }
  stack->emplace_back(joined("aten::stack", tensors, dim));
}

}  // namespace

void register_joining(torch::Library& library) {
  library.impl("cat", boxed<&cat_boxed>());
  library.impl("stack", boxed<&stack_boxed>());
}

}  // namespace cohort::spmd
