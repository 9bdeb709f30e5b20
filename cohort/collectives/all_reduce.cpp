#include "cohort/collectives/all_reduce.h"

#include <ATen/ATen.h>

#include "cohort/base/error.h"
#include "cohort/base/whole_tensor.h"
#include "cohort/collectives/tensor_reduction.h"
#include "cohort/collectives/world_sum.h"
#include "cohort/collectives/world_tensors.h"

namespace cohort::collectives {
namespace {

std::string describe_all(std::span<const at::Tensor> values) {
  constexpr std::size_t kShown = 4;
  std::string text;
  for (std::size_t i = 0; i < values.size() && i < kShown; ++i) {
    text += (i ? ", " : "") + describe(values[i]);
  }
  return values.size() > kShown ? cat(text, " and ", values.size() - kShown, " more") : text;
}

std::string is_nested_text(std::size_t leaf) {
  return cat("leaf ", leaf, " must be a tensor of one size, and not nested: ", kPadIt);
}

}  // namespace

AllReduce::AllReduce(World& world, ReduceOp op, std::vector<at::Tensor> values,
                     const Accumulation& accumulation)
    : world_(world), op_(op), accumulation_(accumulation), values_(std::move(values)) {
  for (at::Tensor& value : values_) {
    if (kernel_reads(value)) value = as_read(value);
  }
  allocate_results();
}

void AllReduce::allocate_results() {
  for (const at::Tensor& value : values_) {
    results_.push_back(kernel_reads(value) ? at::empty(value.sizes(), value.options())
                                           : at::Tensor());
  }
}

std::string AllReduce::describe() const {
  return cat("all_reduce(", op_, ") of ", describe_all(values_));
}

std::optional<std::string> AllReduce::mismatch(const Contribution& contribution) const {
  const auto& other = static_cast<const AllReduce&>(contribution);
  if (op_ != other.op_) return "the reduce op must be the same on all replicas";
  if (values_.size() != other.values_.size()) return "the nests must have as many leaves";
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const at::Tensor &a = values_[i], &b = other.values_[i];
    if (a.is_nested() || b.is_nested()) return is_nested_text(i);
    const bool same = a.dtype() == b.dtype() && a.sizes() == b.sizes() && a.layout() == b.layout();
    if (!same) return cat("leaf ", i, " must have the same dtype and shape on all replicas");
  }
  return std::nullopt;
}

std::int64_t AllReduce::plan(std::span<Contribution* const> all) {
  for (const Node node : world_.nodes()) {
    std::vector<Node> replicas;
    for (int r = node.lo; r < node.hi; ++r) replicas.push_back({r, r + 1});
    sums_.emplace_back(std::span<const Node>(replicas));
  }
  buffers_.resize(values_.size());
  for (std::size_t leaf = 0; leaf < values_.size(); ++leaf) plan_leaf(leaf, all);
  return static_cast<std::int64_t>(pieces_.size());
}

void AllReduce::plan_leaf(std::size_t leaf, std::span<Contribution* const> all) {
  const at::Tensor& value = values_[leaf];
  const bool divides_later =
      op_ == ReduceOp::MEAN && quotient_dtype(value.scalar_type()) != value.scalar_type();
  const bool alone = world_.replicas() == 1;
  const bool is_added = !alone && !accumulation_ && !value.is_sparse();
  if (is_added) check_addable("replica_context.all_reduce", value.scalar_type());
  if (!kernel_reads(value) || divides_later || alone || accumulation_) {
    return reduce_whole(leaf, all);
  }
  for (Contribution* each : all) {
    auto& call = static_cast<AllReduce&>(*each);
    buffers_[leaf].values.push_back(call.values_[leaf].data_ptr());
    buffers_[leaf].results.push_back(call.results_[leaf].data_ptr());
  }
  for (std::size_t node = 0; node < sums_.size(); ++node) {
    if (sums_[node].leaves() > 1) add_pieces(leaf, node);
  }
}

void AllReduce::add_pieces(std::size_t leaf, std::size_t node) {
  const at::Tensor& value = values_[leaf];
  const std::int64_t chunk = kChunkBytes / static_cast<std::int64_t>(value.element_size());
  for (std::int64_t begin = 0; begin < value.numel(); begin += chunk) {
    pieces_.push_back({leaf, node, {begin, std::min(begin + chunk, value.numel())}});
  }
}

/// Sparse tensors, other devices, the mean of integers, the value of an only replica, and what the
/// user adds up in another way: at once, in the host's thread.
void AllReduce::reduce_whole(std::size_t leaf, std::span<Contribution* const> all) {
  std::vector<at::Tensor> values;
  for (Contribution* each : all) values.push_back(static_cast<AllReduce&>(*each).values_[leaf]);
  const at::Tensor result = reduce_over_world(world_.replicas_lane(), cat(call(), " leaf ", leaf),
                                              op_, values, accumulation_);
  if (world_.replicas() == 1 && !accumulation_) {  // a new tensor, for nobody else
    results_[leaf] = result;
    return;
  }
  for (Contribution* each : all) {
    auto& call = static_cast<AllReduce&>(*each);
    call.results_[leaf] = result.to(call.values_[leaf].device(), false, /*copy=*/true);
  }
}

