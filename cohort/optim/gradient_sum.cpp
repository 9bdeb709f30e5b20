#include "cohort/optim/gradient_sum.h"

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

#include "cohort/collectives/tensor_reduction.h"
#include "cohort/spmd/sharded_tensor.h"

namespace cohort {

using collectives::Node;
using collectives::Range;

GradientSum::GradientSum(const ReplicaLayout& layout, const TensorTable& parameters,
                         TensorTable& gradients, const std::vector<ReplicaGradients>& replicas,
                         const std::vector<int>& owner_of, ReduceOp op)
    : parameters_(parameters),
      gradients_(gradients),
      replicas_(replicas),
      divisor_(op == ReduceOp::MEAN ? layout.global() : 1) {
  const int count = static_cast<int>(parameters.size());
  const collectives::ReductionTree tree(count);
  for (int device = 0; device < layout.copies(); ++device) {
    const int end = device + 1 < layout.copies() ? layout.owner_of(device + 1) : count;
    for (const Node node : tree.subtrees(layout.owner_of(device), end)) nodes_.push_back(node);
  }
  all_ = std::make_unique<collectives::SumPlan>(std::span<const Node>(nodes_));
  for (int r = 0; r < count; ++r) {
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

/// LibTorch adds a sparse tensor to a dense one, and not the other way round.
at::Tensor added(const at::Tensor& a, const at::Tensor& b) {
  return a.is_sparse() && !b.is_sparse() ? b + a : a + b;
}

/// Sparse gradients are divided entry by entry.
void divide(at::Tensor& sum, double divisor) {
  if (divisor == 1) return;
  if (sum.is_sparse()) {
    sum._values().div_(divisor);
  } else {
    sum.div_(divisor);
  }
}

}  // namespace

void GradientSum::fold(int left, int right, int parameter) const {
  at::Tensor &a = gradients_[left][parameter], &b = gradients_[right][parameter];
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
  const at::Tensor& first = gradients_[0][parameter];
  const auto is_alike = [&](Node node) { return alike(first, gradients_[node.lo][parameter]); };
  const auto fits_base = [&](int owner) {
    return !base(owner, parameter).defined() || alike(first, base(owner, parameter));
  };
  return std::all_of(nodes_.begin(), nodes_.end(), is_alike) &&
         std::all_of(owners_.begin(), owners_.end(), fits_base);
}

bool GradientSum::sum(int parameter, Range range) const {
  if (!by_range(parameter)) {
    sum_whole(parameter);
    return true;
  }
  c10::SmallVector<const void*, 64> leaves;
  c10::SmallVector<void*, 64> outputs;
  for (const Node node : nodes_) leaves.push_back(gradients_[node.lo][parameter].data_ptr());
  for (const int r : owners_) outputs.push_back(gradients_[r][parameter].data_ptr());
  const auto dtype = gradients_[0][parameter].scalar_type();
  collectives::ordered_sum(dtype, *all_, {leaves.data(), leaves.size()},
                           {outputs.data(), outputs.size()}, range, divisor_);
  for (const int r : owners_) {
    if (!base(r, parameter).defined()) continue;
    void* const output = gradients_[r][parameter].data_ptr();
    const void* const both[] = {base(r, parameter).data_ptr(), output};
    collectives::ordered_sum(dtype, pair_, both, {&output, 1}, range);
  }
  return false;
}

/// Sparse gradients, other devices, layouts that differ between replicas, and sharded ones.
void GradientSum::sum_whole(int parameter) const {
  const at::NoGradGuard no_grad;
  at::Tensor sum = sum_of_node(parameter, {0, static_cast<int>(parameters_.size())});
  const bool is_own = nodes_.size() > 1;  // else it is a replica's gradient itself
  if (divisor_ != 1 && !is_own) sum = sum.clone();
  divide(sum, divisor_);
  for (const int r : owners_) {
    const at::Tensor own = copy_for(parameters_[r][parameter], sum);
    const at::Tensor& before = base(r, parameter);
    gradients_[r][parameter] = before.defined() ? added(before, own) : own;
  }
}

at::Tensor GradientSum::sum_of_node(int parameter, Node node) const {
  if (std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end()) {
    const at::Tensor own = gradients_[node.lo][parameter].detach();
    return spmd::is_sharded(own) ? own : own.to(parameters_[0][parameter].device());
  }
  const int cut = collectives::split_point(node.lo, node.hi);
  return sum_of(sum_of_node(parameter, {node.lo, cut}), sum_of_node(parameter, {cut, node.hi}));
}

}  // namespace cohort
