#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/base/mutex.h"
#include "cohort/base/torch_compat.h"
#include "cohort/collectives/meeting.h"
#include "cohort/distribute/strategy.h"
#include "cohort/optim/gradient_buckets.h"
#include "cohort/optim/gradient_sum.h"
#include "cohort/optim/optimizer_options.h"

namespace cohort {

/// Sums the gradients of all replicas, in buckets, while backward runs.
///
/// A hook notes each gradient when autograd has made it. When the last replica has all gradients
/// of a bucket, they are added up where they lie: in tree order over the replica ids, in place, so
/// that the first replica of each copy (the owner) holds the sum. Replicas that are ahead of the
/// others in their backward pass do it, so that summing costs none of the slowest one's time; what
/// is left when all are done, they share. Where several replicas share a device, a replica's
/// gradients are folded into the partial sums of the tree as soon as they are ready and their
/// memory is freed, so that memory grows with the tree's depth.
///
/// One object for each optimizer; its methods are called by all replicas, each in its own thread.
class GradientReducer {
 public:
  /// `parameters[r][p]` is replica r's leaf of parameter p; `owner_of[r]` the first replica of r's
  /// copy of the parameters.
  GradientReducer(StrategyExtended& strategy, std::vector<std::vector<at::Tensor>> parameters,
                  std::vector<std::string> names, std::vector<int> owner_of,
                  const OptimizerOptions& options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Returns when the owners' gradients are the sums over all replicas; the other replicas of a
  /// copy see the same tensors. Throws ValueError for a parameter with a gradient on some replicas
  /// only.
  void synchronize(ReplicaContext& replica);

  /// While off, the replica's gradients stay its own and add up over backward passes.
  void set_syncing(int replica, bool on) { members_[replica].syncing = on; }
  bool syncing(int replica) const { return members_[replica].syncing; }

  /// Forgets a replica's gradients: undefined, or zeros.
  void zero_grad(int replica, bool set_to_none);

  /// Forgets which gradients have come. Outside of replicas.
  void start_over() { start_round(); }

  /// Another optimizer has taken over the parameters: backward calls this one no more.
  void retire() { hooks_.reset(); }
  bool is_retired() const { return !hooks_; }

  const std::vector<at::Tensor>& parameters(int replica) const { return parameters_[replica]; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  class Sync;    // what a replica brings to the meeting of `synchronize`
  struct Hooks;  // what autograd calls; refers back weakly

  struct Bucket : GradientBucket {
    Bucket(GradientBucket bucket, int replicas)
        : GradientBucket(std::move(bucket)), node_size(replicas), has_come(replicas) {}
    std::atomic<int> arrived{0};          // replicas that have all its gradients
    std::vector<int> node_size;           // of the folded node that begins at each replica; or 0
    std::vector<std::uint8_t> has_come;   // of each replica
    std::atomic<bool> ready{false};       // pieces may be summed before the meeting…
    std::atomic<std::size_t> claimed{0};  // …and so many have been taken
  };
  /// Touched by its replica's thread, or while the replica waits: for a meeting, or for its turn.
  struct Member {
    std::vector<int> missing;           // of each bucket: gradients that have not come yet
    std::vector<std::uint8_t> fresh;    // of each parameter: has a gradient since the last step
    std::vector<std::uint8_t> counted;  // of each parameter: taken off `missing`
    bool syncing = true;
    bool summed = false;  // its gradients are the sums of the last step: its owner's tensors
  };

  void install_hooks();
  void enter_run();
  void start_round();
  void start_round(Member& member) const;
  void before_accumulation(int replica, int parameter);
  void gradient_is_ready(int replica, int parameter);
  void arrive(int replica, Bucket& bucket);
  void fold(int replica, Bucket& bucket);
  void fold_pair(int left, int right, const Bucket& bucket);
  void sum_ready_buckets(FunctionRef<bool()> still_ahead);
  void sum_piece(const GradientPiece& piece);
  bool can_be_cut(const Bucket& bucket) const;
  void complete_gradients(Bucket& bucket);
  bool has_gradient(int replica, int parameter);
  at::Tensor zeros_for(int replica, int parameter);
  void report_unused(int parameter);
  void share_sums(int device);

  int replicas() const { return static_cast<int>(parameters_.size()); }
  at::Tensor& grad(int replica, int parameter) {
    return parameters_[replica][parameter].mutable_grad();
  }

  StrategyExtended& strategy_;
  const std::vector<std::vector<at::Tensor>> parameters_;
  const std::vector<std::string> names_;
  const std::vector<int> owner_of_;
  const OptimizerOptions options_;
  const GradientSum sum_;
  std::vector<std::unique_ptr<Bucket>> buckets_;  // in the order in which backward fills them
  std::vector<int> bucket_of_;
  std::vector<Member> members_;
  std::shared_ptr<Hooks> hooks_;
  std::vector<std::uint8_t> skipped_;  // of each parameter: no replica has a fresh gradient
  std::vector<std::uint8_t> shared_;   // of each device: its replicas see the sums
  std::vector<std::uint8_t> named_unused_;

  Mutex run_mutex_;
  std::atomic<std::uint64_t> run_{0};  // the last one with a part in the round; see run_mutex_
};

}  // namespace cohort
