#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "cohort/collectives/chunks.h"
#include "cohort/collectives/ordered_sum.h"
#include "cohort/collectives/reduce_op.h"
#include "cohort/collectives/reduction_tree.h"
#include "cohort/distribute/replica_layout.h"
#include "cohort/optim/replica_gradients.h"

namespace cohort {

/// Tensors by replica and parameter: [replica][parameter].
using TensorTable = std::vector<std::vector<at::Tensor>>;

/// Adds up the gradients of all replicas where they lie, in tree order over the replica ids.
///
/// In two stages. Replicas of one device fold theirs first, as far as the tree lets them: `fold`
/// leaves the sum of a node with its first replica. `sum` adds what is left, one gradient for each
/// of those nodes, divides for a mean, adds each copy's base, and leaves the result with every
/// owner: the first replica of each copy of the parameters. Different parameters, and different
/// ranges of one, may be summed at the same time.
class GradientSum {
 public:
  /// `parameters[r][p]` is replica r's leaf of parameter p, `gradients[r][p]` what is summed, and
  /// `replicas[r]` has the bases; all must outlive this. `owner_of[r]` is the first replica of r's
  /// copy.
  GradientSum(const ReplicaLayout& layout, const TensorTable& parameters, TensorTable& gradients,
              const std::vector<ReplicaGradients>& replicas, const std::vector<int>& owner_of,
              ReduceOp op);

  /// Adds the right replica's gradient to the left one's, and frees it.
  void fold(int left, int right, int parameter) const;

  /// True if the gradients are alike, so that they can be summed range by range. Else `sum` takes
  /// the whole parameter, whatever the range.
  bool by_range(int parameter) const;

  /// True if the owners' gradients are other tensors than before, not the same ones changed.
  bool sum(int parameter, collectives::Range range) const;

 private:
  void sum_whole(int parameter) const;
  at::Tensor sum_of_node(int parameter, collectives::Node node) const;
  const at::Tensor& base(int replica, int parameter) const {
    return replicas_[replica].base(parameter);
  }

  const TensorTable& parameters_;
  TensorTable& gradients_;
  const std::vector<ReplicaGradients>& replicas_;
  const double divisor_;
  std::vector<int> owners_;                    // each once
  std::vector<collectives::Node> nodes_;       // what the replicas of each device fold
  std::unique_ptr<collectives::SumPlan> all_;  // adds the nodes
  const collectives::SumPlan pair_{2};
};

}  // namespace cohort
