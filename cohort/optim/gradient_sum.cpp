#include "cohort/optim/gradient_sum.h"

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

#include "cohort/collectives/tensor_reduction.h"

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
  return a.defined() && b.defined() && a.device().is_cpu() && b.device().is_cpu() &&
         a.layout() == at::kStrided && b.layout() == at::kStrided && a.dtype() == b.dtype() &&
         a.sizes() == b.sizes() && a.strides() == b.strides() && a.is_non_overlapping_and_dense();
}

}  // namespace

void GradientSum::fold(int left, int right, int parameter) const {
  at::Tensor &a = grad(left, parameter), &b = grad(right, parameter);
  if (alike(a, b)) {
    const void* const leaves[] = {a.data_ptr(), b.data_ptr()};
    void* const output = a.data_ptr();
    collectives::ordered_sum(a.scalar_type(), pair_, leaves, {&output, 1}, {0, a.numel()});
  } else {
    a = collectives::reduce_tensors(ReduceOp::SUM, std::vector<at::Tensor>{a, b});
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

/// Sparse gradients, other devices, and layouts that differ between replicas.
void GradientSum::sum_whole(int parameter) const {
  const at::Tensor sum = sum_of_node(parameter, {0, static_cast<int>(parameters_.size())});
  for (const int r : owners_) {
    grad(r, parameter) = sum.to(parameters_[r][parameter].device(), false, /*copy=*/true);
  }
}

at::Tensor GradientSum::sum_of_node(int parameter, Node node) const {
  if (std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end()) {
    return grad(node.lo, parameter).detach().to(parameters_[0][parameter].device());
  }
  const int cut = collectives::split_point(node.lo, node.hi);
  const at::Tensor pair[] = {sum_of_node(parameter, {node.lo, cut}),
                             sum_of_node(parameter, {cut, node.hi})};
  return collectives::reduce_tensors(ReduceOp::SUM, pair);
}

at::Tensor without_entries(const at::Tensor& sparse) {
  return at::_sparse_coo_tensor_unsafe(sparse._indices().slice(1, 0, 0).clone(),
                                       sparse._values().slice(0, 0, 0).clone(), sparse.sizes(),
                                       sparse.options());
}

}  // namespace cohort
