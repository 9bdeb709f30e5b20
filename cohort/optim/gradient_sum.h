#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "cohort/collectives/chunks.h"
#include "cohort/collectives/ordered_sum.h"
#include "cohort/collectives/reduce_op.h"
#include "cohort/collectives/reduction_tree.h"
#include "cohort/collectives/world_sum.h"
#include "cohort/distribute/replica_layout.h"
#include "cohort/optim/replica_gradients.h"

namespace cohort {

/// Tensors by replica and parameter: [replica][parameter].
using TensorTable = std::vector<std::vector<at::Tensor>>;

/// Adds up the gradients of all replicas where they lie, in tree order over the replica ids.
///
/// In stages. Replicas of one device fold theirs first, as far as the tree lets them: `fold` leaves
/// the sum of a node with its first replica. `sum` adds what is left of each node that this worker
/// holds. Where that is the root, it divides for a mean, adds each copy's base, and leaves the
/// result with every owner: the first replica of each copy of the parameters. Else it leaves the
/// sum with the first replica of the node; `add_workers` adds the nodes of all workers, and
/// `finish` does the rest. Different parameters, and different ranges of one, may be summed at the
/// same time.
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

  /// Adds up what this worker holds.
  void sum(int parameter, collectives::Range range) const;

  /// Adds the nodes of all workers, of these parameters, which `sum` is done with; the total is
  /// left with the first local replica. `kept` has the memory for it, from one call to the next.
  /// Every worker calls it with the same parameters, of which it says the same in `is_sparse`.
  void add_workers(WorldLane& lane, const std::string& call, const std::vector<int>& parameters,
                   const std::vector<std::uint8_t>& is_sparse,
                   std::unique_ptr<WorldSum>& kept) const;

  /// Gives the total to all owners.
  void finish(int parameter, collectives::Range range) const;

 private:
  /// A node that this worker holds, and what it is made of.
  struct Sum {
    collectives::Node node;
    std::vector<collectives::Node> folded;  // what the replicas of each device fold
    collectives::SumPlan plan;
  };

  void sum_whole(int parameter) const;
  void add_base(int owner, int parameter, collectives::Range range) const;
  void finish_whole(int parameter, const at::Tensor& total) const;
  at::Tensor sum_of_node(int parameter, const Sum& sum) const;
  at::Tensor divided(const at::Tensor& sum) const;
  void add_sparse_workers(WorldLane& lane, const std::string& call, int parameter) const;
  void take_layout_of_parameter(collectives::Node node, int parameter) const;
  at::Tensor& gradient_of(collectives::Node node, int parameter) const {
    return gradients_[world_.place_of(node.lo)][parameter];
  }
  const at::Tensor& base(int replica, int parameter) const {
    return replicas_[replica].base(parameter);
  }

  const World& world_;
  const TensorTable& parameters_;
  TensorTable& gradients_;
  const std::vector<ReplicaGradients>& replicas_;
  const int divisor_;
  std::vector<int> owners_;  // each once
  std::vector<Sum> sums_;
  const collectives::SumPlan pair_{2};
};

}  // namespace cohort