void AllReduce::work(std::int64_t piece) {
  const auto& [leaf, node, range] = pieces_[piece];
  Buffers& buffers = buffers_[leaf];
  if (stage_ == Stage::COPY) {
    return broadcast_bytes(buffers.results[0], std::span(buffers.results).subspan(1), range);
  }
  const int first = world_.place_of(world_.nodes()[node].lo);
  const SumPlan& sum = sums_[node];
  const std::span<const void* const> values(buffers.values.data() + first, sum.leaves());
  const std::span<void* const> results(buffers.results);
  const bool is_whole = world_.holds_root();
  const double divisor = op_ == ReduceOp::MEAN && is_whole ? world_.replicas() : 1;
  ordered_sum(values_[leaf].scalar_type(), sum, values,
              is_whole ? results : results.subspan(first, 1), range, divisor);
}

std::int64_t AllReduce::next_stage() {
  if (stage_ == Stage::COPY || world_.holds_root()) return 0;
  stage_ = Stage::COPY;
  add_over_workers();
  pieces_.clear();
  for (std::size_t leaf = 0; leaf < values_.size(); ++leaf) {
    if (buffers_[leaf].results.size() < 2) continue;
    const auto bytes = static_cast<std::int64_t>(values_[leaf].nbytes());
    for (std::int64_t begin = 0; begin < bytes; begin += kChunkBytes) {
      pieces_.push_back({leaf, 0, {begin, std::min(begin + kChunkBytes, bytes)}});
    }
  }
  return static_cast<std::int64_t>(pieces_.size());
}

/// The sum of a node lies in the result of its first replica; of a single replica, in its value.
void AllReduce::add_over_workers() {
  std::vector<WorldSum::Segment> segments;
  std::vector<std::vector<void*>> nodes(sums_.size());
  std::vector<void*> results;
  for (std::size_t leaf = 0; leaf < values_.size(); ++leaf) {
    const Buffers& buffers = buffers_[leaf];
    if (buffers.results.empty()) continue;  // reduced as a whole
    segments.push_back({values_[leaf].scalar_type(), values_[leaf].numel()});
    results.push_back(buffers.results[0]);
    for (std::size_t node = 0; node < sums_.size(); ++node) {
      const int first = world_.place_of(world_.nodes()[node].lo);
      const bool is_single = sums_[node].leaves() == 1;
      nodes[node].push_back(is_single ? const_cast<void*>(buffers.values[first])
                                      : buffers.results[first]);
    }
  }
  if (segments.empty()) return;
  const double divisor = op_ == ReduceOp::MEAN ? world_.replicas() : 1;
  WorldSum(world_, std::move(segments))
      .run(world_.replicas_lane(), call(), nodes, results, divisor);
}

/// Every tensor of it, where `describe` leaves some out.
std::string AllReduce::call() const {
  constexpr std::size_t kDescribed = 4;
  return values_.size() <= kDescribed ? describe() : call_with_tensors(describe(), values_);
}

AllGather::AllGather(World& world, std::vector<at::Tensor> values, std::int64_t axis,
                     bool equal_sizes)
    : world_(world),
      axis_(axis),
      equal_sizes_(equal_sizes),
      values_(std::move(values)),
      results_(values_.size()) {}

std::string AllGather::describe() const {
  return cat("all_gather(axis ", axis_, ") of ", describe_all(values_));
}

std::optional<std::string> AllGather::mismatch(const Contribution& contribution) const {
  const auto& other = static_cast<const AllGather&>(contribution);
  if (axis_ != other.axis_) return "the axis must be the same on all replicas";
  if (values_.size() != other.values_.size()) return "the nests must have as many leaves";
  for (std::size_t i = 0; equal_sizes_ && i < values_.size(); ++i) {
    if (values_[i].is_nested() || other.values_[i].is_nested()) return is_nested_text(i);
    if (values_[i].sizes() == other.values_[i].sizes()) continue;
    return cat("leaf ", i, " must have the same shape on all replicas of this strategy");
  }
  return std::nullopt;
}

std::int64_t AllGather::plan(std::span<Contribution* const> all) {
  std::vector<at::Tensor> own;
  for (Contribution* each : all) {
    all_.push_back(static_cast<AllGather*>(each));
    own.insert(own.end(), all_.back()->values_.begin(), all_.back()->values_.end());
  }
  of_world_ =
      all_of_world(world_.replicas_lane(),
                   cat("all_gather(axis ", axis_, ") of ", values_.size(), " tensors"), own);
  return static_cast<std::int64_t>(values_.size());
}

void AllGather::work(std::int64_t leaf) {
  std::vector<at::Tensor> values;
  for (std::size_t i = leaf; i < of_world_.size(); i += values_.size()) {
    values.push_back(of_world_[i]);
  }
  const at::Tensor result = gather_tensors("replica_context.all_gather", values, axis_);
  for (AllGather* each : all_) {
    each->results_[leaf] = result.to(each->values_[leaf].device(), false, /*copy=*/true);
  }
}

}  // namespace cohort::collectives
