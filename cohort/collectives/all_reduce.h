#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/collectives/chunks.h"
#include "cohort/collectives/meeting.h"
#include "cohort/collectives/ordered_sum.h"
#include "cohort/collectives/reduce_op.h"
#include "cohort/collectives/tensor_reduction.h"
#include "cohort/collectives/world.h"

namespace cohort::collectives {

/// What a replica brings to an all_reduce: one tensor for each leaf of its nest.
///
/// Every replica gets tensors of its own. The sum of a node of the tree over all replicas is read
/// where the contributions lie, in chunks that the waiting threads share; the order of addition is
/// the tree's, so who does which chunk changes nothing. Where this worker holds the root, it is
/// written to all results at once. Else the sum of each node is left in the result of its first
/// replica, the workers add them, and what is left to do is to copy.
class AllReduce : public Contribution {
 public:
  /// An accumulation, which must outlive the meeting, takes the place of addition.
  AllReduce(World& world, ReduceOp op, std::vector<at::Tensor> values,
            const Accumulation& accumulation);

  /// The results, after the meeting.
  std::vector<at::Tensor> take() { return std::move(results_); }

  std::string describe() const override;
  std::optional<std::string> mismatch(const Contribution& other) const override;
  std::int64_t plan(std::span<Contribution* const> all) override;
  void work(std::int64_t piece) override;
  std::int64_t next_stage() override;

 private:
  /// A chunk of one leaf, and the sum that it is part of.
  struct Piece {
    std::size_t leaf, node;
    Range range;
  };
  /// Where a leaf's contributions and results lie, in replica order.
  struct Buffers {
    std::vector<const void*> values;
    std::vector<void*> results;
  };

  void allocate_results();
  void plan_leaf(std::size_t leaf, std::span<Contribution* const> all);
  void reduce_whole(std::size_t leaf, std::span<Contribution* const> all);
  void add_pieces(std::size_t leaf, std::size_t node);
  void add_over_workers();
  std::string call() const;

  World& world_;
  const ReduceOp op_;
  const Accumulation& accumulation_;
  std::vector<at::Tensor> values_;
  std::vector<at::Tensor> results_;

  // Of the leader, made by `plan`.
  enum class Stage { ADD, COPY, DONE } stage_ = Stage::ADD;
  std::vector<SumPlan> sums_;  // of each of the worker's nodes
  std::vector<Buffers> buffers_;
  std::vector<Piece> pieces_;
};

/// What a replica brings to an all_gather; every replica gets the concatenation along the axis.
class AllGather : public Contribution {
 public:
  /// Tensors may differ in size along the axis, unless `equal_sizes` says otherwise.
  AllGather(World& world, std::vector<at::Tensor> values, std::int64_t axis,
            bool equal_sizes = false);

  std::vector<at::Tensor> take() { return std::move(results_); }

  std::string describe() const override;
  std::optional<std::string> mismatch(const Contribution& other) const override;
  std::int64_t plan(std::span<Contribution* const> all) override;
  void work(std::int64_t piece) override;

 private:
  World& world_;
  const std::int64_t axis_;
  const bool equal_sizes_;
  std::vector<at::Tensor> values_;
  std::vector<at::Tensor> results_;

  // Of the leader, made by `plan`.
  std::vector<AllGather*> all_;
  std::vector<at::Tensor> of_world_;  // the values of all replicas, one replica after the other
};

}  // namespace cohort::collectives
