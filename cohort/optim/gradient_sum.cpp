#include "cohort/optim/gradient_sum.h"

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

#include "cohort/collectives/tensor_reduction.h"
#include "cohort/spmd/sharded_tensor.h"

namespace cohort {

using collectives::Node;
using collectives::Range;

GradientSum::GradientSum(const ReplicaLayout& layout,
                         const std::vector<std::vector<at::Tensor>>& parameters,
                         const std::vector<int>& owner_of)
    : parameters_(parameters) {
  const int replicas = static_cast<int>(parameters.size());
  const collectives::ReductionTree tree(replicas);
  for (int device = 0; device < layout.copies(); ++device) {
    const int end = device + 1 < layout.copies() ? layout.owner_of(device + 1) : replicas;
    for (const Node node : tree.subtrees(layout.owner_of(device), end)) nodes_.push_back(node);
  }
  all_ = std::make_unique<collectives::SumPlan>(std::span<const Node>(nodes_));
  for (int r = 0; r < replicas; ++r) {
    if (owner_of[r] == r) owners_.push_back(r);
  }
}

namespace {

bool alike(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && !spmd::is_sharded(a) && !spmd::is_sharded(b) &&
         a.device().is_cpu() && b.device().is_cpu() && a.layout() == at::kStrided &&
         b.layout() == at::kStrided && a.dtype() == b.dtype() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.is_non_overlapping_and_dense();
}

/// Tile by tile for parameters that are spread over logical devices, which are each replica's own.
at::Tensor sum_of(const at::Tensor& a, const at::Tensor& b) {
  if (!spmd::is_sharded(a)) {
    return collectives::reduce_tensors(ReduceOp::SUM, std::vector<at::Tensor>{a, b});
  }
  std::vector<at::Tensor> tiles;
  for (std::size_t i = 0; i < spmd::impl(a)->tiles().size(); ++i) {
    tiles.push_back(sum_of(spmd::impl(a)->tiles()[i], spmd::impl(b)->tiles()[i]));
  }
  return spmd::wrap(spmd::impl(a)->mesh(), spmd::impl(a)->layout(), std::move(tiles));
}

/// A copy for another replica's parameter.
at::Tensor copy_for(const at::Tensor& parameter, const at::Tensor& sum) {
  if (!spmd::is_sharded(sum)) return sum.to(parameter.device(), false, /*copy=*/true);
  std::vector<at::Tensor> tiles;
  for (const at::Tensor& tile : spmd::impl(sum)->tiles()) tiles.push_back(tile.clone());
  return spmd::wrap(spmd::impl(parameter)->mesh(), spmd::impl(sum)->layout(), std::move(tiles));
}

}  // namespace

void GradientSum::fold(int left, int right, int parameter) const {
  at::Tensor &a = grad(left, parameter), &b = grad(right, parameter);
  if (alike(a, b)) {
    const void* const leaves[] = {a.data_ptr(), b.data_ptr()};
    void* const output = a.data_ptr();
    collectives::ordered_sum(a.scalar_type(), pair_, leaves, {&output, 1}, {0, a.numel()});
  } else {
    a = sum_of(a, b);
  }
  b = at::Tensor();
}

bool GradientSum::by_range(int parameter) const {
  const at::Tensor& first = grad(0, parameter);
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [&](Node node) { return alike(first, grad(node.lo, parameter)); });
}

void GradientSum::sum(int parameter, Range range) const {
  if (!by_range(parameter)) return sum_whole(parameter);
  c10::SmallVector<const void*, 64> leaves;
  c10::SmallVector<void*, 64> outputs;
  for (const Node node : nodes_) leaves.push_back(grad(node.lo, parameter).data_ptr());
  for (const int r : owners_) outputs.push_back(grad(r, parameter).data_ptr());
  collectives::ordered_sum(grad(0, parameter).scalar_type(), *all_, {leaves.data(), leaves.size()},
                           {outputs.data(), outputs.size()}, range);
}

/// Sparse gradients, other devices, layouts that differ between replicas, and sharded ones.
void GradientSum::sum_whole(int parameter) const {
  const at::Tensor sum = sum_of_node(parameter, {0, static_cast<int>(parameters_.size())});
  for (const int r : owners_) {
    grad(r, parameter) = copy_for(parameters_[r][parameter], sum);
  }
}

at::Tensor GradientSum::sum_of_node(int parameter, Node node) const {
  if (std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end()) {
    const at::Tensor own = grad(node.lo, parameter).detach();
    return spmd::is_sharded(own) ? own : own.to(parameters_[0][parameter].device());
  }
  const int cut = collectives::split_point(node.lo, node.hi);
  return sum_of(sum_of_node(parameter, {node.lo, cut}), sum_of_node(parameter, {cut, node.hi}));
}

at::Tensor without_entries(const at::Tensor& sparse) {
  return at::_sparse_coo_tensor_unsafe(sparse._indices().slice(1, 0, 0).clone(),
                                       sparse._values().slice(0, 0, 0).clone(), sparse.sizes(),
                                       sparse.options());
}

}  // namespace cohort
