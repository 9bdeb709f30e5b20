// Elements chosen by lists of indices: read, written and added to.

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include "cohort/base/error.h"
#include "cohort/spmd/rules/relayout.h"
#include "cohort/spmd/rules/selection.h"

namespace cohort::spmd {
namespace {

using OptionalTensors = std::vector<c10::optional<Tensor>>;

/// Masks in place of indices are turned into the indices of what they let through.
std::vector<Tensor> without_masks(at::IntArrayRef sizes, const OptionalTensors& given) {
  std::vector<Tensor> indices;
  for (const auto& each : given) {
    const Tensor index = each.value_or(Tensor());
    if (index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte)) {
      for (std::int64_t d = 0; d < index.dim(); ++d) {
        const std::size_t own = indices.size() + d;
        if (own < sizes.size() && sizes[own] == index.size(d)) continue;
        throw InvalidArgument(
            "index", cat("a mask of sizes ", index.sizes(), " does not fit a tensor of sizes ",
                         sizes, " at dimension ", own));
      }
      for (const Tensor& column : at::nonzero(index).unbind(1)) indices.push_back(column);
    } else {
      indices.push_back(index);
    }
  }
  return indices;
}

void index_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const BelowAutograd below;
  const auto arguments = BoxedCall(op, stack).take();
  const Tensor& x = arguments[0].toTensor();
  stack->emplace_back(
      read_elements("aten::index", x,
                    {x.sizes(), without_masks(x.sizes(), arguments[1].toOptionalTensorVector())}));
}

Tensor index_select_tiles(const Tensor& x, std::int64_t dim, const Tensor& index) {
  const Operation operation("aten::index_select");
  const BelowAutograd below;
  if (x.dim() == 0) {
    return index_select_tiles(x.unsqueeze(0), dim, index).squeeze(0);
  }
  return read_elements("aten::index_select", x,
                       along_dimension(x.sizes(), dim, as_list_of_indices(index)));
}

void index_put_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const BelowAutograd below;
  BoxedCall call(op, stack);
  const bool in_place = call.changes(0);
  const auto arguments = call.take();
  const Tensor& x = arguments[0].toTensor();
  const Selection selection(x.sizes(),
                            without_masks(x.sizes(), arguments[1].toOptionalTensorVector()));
  const Tensor values = arguments[2].toTensor();
  const bool accumulate = arguments[3].toBool();
  if (in_place) write_elements_in_place("aten::index_put_", x, selection, values, accumulate);
  stack->emplace_back(
      in_place ? x : write_elements("aten::index_put", x, selection, values, accumulate));
}

// Numbers of elements, as if the tensor had one dimension.

Tensor take_tiles(const Tensor& x, const Tensor& index) {
  const Operation operation("aten::take");
  const BelowAutograd below;
  return read_elements("aten::take", flat(x), along_dimension({x.numel()}, 0, index, true));
}

Tensor put_tiles(const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate) {
  const Operation operation("aten::put");
  const BelowAutograd below;
  if (index.numel() != source.numel()) {
    throw InvalidArgument("put", cat("as many values as indices are needed, got ", source.numel(),
                                     " and ", index.numel()));
  }
  const Selection selection = along_dimension({x.numel()}, 0, flat(index), true);
  return at::_unsafe_view(write_elements("aten::put", flat(x), selection, flat(source), accumulate),
                          x.sizes());
}
Tensor& put_in_place(Tensor& x, const Tensor& index, const Tensor& source, bool accumulate) {
  const Operation operation("aten::put_");
  const BelowAutograd below;
  return x.copy_(put_tiles(x, index, source, accumulate));
}

// One dimension.

Tensor scaled(const Tensor& source, const at::Scalar& alpha) {
  const Tensor values = as_list_of_indices(source);
  return alpha.equal(1) ? values : at::mul(values, alpha);
}

Tensor index_add_tiles(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source,
                       const at::Scalar& alpha) {
  const Operation operation("aten::index_add");
  const BelowAutograd below;
  return write_elements("aten::index_add", x,
                        along_dimension(x.sizes(), dim, as_list_of_indices(index)),
                        scaled(source, alpha), true);
}
Tensor& index_add_in_place(Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& source,
                           const at::Scalar& alpha) {
  const Operation operation("aten::index_add_");
  const BelowAutograd below;
  write_elements_in_place("aten::index_add_", x,
                          along_dimension(x.sizes(), dim, as_list_of_indices(index)),
                          scaled(source, alpha), true);
  return x;
}

Tensor index_copy_tiles(const Tensor& x, std::int64_t dim, const Tensor& index,
                        const Tensor& source) {
  const Operation operation("aten::index_copy");
  const BelowAutograd below;
  return write_elements("aten::index_copy", x,
                        along_dimension(x.sizes(), dim, as_list_of_indices(index)),
                        as_list_of_indices(source), false);
}
Tensor& index_copy_in_place(Tensor& x, std::int64_t dim, const Tensor& index,
                            const Tensor& source) {
  const Operation operation("aten::index_copy_");
  const BelowAutograd below;
  write_elements_in_place("aten::index_copy_", x,
                          along_dimension(x.sizes(), dim, as_list_of_indices(index)),
                          as_list_of_indices(source), false);
  return x;
}

Tensor index_fill_tiles(const Tensor& x, std::int64_t dim, const Tensor& index,
                        const at::Scalar& value) {
  const Operation operation("aten::index_fill");
  const BelowAutograd below;
  return at::masked_fill(x, mask_of(x, dim, index), value);
}
Tensor& index_fill_in_place(Tensor& x, std::int64_t dim, const Tensor& index,
                            const at::Scalar& value) {
  const Operation operation("aten::index_fill_");
  const BelowAutograd below;
  return x.masked_fill_(mask_of(x, dim, index), value);
}
Tensor index_fill_with_tensor(const Tensor& x, std::int64_t dim, const Tensor& index,
                              const Tensor& value) {
  return index_fill_tiles(x, dim, index, gather(value).item());
}
Tensor& index_fill_in_place_with_tensor(Tensor& x, std::int64_t dim, const Tensor& index,
                                        const Tensor& value) {
  return index_fill_in_place(x, dim, index, gather(value).item());
}

}  // namespace

void register_indexing(torch::Library& library) {
  library.impl("index.Tensor", boxed<&index_boxed>());
  library.impl("index_select", index_select_tiles);
  for (const char* name : {"index_put", "index_put_", "_index_put_impl_"}) {
    library.impl(name, boxed<&index_put_boxed>());
  }
  library.impl("take", take_tiles);
  library.impl("put", put_tiles);
  library.impl("put_", put_in_place);
  library.impl("index_add", index_add_tiles);
  library.impl("index_add_", index_add_in_place);
  library.impl("index_copy", index_copy_tiles);
  library.impl("index_copy_", index_copy_in_place);
  library.impl("index_fill.int_Scalar", index_fill_tiles);
  library.impl("index_fill_.int_Scalar", index_fill_in_place);
  library.impl("index_fill.int_Tensor", index_fill_with_tensor);
  library.impl("index_fill_.int_Tensor", index_fill_in_place_with_tensor);
}

}  // namespace cohort::spmd
