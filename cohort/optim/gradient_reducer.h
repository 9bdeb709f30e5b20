#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/base/home_process.h"
#include "cohort/base/mutex.h"
#include "cohort/base/torch_compat.h"
#include "cohort/distribute/strategy.h"
#include "cohort/optim/gradient_buckets.h"
#include "cohort/optim/gradient_courier.h"
#include "cohort/optim/gradient_sum.h"
#include "cohort/optim/optimizer_options.h"
#include "cohort/optim/replica_gradients.h"

namespace cohort {

/// What is known of the gradients of a parameter in a round, of some replicas.
struct ParameterState {
  std::int32_t with = -1, without = -1;  ///< A replica that has one, and one that has none; or -1.
  std::uint8_t has_dense = 0;            ///< Some have, not all of them sparse.

  ParameterState& operator+=(const ParameterState& other);
};

/// Sums the gradients of all replicas, in buckets, while backward runs: when it returns, `.grad` is
/// the sum.
///
/// A hook takes each gradient when autograd has made it. When the last replica has all gradients
/// of a bucket, they are added up where they lie: in tree order over the replica ids, in place, so
/// that the first replica of each copy (the owner) holds the sum. Replicas that are ahead of the
/// others in their backward pass do it, so that summing costs none of the slowest one's time; what
/// is left when all are done, they share (GradientExchange). Where several replicas share a device,
/// a replica's gradients are folded into the partial sums of the tree as soon as they are ready and
/// their memory is freed, so that memory grows with the tree's depth.
///
/// A *round* is one summation, in which every replica has one backward pass (or calls step with
/// gradients that no pass has summed). In a round, a bucket goes through these states:
///   filling   `arrived` counts the replicas of this worker that have all gradients of it;
///   ready     all have: any thread may claim pieces of it and sum them;
///   carried   the courier has added it up with the other workers, where there are some;
///   summed    the round's exchange is over, and `sums_` has the results.
/// The exchange is a meeting: the workers agree on the parameters that have gradients, what is not
/// ready is completed, and when all buckets are carried the next round starts, while all replicas
/// wait. Each replica then takes the sums, and the last one of a copy to do so lets go of them.
///
/// One object for each optimizer, or each model without one; its methods are called by all
/// replicas, each in its own thread.
class GradientReducer : public std::enable_shared_from_this<GradientReducer> {
 public:
  /// `parameters[r][p]` is replica r's leaf of parameter p; `owner_of[r]` the first replica of r's
  /// copy of the parameters.
  GradientReducer(StrategyExtended& strategy, TensorTable parameters,
                  std::vector<std::string> names, std::vector<int> owner_of,
                  const OptimizerOptions& options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Sums gradients that no backward pass has summed: those that the program has put there, or that
  /// have gathered inside `no_sync`. All replicas call it; returns when `.grad` is the sum on all.
  /// Throws ValueError for a parameter with such a gradient on some replicas only.
  void synchronize(ReplicaContext& replica);

  /// While off, the replica's gradients stay its own and add up over backward passes.
  void set_syncing(int replica, bool on) { members_[replica].syncing = on; }
  bool syncing(int replica) const { return members_[replica].syncing; }

  /// Forgets a replica's gradients: undefined, or zeros.
  void zero_grad(int replica, bool set_to_none);

  /// Outside of replicas: what the program has cleared in replica 0's module (`model->zero_grad()`)
  /// is cleared on all replicas.
  void clear_as_first();

  /// Around what an optimizer does with the gradients of a copy's owner. The caller has the copy to
  /// itself. Afterwards all replicas of the copy see what was applied.
  void begin_step(int owner);
  void end_step(int owner);

  /// Counts the steps of a replica, which are as many on all: what a failed run has counted on some
  /// of them only counts for all in the next.
  std::uint64_t count_step(int replica) { return ++members_[replica].steps; }

  /// A replica that is not its copy's owner is about to step: the owner's gradients count.
  void leave_to_owner(const ReplicaContext& replica);

  /// A replica has a part in this run from now on. What a failed run has left half done is
  /// forgotten, by the first one that comes.
  void enter_run(const ReplicaContext& replica);

  /// Whether a backward pass of the replica has thrown, and no run has begun since.
  bool is_abandoned(int replica) const { return members_[replica].abandoned; }

  /// Forgets a round that is half done. Outside of replicas.
  void start_over();

  /// Another reducer has taken over the parameters: backward calls this one no more.
  void retire() { hooks_.reset(); }
  bool is_retired() const { return !hooks_; }

  const std::vector<at::Tensor>& parameters(int replica) const { return parameters_[replica]; }
  const std::vector<std::string>& names() const { return names_; }

  // For GradientExchange and BackwardPass.

  /// How many backward passes the replica has begun, for comparison with others.
  std::uint64_t passes(int replica) const { return members_[replica].passes; }

  /// What a replica that is done with its own pass can sum before the exchange.
  void sum_ready_buckets() {
    sum_ready_buckets([] { return true; });
  }

  /// While all replicas wait: what no pass of this round has brought, in a step; or only what has
  /// gathered inside `no_sync`, at the end of a pass. Then what is left to do of this round; the
  /// next one begins. Throws ValueError for a parameter with a gradient on some replicas only.
  void take_unsummed();
  void take_gathered();

  /// What this worker knows of each parameter in this round, for the others; and what all know.
  /// Throws ValueError for a parameter with a gradient on some replicas only.
  ParameterState state_of(int parameter) const;
  void agree(const char* where, FunctionRef<ParameterState(int)> state_of);

  /// Completes what is not ready, by what all workers know.
  void plan_round(std::vector<const GradientPiece*>& pieces);
  void sum_piece(const GradientPiece& piece);

  /// When all pieces are summed: waits until the courier has carried all buckets. Appends what is
  /// left to do then, for `finish_piece`.
  void carry(std::vector<const GradientPiece*>& pieces);
  void finish_piece(const GradientPiece& piece);

  /// The sums are there; the next round begins.
  void end_round();

  World& world() const { return strategy_.world(); }
  /// A number that is alike on all workers, and the reducer that has it; null if it is gone.
  Lane id() const { return courier_->lane().lane(); }
  static std::shared_ptr<GradientReducer> find(const World& world, Lane id);
  /// Makes it one that `find` finds; once, when a shared pointer has it.
  void enlist();

  /// After the exchange, by every replica: its `.grad` is the sum from now on.
  void take_sums(int replica);

  /// The replica's backward pass has thrown: unless the round is over, it can't be finished.
  void abandon_pass(int replica);

 private:
  struct Hooks;  // what autograd calls; refers back weakly

  struct Bucket : GradientBucket {
    Bucket(GradientBucket bucket, int replicas)
        : GradientBucket(std::move(bucket)), node_size(replicas), has_come(replicas) {}
    std::atomic<int> arrived{0};          // replicas that have all its gradients
    std::vector<int> node_size;           // of the folded node that begins at each replica; or 0
    std::vector<std::uint8_t> has_come;   // of each replica
    std::atomic<bool> ready{false};       // pieces may be summed before the exchange…
    std::atomic<std::size_t> claimed{0};  // …and so many have been taken
    std::atomic<std::size_t> done{0};     // …and so many of them summed
    std::unique_ptr<WorldSum> kept;       // of the courier
    std::string call;                     // what the workers compare
  };
  /// Touched by its replica's thread, or while the replica waits: for a meeting, or for its turn.
  struct Member {
    std::vector<int> missing;         // of each bucket: gradients that have not come yet
    std::vector<std::uint8_t> fresh;  // of each parameter: has a gradient in this round
    bool syncing = true;
    bool in_pass = false;    // a backward pass that is summed has begun
    bool abandoned = false;  // one has thrown, and its run goes on
    bool has_sums = false;   // the exchange has left sums for it, which it has not taken yet
    std::uint64_t passes = 0;
    std::uint64_t steps = 0;
  };

  std::vector<std::unique_ptr<Bucket>> filled_buckets();
  void install_hooks();
  ReplicaContext* running_replica(int replica) const;
  void require_whole_passes(const ReplicaContext& replica, const char* where) const;
  void begin_pass(ReplicaContext& replica);
  void forget_round();
  void start_round();
  void before_accumulation(int replica, int parameter);
  void gradient_is_ready(int replica, int parameter, const at::Tensor& incoming);
  void keep(int replica, int parameter, at::Tensor gradient);
  void arrive(int replica, Bucket& bucket);
  void fold(int replica, Bucket& bucket);
  void fold_pair(int left, int right, const Bucket& bucket);
  void carry_bucket(int bucket, WorldLane& lane);
  void sum_ready_buckets(FunctionRef<bool()> still_ahead);
  bool can_be_cut(const Bucket& bucket) const;
  void add_pieces(const Bucket& bucket, std::vector<const GradientPiece*>& pieces) const;
  void complete_gradients(Bucket& bucket);
  bool has_sums_over_replicas() const { return strategy_.num_replicas_in_sync() > 1; }
  at::Tensor zeros_for(int replica, int parameter) const;
  void report_unused();

  int replicas() const { return static_cast<int>(parameters_.size()); }
  int size() const { return static_cast<int>(names_.size()); }
  LeafGradient::Sharing sharing_of(int replica) const;

  // Constant after construction.
  StrategyExtended& strategy_;
  const TensorTable parameters_;
  const std::vector<std::string> names_;
  const std::vector<int> owner_of_;
  std::vector<int> users_of_;  // replicas of the copy whose owner this replica is, else 0
  const OptimizerOptions options_;
  std::vector<int> bucket_of_;
  std::shared_ptr<Hooks> hooks_;

  // Of each replica: see Member.
  std::vector<ReplicaGradients> own_;
  std::vector<Member> members_;
  TensorTable gradients_;  // of the round: taken out of `.grad`, summed in place
  const GradientSum sum_;

  std::vector<std::unique_ptr<Bucket>> buckets_;  // in the order in which backward fills them

  // Written while all replicas wait; read after the exchange, and of ready buckets meanwhile.
  std::vector<std::uint8_t> skipped_;  // of each parameter: no replica has a gradient in the round
  std::vector<std::uint8_t> sparse_;   // of each parameter: all gradients are sparse
  std::vector<std::uint8_t> summed_;   // of each parameter: `sums_` has it
  TensorTable sums_;                   // by owner
  std::vector<std::atomic<int>> taken_;  // by owner: how many replicas of its copy have the sums
  std::vector<std::uint8_t> named_unused_;

  Mutex run_mutex_;
  std::atomic<std::uint64_t> run_{0};  // the last one with a part in the round; see run_mutex_

  UsedByThreads<GradientCourier> courier_;  // last: its thread uses everything above
};

}  // namespace cohort
