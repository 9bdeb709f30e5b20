#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "cohort/collectives/chunks.h"
#include "cohort/collectives/ordered_sum.h"
#include "cohort/collectives/reduction_tree.h"
#include "cohort/distribute/replica_layout.h"

namespace cohort {

/// Adds up the gradients of all replicas where they lie, in tree order over the replica ids.
///
/// In two stages. Replicas of one device fold theirs first, as far as the tree lets them: `fold`
/// leaves the sum of a node with its first replica. `sum` adds what is left, one gradient for each
/// of those nodes, and gives the result to every owner: the first replica of each copy of the
/// parameters. Different parameters, and different ranges of one, may be summed at the same time.
class GradientSum {
 public:
  /// `parameters[r][p]` is replica r's leaf of parameter p, and must outlive this; `owner_of[r]`
  /// the first replica of r's copy.
  GradientSum(const ReplicaLayout& layout, const std::vector<std::vector<at::Tensor>>& parameters,
              const std::vector<int>& owner_of);

  /// Adds the right replica's gradient to the left one's, and frees it.
  void fold(int left, int right, int parameter) const;

  /// True if the gradients are alike, so that they can be summed range by range. Else `sum` takes
  /// the whole parameter, whatever the range.
  bool by_range(int parameter) const;

  void sum(int parameter, collectives::Range range) const;

 private:
  void sum_whole(int parameter) const;
  at::Tensor sum_of_node(int parameter, collectives::Node node) const;
  at::Tensor& grad(int replica, int parameter) const {
    return parameters_[replica][parameter].mutable_grad();
  }

  const std::vector<std::vector<at::Tensor>>& parameters_;
  std::vector<int> owners_;                    // each once
  std::vector<collectives::Node> nodes_;       // what the replicas of each device fold
  std::unique_ptr<collectives::SumPlan> all_;  // adds the nodes
  const collectives::SumPlan pair_{2};
};

/// A sparse tensor of the same kind without entries, in memory of its own. (LibTorch 1.13's
/// zeros_like and zero_ make another kind.)
at::Tensor without_entries(const at::Tensor& sparse);

}  // namespace cohort
