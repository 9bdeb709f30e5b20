// Tables of embeddings, whose rows are looked up.

#include <ATen/ATen.h>

#include "cohort/spmd/rules/selection.h"

namespace cohort::spmd {
namespace {

Tensor embedding_tiles(const Tensor& table, const Tensor& indices, std::int64_t, bool, bool) {
  const BelowAutograd below;
  return read_elements("aten::embedding", table, along_dimension(table.sizes(), 0, indices));
}

/// The gradient of a table, by rows if the gradient of what was looked up is not split by columns.
Tensor embedding_backward_tiles(const Tensor& gradient, const Tensor& indices, std::int64_t rows,
                                std::int64_t padding, bool scale_by_frequency) {
  const char* name = "aten::embedding_dense_backward";
  const Operation operation(name);
  const BelowAutograd below;
  const Dims sizes{rows, gradient.size(-1)};
  const Selection selection = along_dimension(sizes, 0, indices);
  const MeshPtr mesh = mesh_of(name, Tensor(), selection, gradient);
  const LayoutPtr layout = layout_for(selection, gradient);
  Tensor result = written(mesh, layout, selection, gradient, true, [&](const Region& region) {
    return at::zeros(region.sizes(), gradient.options());
  });
  if (padding >= 0) result.select(0, padding).zero_();
  if (!scale_by_frequency) return result;
  const Tensor counts = at::bincount(gather(indices).reshape({-1}), {}, rows).clamp_min_(1);
  return at::div(result, counts.unsqueeze(1));
}

/// Rows that the indices name and that are too long become shorter.
Tensor& embedding_renorm_in_place(Tensor& table, const Tensor& indices, double max_norm,
                                  double norm_type) {
  const Operation operation("aten::embedding_renorm_");
  const BelowAutograd below;
  const Tensor norm = at::norm(table, norm_type, {1}, true);
  const Tensor is_too_long = at::logical_and(at::gt(norm, max_norm), mask_of(table, 0, indices));
  const Tensor shorter = at::reciprocal(at::add(norm, 1e-7)).mul_(max_norm);
  return table.mul_(at::where(is_too_long, shorter, at::ones_like(norm)));
}

}  // namespace

void register_embedding(torch::Library& library) {
  library.impl("embedding", embedding_tiles);
  library.impl("embedding_renorm_", embedding_renorm_in_place);
  library.impl("embedding_dense_backward", embedding_backward_tiles);
}

}  // namespace cohort::spmd
