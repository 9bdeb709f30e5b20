// The forms of views that share no memory: copies of views, and tensors in which one is replaced.

#include <ATen/ATen.h>

#include "cohort/spmd/dispatch.h"

namespace cohort::spmd {
namespace {

/// aten::select_copy.int is a copy of aten::select.int, and so on.
void copy_of_view(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operation operation(op.schema().name().c_str());
  const BelowAutograd below;
  const std::string name = op.schema().name();
  const std::string view = name.substr(0, name.size() - std::string_view("_copy").size());
  c10::Dispatcher::singleton()
      .findSchemaOrThrow(view.c_str(), op.schema().overload_name().c_str())
      .callBoxed(stack);
  c10::IValue& result = stack->back();
  if (result.isTensor()) {
    result = result.toTensor().clone(at::MemoryFormat::Contiguous);
    return;
  }
  std::vector<Tensor> parts = result.toTensorVector();
  for (Tensor& each : parts) each = each.clone(at::MemoryFormat::Contiguous);
  result = std::move(parts);
}

// A tensor in which a view is replaced.

Tensor copy_with(const Tensor& x, const Tensor& values, FunctionRef<Tensor(const Tensor&)> view) {
  const BelowAutograd below;
  const Tensor result = x.clone();
  view(result).copy_(values);
  return result;
}
Tensor diagonal_scatter_tiles(const Tensor& x, const Tensor& values, std::int64_t offset,
                              std::int64_t dim1, std::int64_t dim2) {
  const Operation operation("aten::diagonal_scatter");
  return copy_with(x, values, [&](const Tensor& t) { return t.diagonal(offset, dim1, dim2); });
}
Tensor select_scatter_tiles(const Tensor& x, const Tensor& values, std::int64_t dim,
                            std::int64_t index) {
  const Operation operation("aten::select_scatter");
  return copy_with(x, values, [&](const Tensor& t) { return t.select(dim, index); });
}
Tensor slice_scatter_tiles(const Tensor& x, const Tensor& values, std::int64_t dim,
                           c10::optional<std::int64_t> start, c10::optional<std::int64_t> end,
                           std::int64_t step) {
  const Operation operation("aten::slice_scatter");
  return copy_with(x, values, [&](const Tensor& t) { return t.slice(dim, start, end, step); });
}

}  // namespace

void register_functional_views(torch::Library& library) {
  for (const char* name : {"as_strided_copy",
                           "_conj_copy",
                           "detach_copy",
                           "diagonal_copy",
                           "expand_copy",
                           "permute_copy",
                           "_reshape_alias_copy",
                           "select_copy.int",
                           "slice_copy.Tensor",
                           "split_copy.Tensor",
                           "split_with_sizes_copy",
                           "squeeze_copy",
                           "squeeze_copy.dim",
                           "squeeze_copy.dims",
                           "t_copy",
                           "transpose_copy.int",
                           "unbind_copy.int",
                           "unfold_copy",
                           "unsqueeze_copy",
                           "view_as_complex_copy",
                           "view_as_real_copy",
                           "view_copy"}) {
    library.impl(name, boxed<&copy_of_view>());
  }
  library.impl("diagonal_scatter", diagonal_scatter_tiles);
  library.impl("select_scatter", select_scatter_tiles);
  library.impl("slice_scatter", slice_scatter_tiles);
}

}  // namespace cohort::spmd
