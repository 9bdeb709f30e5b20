#include "cohort/optim/gradient_sum.h"

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <optional>

#include "cohort/collectives/tensor_reduction.h"
#include "cohort/collectives/world_tensors.h"
#include "cohort/spmd/sharded_tensor.h"

namespace cohort {

using collectives::Node;
using collectives::Range;

GradientSum::GradientSum(const ReplicaLayout& layout, const TensorTable& parameters,
                         TensorTable& gradients, const std::vector<ReplicaGradients>& replicas,
                         const std::vector<int>& owner_of, ReduceOp op)
    : world_(layout.world()),
      parameters_(parameters),
      gradients_(gradients),
      replicas_(replicas),
      divisor_(op == ReduceOp::MEAN ? layout.global() : 1) {
  const int count = static_cast<int>(parameters.size());
  const collectives::ReductionTree tree(layout.global());
  for (const Node node : world_.nodes()) {
    std::vector<Node> folded;
    for (int device = 0; device < layout.copies(); ++device) {
      const int end = device + 1 < layout.copies() ? layout.owner_of(device + 1) : count;
      const int first = std::max(node.lo, layout.id_of(layout.owner_of(device)));
      const int last = std::min(node.hi, layout.id_of(end));
      if (first >= last) continue;
      for (const Node part : tree.subtrees(first, last)) folded.push_back(part);
    }
    sums_.push_back({node, folded, collectives::SumPlan(std::span<const Node>(folded))});
  }
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
  for (const Sum& sum : sums_) {
    for (const Node node : sum.folded) {
      if (!alike(first, gradient_of(node, parameter))) return false;
    }
  }
  return std::all_of(owners_.begin(), owners_.end(), [&](int owner) {
    return !base(owner, parameter).defined() || alike(first, base(owner, parameter));
  });
}

void GradientSum::sum(int parameter, Range range) const {
  if (!by_range(parameter)) return sum_whole(parameter);
  const bool is_whole = world_.holds_root();
  const auto dtype = gradients_[0][parameter].scalar_type();
  c10::SmallVector<void*, 64> outputs;
  for (const int r : owners_) outputs.push_back(gradients_[r][parameter].data_ptr());
  for (const Sum& sum : sums_) {
    if (sum.folded.size() == 1 && !is_whole) continue;
    c10::SmallVector<const void*, 64> leaves;
    for (const Node node : sum.folded) leaves.push_back(gradient_of(node, parameter).data_ptr());
    void* const first = gradient_of(sum.node, parameter).data_ptr();
    const std::span<void* const> all(outputs.data(), outputs.size());
    collectives::ordered_sum(dtype, sum.plan, {leaves.data(), leaves.size()},
                             is_whole ? all : std::span<void* const>(&first, 1), range,
                             is_whole ? divisor_ : 1);
  }
  for (const int r : owners_) {
    if (is_whole) add_base(r, parameter, range);
  }
}

void GradientSum::add_base(int owner, int parameter, Range range) const {
  if (!base(owner, parameter).defined()) return;
  void* const output = gradients_[owner][parameter].data_ptr();
  const void* const both[] = {base(owner, parameter).data_ptr(), output};
  collectives::ordered_sum(gradients_[owner][parameter].scalar_type(), pair_, both, {&output, 1},
                           range);
}

/// Sparse gradients, other devices, layouts that differ between replicas, and sharded ones.
void GradientSum::sum_whole(int parameter) const {
  const at::NoGradGuard no_grad;
  for (const Sum& sum : sums_) {
    if (!world_.holds_root() && sum.folded.size() == 1) continue;
    const at::Tensor total = sum_of_node(parameter, sum);
    if (world_.holds_root()) {
      finish_whole(parameter, divided(total));
    } else {
      gradient_of(sum.node, parameter) = total;
    }
  }
}

at::Tensor GradientSum::divided(const at::Tensor& sum) const {
  return divisor_ == 1 ? sum : collectives::quotient(sum, divisor_);
}

/// To the owners.
void GradientSum::finish_whole(int parameter, const at::Tensor& total) const {
  for (const int r : owners_) {
    const at::Tensor own = copy_for(parameters_[r][parameter], total);
    const at::Tensor& before = base(r, parameter);
    gradients_[r][parameter] = before.defined() ? added(before, own) : own;
  }
}

at::Tensor GradientSum::sum_of_node(int parameter, const Sum& sum) const {
  const auto held = [&](Node node) -> std::optional<at::Tensor> {
    const auto& folded = sum.folded;
    if (std::find(folded.begin(), folded.end(), node) == folded.end()) return std::nullopt;
    const at::Tensor own = gradient_of(node, parameter).detach();
    return spmd::is_sharded(own) ? own : own.to(parameters_[0][parameter].device());
  };
  return collectives::add_up(sum.node, held, sum_of);
}

// Over workers.

namespace {

bool is_like_parameter(const at::Tensor& gradient, const at::Tensor& parameter) {
  return gradient.layout() == at::kStrided && gradient.device().is_cpu() &&
         gradient.dtype() == parameter.dtype() && gradient.sizes() == parameter.sizes() &&
         gradient.strides() == parameter.strides() && gradient.is_non_overlapping_and_dense();
}

/// The memory of a gradient that lies like its parameter, in parts if that is split.
std::vector<at::Tensor> parts_of(const at::Tensor& gradient) {
  if (!spmd::is_sharded(gradient)) return {gradient};
  return {spmd::impl(gradient)->tiles().begin(), spmd::impl(gradient)->tiles().end()};
}

}  // namespace

/// All workers lay the elements of a gradient out as those of the parameter.
void GradientSum::take_layout_of_parameter(Node node, int parameter) const {
  at::Tensor& gradient = gradient_of(node, parameter);
  const at::Tensor& own = parameters_[world_.place_of(node.lo)][parameter];
  if (spmd::is_sharded(own)) {
    std::vector<at::Tensor> tiles;
    for (const at::Tensor& tile : spmd::impl(gradient)->tiles()) tiles.push_back(tile.contiguous());
    gradient = spmd::wrap(spmd::impl(gradient)->mesh(), spmd::impl(gradient)->layout(), tiles);
  } else if (!is_like_parameter(gradient, own)) {
    const at::Tensor dense = gradient.is_sparse() ? gradient.to_dense() : gradient;
    gradient = at::empty_strided(own.sizes(), own.strides(), own.options()).copy_(dense);
  }
}

void GradientSum::add_workers(WorldLane& lane, const std::string& call,
                              const std::vector<int>& parameters,
                              const std::vector<std::uint8_t>& is_sparse,
                              std::unique_ptr<WorldSum>& kept) const {
  const at::NoGradGuard no_grad;
  std::vector<WorldSum::Segment> segments;
  std::vector<std::vector<void*>> nodes(sums_.size());
  for (const int p : parameters) {
    if (is_sparse[p]) {
      add_sparse_workers(lane, cat(call, " (parameter ", p, ')'), p);
      continue;
    }
    for (std::size_t j = 0; j < sums_.size(); ++j) {
      take_layout_of_parameter(sums_[j].node, p);
      for (const at::Tensor& part : parts_of(gradient_of(sums_[j].node, p))) {
        if (j == 0) segments.push_back({part.scalar_type(), part.numel()});
        nodes[j].push_back(part.data_ptr());
      }
    }
  }
  if (segments.empty()) return;
  if (!kept || !kept->is_for(segments)) kept = std::make_unique<WorldSum>(world_, segments);
  kept->run(lane, call, nodes, nodes[0], divisor_);
}

/// The entries of all replicas, one after the other.
void GradientSum::add_sparse_workers(WorldLane& lane, const std::string& call,
                                     int parameter) const {
  std::vector<at::Tensor> own;
  for (const Sum& sum : sums_) own.push_back(gradient_of(sum.node, parameter));
  const auto all = all_of_world(lane, call, own);
  gradients_[0][parameter] = divided(collectives::reduce_tensors(ReduceOp::SUM, all));
}

void GradientSum::finish(int parameter, Range range) const {
  const at::Tensor total = gradients_[0][parameter];  // not what its base is added to
  const bool are_alike = std::all_of(owners_.begin(), owners_.end(), [&](int r) {
    return alike(total, gradients_[r][parameter]) &&
           (!base(r, parameter).defined() || alike(total, base(r, parameter)));
  });
  if (!are_alike) {
    const at::NoGradGuard no_grad;
    if (range.begin == 0) finish_whole(parameter, total);
    return;
  }
  const auto size = static_cast<std::int64_t>(total.element_size());
  c10::SmallVector<void*, 64> outputs;
  for (const int r : owners_) {
    if (r > 0) outputs.push_back(gradients_[r][parameter].data_ptr());
  }
  if (!outputs.empty()) {
    collectives::broadcast_bytes(total.data_ptr(), {outputs.data(), outputs.size()},
                                 {range.begin * size, range.end * size});
  }
  for (const int r : owners_) add_base(r, parameter, range);
}

}  // namespace cohort
