#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <vector>

#include "cohort/distribute/run_options.h"
#include "cohort/distribute/scope.h"
#include "cohort/distribute/strategy_extended.h"

namespace cohort {

namespace data {
template <class T>
class Dataset;
}
class ClusterResolver;
template <class T>
class DistributedDataset;
struct InputOptions;

/// What a replica is told when a value is made for it.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

/// A way to spread training over devices: a small value that holds its `StrategyExtended`.
///
/// Copies are the same strategy. Destroying the last one waits for a run in flight. All methods may
/// be called from several threads; runs of one strategy from two threads go on side by side.
///
///     cohort::Strategy strategy = cohort::MirroredStrategy();
///     auto scope = strategy.scope();
///     …                                                   // make model and optimizer
///     auto losses = strategy.run(step, batch);            // on every replica
///     auto loss = strategy.reduce(ReduceOp::SUM, losses); // one tensor
class Strategy {
 public:
  explicit Strategy(const std::shared_ptr<StrategyExtended>& extended);

  StrategyExtended& extended() const { return *extended_; }

  /// How many replicas the gradients are summed over, on all workers.
  int num_replicas_in_sync() const { return extended_->num_replicas_in_sync(); }

  /// What tells which tasks the cluster has; null for a strategy of one machine.
  std::shared_ptr<ClusterResolver> cluster_resolver() const {
    return extended_->cluster_resolver();
  }

  /// Makes the strategy current in this thread while the result lives.
  [[nodiscard]] Scope scope() const { return Scope(extended_->shared_from_this()); }

  /// Calls fn(args…) once on each replica, all at the same time. Of distributed arguments, and of
  /// distributed values in nests, each replica gets its own component; everything else is given to
  /// all as it is. A function that takes (images, labels) may be given a pair or tuple of them.
  /// Returns the results leaf by leaf as PerReplica; void gives nothing.
  ///
  /// When replicas throw, the others are stopped and the exception of the lowest one is rethrown;
  /// `failed_replica()` tells which it was. The strategy can be used afterwards.
  template <class F, class... Args>
    requires(!std::same_as<std::remove_cvref_t<F>, RunOptions>)
  auto run(F&& fn, const Args&... args) const;
  template <class F, class... Args>
  auto run(const RunOptions& options, F&& fn, const Args&... args) const;

  /// One tensor for each leaf: the sum or mean over replicas, and over `axis` of each replica's
  /// tensor. With an axis the mean is over all elements, however unevenly they are spread.
  template <class Nest>
  auto reduce(ReduceOp op, const Nest& value, const Axis& axis = {}) const;

  /// The components of each leaf, concatenated along `axis` in replica order.
  template <class Nest>
  auto gather(const Nest& value, std::int64_t axis) const;

  /// This process's components of a value, in replica order. A nest gives one nest for each
  /// replica; a value that is not distributed is the only element.
  template <class T>
  auto local_results(const T& value) const;

  /// One value for each replica, from fn(const ValueContext&). Throws RuntimeError in a replica.
  template <class F>
  auto distribute_values_from_function(F&& fn) const;

  // Input. Defined in `input/`.

  /// The dataset as the replicas get it: each of its batches is cut into a piece for each replica,
  /// in replica order. With several workers, the policy in the options says who reads what.
  template <class T>
  DistributedDataset<T> distribute_dataset(const data::Dataset<T>& dataset) const;
  template <class T>
  DistributedDataset<T> distribute_dataset(const data::Dataset<T>& dataset,
                                           const InputOptions& options) const;

  /// The dataset that fn(const InputContext&) makes for this worker: its elements, which are not
  /// cut, go to the replicas in turn.
  template <class F>
  auto distribute_datasets_from_function(F&& fn) const;
  template <class F>
  auto distribute_datasets_from_function(F&& fn, const InputOptions& options) const;

  /// A dataset of the rows of arrays: of a file that NumPy wrote, of tensors, of numbers.
  template <class Nest>
  auto make_numpy_dataset(const Nest& arrays) const;

  // Logical devices: one replica spread over several. Defined in `spmd/`.

  /// The tensor on one logical device of the replica that calls this, whose thread will run the
  /// operations on it. No value changes, and gradients flow back. Throws ValueError for a device
  /// that a replica does not have, outside of replicas, and where the strategy partitions by
  /// itself.
  at::Tensor assign_to_logical_device(const at::Tensor& tensor, int logical_device) const;

  /// The tensor cut into tiles: dimension d into `partition_dimensions[d]` parts, one tile for each
  /// logical device, in row-major order. Operations on it run on all devices at once; convolutions
  /// and the like exchange what lies at the edges. Throws ValueError unless there is a number for
  /// each dimension, all but the first dimension divide evenly, and the product is the number of
  /// logical devices.
  at::Tensor split_to_logical_devices(const at::Tensor& tensor,
                                      const std::vector<std::int64_t>& partition_dimensions) const;

  /// The tensor as all logical devices see it whole.
  at::Tensor replicate_to_logical_devices(const at::Tensor& tensor) const;

  /// True for handles of the same strategy.
  friend bool operator==(const Strategy& a, const Strategy& b) {
    return a.extended_.get() == b.extended_.get();
  }

 private:
  std::shared_ptr<StrategyExtended> extended_;
};

}  // namespace cohort

#include "cohort/distribute/strategy_templates.h"
