#include "cohort/collectives/all_reduce.h"

#include <ATen/ATen.h>

#include "cohort/base/error.h"
#include "cohort/collectives/tensor_reduction.h"

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

/// The kernel reads dense memory of the CPU; anything else goes through LibTorch's operations.
bool kernel_reads(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided;
}

}  // namespace

AllReduce::AllReduce(ReduceOp op, std::vector<at::Tensor> values, const Accumulation& accumulation)
    : op_(op), accumulation_(accumulation), values_(std::move(values)) {
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
    const bool same = a.dtype() == b.dtype() && a.sizes() == b.sizes() && a.layout() == b.layout();
    if (!same) return cat("leaf ", i, " must have the same dtype and shape on all replicas");
  }
  return std::nullopt;
}

std::int64_t AllReduce::plan(std::span<Contribution* const> all) {
  sum_ = std::make_unique<const SumPlan>(static_cast<int>(all.size()));
  buffers_.resize(values_.size());
  for (std::size_t leaf = 0; leaf < values_.size(); ++leaf) plan_leaf(leaf, all);
  return static_cast<std::int64_t>(pieces_.size());
}

void AllReduce::plan_leaf(std::size_t leaf, std::span<Contribution* const> all) {
  const at::Tensor& value = values_[leaf];
  const bool divides_later =
      op_ == ReduceOp::MEAN && quotient_dtype(value.scalar_type()) != value.scalar_type();
  const bool alone = all.size() == 1;
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
  const std::int64_t chunk = kChunkBytes / static_cast<std::int64_t>(value.element_size());
  for (std::int64_t begin = 0; begin < value.numel(); begin += chunk) {
    pieces_.push_back({leaf, {begin, std::min(begin + chunk, value.numel())}});
  }
}

/// Sparse tensors, other devices, the mean of integers, the value of an only replica, and what the
/// user adds up in another way: at once, in the host's thread.
void AllReduce::reduce_whole(std::size_t leaf, std::span<Contribution* const> all) {
  std::vector<at::Tensor> values;
  for (Contribution* each : all) values.push_back(static_cast<AllReduce&>(*each).values_[leaf]);
  const at::Tensor result = reduce_tensors(op_, values, accumulation_);
  if (all.size() == 1 && !accumulation_) {  // a new tensor, for nobody else
    results_[leaf] = result;
    return;
  }
  for (Contribution* each : all) {
    auto& call = static_cast<AllReduce&>(*each);
    call.results_[leaf] = result.to(call.values_[leaf].device(), false, /*copy=*/true);
  }
}

void AllReduce::work(std::int64_t piece) {
  const auto& [leaf, range] = pieces_[piece];
  const double divisor = op_ == ReduceOp::MEAN ? static_cast<double>(sum_->leaves()) : 1;
  ordered_sum(values_[leaf].scalar_type(), *sum_, buffers_[leaf].values, buffers_[leaf].results,
              range, divisor);
}

AllGather::AllGather(std::vector<at::Tensor> values, std::int64_t axis, bool equal_sizes)
    : axis_(axis),
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
    if (values_[i].sizes() == other.values_[i].sizes()) continue;
    return cat("leaf ", i, " must have the same shape on all replicas of this strategy");
  }
  return std::nullopt;
}

std::int64_t AllGather::plan(std::span<Contribution* const> all) {
  for (Contribution* each : all) all_.push_back(static_cast<AllGather*>(each));
  return static_cast<std::int64_t>(values_.size());
}

void AllGather::work(std::int64_t leaf) {
  std::vector<at::Tensor> values;
  values.reserve(all_.size());
  for (AllGather* each : all_) values.push_back(each->values_[leaf]);
  const at::Tensor result = gather_tensors("replica_context.all_gather", values, axis_);
  for (AllGather* each : all_) {
    each->results_[leaf] = result.to(each->values_[leaf].device(), false, /*copy=*/true);
  }
}

}  // namespace cohort::collectives
