#include "cohort/optim/gradient_reducer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/collectives/reduction_tree.h"
#include "cohort/distribute/differentiable_collectives.h"

namespace cohort {

using collectives::Node;
using collectives::ReductionTree;
using torch::autograd::variable_list;

/// Keeps the accumulators alive, which variables do not, and with them the hooks.
struct GradientReducer::Hooks {
  explicit Hooks(GradientReducer& reducer) : reducer(&reducer) {}

  struct Before : torch::autograd::FunctionPreHook {
    Before(std::weak_ptr<Hooks> hooks, int replica, int parameter)
        : hooks(std::move(hooks)), replica(replica), parameter(parameter) {}
    variable_list operator()(const variable_list& grads) override {
      if (const auto alive = hooks.lock()) alive->reducer->before_accumulation(replica, parameter);
      return grads;
    }
    std::weak_ptr<Hooks> hooks;
    int replica, parameter;
  };
  struct After : torch::autograd::FunctionPostHook {
    After(std::weak_ptr<Hooks> hooks, int replica, int parameter)
        : hooks(std::move(hooks)), replica(replica), parameter(parameter) {}
    variable_list operator()(const variable_list& outputs, const variable_list&) override {
      if (const auto alive = hooks.lock()) alive->reducer->gradient_is_ready(replica, parameter);
      return outputs;
    }
    std::weak_ptr<Hooks> hooks;
    int replica, parameter;
  };

  GradientReducer* reducer;
  std::vector<torch_compat::NodePtr> accumulators;
};

GradientReducer::GradientReducer(StrategyExtended& strategy,
                                 std::vector<std::vector<at::Tensor>> parameters,
                                 std::vector<std::string> names, std::vector<int> owner_of,
                                 const OptimizerOptions& options)
    : strategy_(strategy),
      parameters_(std::move(parameters)),
      names_(std::move(names)),
      owner_of_(std::move(owner_of)),
      options_(options),
      sum_(strategy.layout(), parameters_, owner_of_),
      bucket_of_(names_.size()),
      members_(parameters_.size()),
      hooks_(std::make_shared<Hooks>(*this)),
      skipped_(names_.size(), 0),
      shared_(strategy.layout().copies(), 0),
      named_unused_(names_.size(), 0) {
  for (GradientBucket& bucket :
       make_gradient_buckets(parameters_[0], options_.first_bucket_bytes, options_.bucket_bytes)) {
    for (const int p : bucket.parameters) bucket_of_[p] = static_cast<int>(buckets_.size());
    buckets_.push_back(std::make_unique<Bucket>(std::move(bucket), replicas()));
  }
  start_round();
  if (replicas() > 1) install_hooks();
}

GradientReducer::~GradientReducer() = default;

/// Parameters that are frozen now may be trained later.
void GradientReducer::install_hooks() {
  for (int r = 0; r < replicas(); ++r) {
    for (int p = 0; p < static_cast<int>(names_.size()); ++p) {
      const at::Tensor& parameter = parameters_[r][p];
      if (!c10::isFloatingType(parameter.scalar_type()) && !parameter.is_complex()) continue;
      const bool trainable = parameter.requires_grad();
      parameter.set_requires_grad(true);  // only then there is an accumulator
      auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
      parameter.set_requires_grad(trainable);
      accumulator->add_pre_hook(std::make_unique<Hooks::Before>(hooks_, r, p));
      accumulator->add_post_hook(std::make_unique<Hooks::After>(hooks_, r, p));
      hooks_->accumulators.push_back(std::move(accumulator));
    }
  }
}

void GradientReducer::start_round() {
  for (auto& bucket : buckets_) {
    bucket->arrived.store(0, std::memory_order_relaxed);
    std::fill(bucket->node_size.begin(), bucket->node_size.end(), 0);
    std::fill(bucket->has_come.begin(), bucket->has_come.end(), 0);
    bucket->ready.store(false, std::memory_order_relaxed);
    bucket->claimed.store(0, std::memory_order_relaxed);
  }
  std::fill(skipped_.begin(), skipped_.end(), 0);
  std::fill(shared_.begin(), shared_.end(), 0);
  for (Member& member : members_) start_round(member);
}

void GradientReducer::start_round(Member& member) const {
  member.missing.resize(buckets_.size());
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    member.missing[b] = static_cast<int>(buckets_[b]->parameters.size());
  }
  member.fresh.assign(names_.size(), 0);
  member.counted.assign(names_.size(), 0);
}

/// A run that threw may have left a round half done. The first replica of the next one clears it.
void GradientReducer::enter_run() {
  const ReplicaContext* replica = replica_context_or_null();
  if (!replica || &replica->extended() != &strategy_) return;
  const std::uint64_t run = replica->run_serial();
  if (run_.load(std::memory_order_acquire) == run) return;
  const MutexLock lock(run_mutex_);
  const std::uint64_t before = run_.load(std::memory_order_acquire);
  if (before != run && strategy_.has_failed(before)) start_round();
  run_.store(run, std::memory_order_release);
}

/// A gradient that is shared since the last step must not be added to in place.
void GradientReducer::before_accumulation(int replica, int parameter) {
  const Member& member = members_[replica];
  at::Tensor& own = grad(replica, parameter);
  const bool may_be_shared = member.summed && !member.fresh[parameter];
  if (may_be_shared && own.defined() && own.use_count() > 1) own = own.clone();
}

void GradientReducer::gradient_is_ready(int replica, int parameter) {
  enter_run();
  Member& member = members_[replica];
  member.fresh[parameter] = 1;
  if (!member.syncing || !options_.overlap) return;
  if (member.counted[parameter]) {
    throw RuntimeError("backward",
                       cat("a second backward pass reached parameter ", names_[parameter],
                           " before optimizer.step(), but its gradient is being summed already: "
                           "hold optimizer.no_sync() in all backward passes but the last, or set "
                           ".overlap = false"));
  }
  member.counted[parameter] = 1;
  Bucket& bucket = *buckets_[bucket_of_[parameter]];
  if (--member.missing[bucket_of_[parameter]] == 0) arrive(replica, bucket);
}

/// The last replica of a bucket to come leaves it to those that are ahead of it.
void GradientReducer::arrive(int replica, Bucket& bucket) {
  fold(replica, bucket);
  const int arrived = bucket.arrived.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (arrived == replicas()) {
    if (can_be_cut(bucket)) bucket.ready.store(true, std::memory_order_release);
  } else {
    sum_ready_buckets([&] { return bucket.arrived.load(std::memory_order_relaxed) == arrived; });
  }
}

/// What a replica that is ahead of the others does with its lead, until it has used it up.
void GradientReducer::sum_ready_buckets(FunctionRef<bool()> still_ahead) {
  for (auto& bucket : buckets_) {
    if (!bucket->ready.load(std::memory_order_acquire)) continue;
    while (bucket->claimed.load(std::memory_order_relaxed) < bucket->pieces.size()) {
      if (!still_ahead()) return;
      const std::size_t piece = bucket->claimed.fetch_add(1, std::memory_order_relaxed);
      if (piece < bucket->pieces.size()) sum_piece(bucket->pieces[piece]);
    }
  }
}

/// Folds what the replicas of one device, which run one at a time, have of the sum's tree.
void GradientReducer::fold(int replica, Bucket& bucket) {
  const ReplicaLayout& layout = strategy_.layout();
  const ReductionTree tree(replicas());
  bucket.has_come[replica] = 1;
  bucket.node_size[replica] = 1;
  Node node{replica, replica + 1};
  for (auto parent = tree.parent(node); parent; parent = tree.parent(node)) {
    const bool one_device = layout.copy_of(parent->lo) == layout.copy_of(parent->hi - 1);
    const Node sibling = tree.sibling(node);
    if (!one_device || bucket.node_size[sibling.lo] != sibling.size()) return;
    const int left = parent->lo, right = std::max(node.lo, sibling.lo);
    fold_pair(left, right, bucket);
    bucket.node_size[right] = 0;
    bucket.node_size[left] = parent->size();
    node = *parent;
  }
}

/// Adds the right one's gradients to the left one's and frees them.
void GradientReducer::fold_pair(int left, int right, const Bucket& bucket) {
  for (const int p : bucket.parameters) {
    if (!skipped_[p]) sum_.fold(left, right, p);
  }
}

bool GradientReducer::can_be_cut(const Bucket& bucket) const {
  return std::all_of(bucket.parameters.begin(), bucket.parameters.end(),
                     [this](int p) { return !skipped_[p] && sum_.by_range(p); });
}

void GradientReducer::sum_piece(const GradientPiece& piece) {
  for (const auto& [parameter, range] : piece) sum_.sum(parameter, range);
}

/// The first replica of a device to come back from the meeting does this for all of them, since
/// the owner, if it goes on first, may forget its gradients before the others have their turn.
void GradientReducer::share_sums(int device) {
  if (std::exchange(shared_[device], 1)) return;
  for (int r = strategy_.layout().owner_of(device);
       r < replicas() && strategy_.layout().copy_of(r) == device; ++r) {
    members_[r].summed = true;
    if (owner_of_[r] == r) continue;
    for (int p = 0; p < static_cast<int>(names_.size()); ++p) grad(r, p) = grad(owner_of_[r], p);
  }
}

void GradientReducer::zero_grad(int replica, bool set_to_none) {
  enter_run();
  Member& member = members_[replica];
  for (int p = 0; p < static_cast<int>(names_.size()); ++p) {
    if (!member.counted[p]) member.fresh[p] = 0;
    at::Tensor& own = grad(replica, p);
    if (!own.defined()) continue;
    if (set_to_none) {
      own = at::Tensor();
    } else if (own.is_sparse()) {
      own = without_entries(own);
    } else {
      own = own.use_count() > 1 ? own.clone() : own.detach();
      own.zero_();
    }
  }
  member.summed = false;
}

// The meeting.

/// Every replica brings its gradients; what backward has not summed is summed here, by all.
class GradientReducer::Sync : public collectives::Contribution {
 public:
  explicit Sync(GradientReducer& reducer) : reducer_(reducer) {}

  std::string describe() const override { return "optimizer.step"; }
  std::optional<std::string> mismatch(const Contribution& other) const override {
    if (&static_cast<const Sync&>(other).reducer_ == &reducer_) return std::nullopt;
    return "the replicas must step the same optimizer";
  }

  std::int64_t plan(std::span<Contribution* const>) override {
    try {
      for (auto& bucket : reducer_.buckets_) {
        if (!bucket->ready) reducer_.complete_gradients(*bucket);
        add_pieces(*bucket);
      }
    } catch (...) {
      reducer_.start_round();
      throw;
    }
    reducer_.start_round();
    return static_cast<std::int64_t>(pieces_.size());
  }

  void work(std::int64_t piece) override { reducer_.sum_piece(*pieces_[piece]); }

 private:
  /// What is left of a bucket.
  void add_pieces(const Bucket& bucket) {
    const bool in_chunks = bucket.ready || reducer_.can_be_cut(bucket);
    const std::vector<GradientPiece>& pieces = in_chunks ? bucket.pieces : bucket.whole;
    for (std::size_t i = bucket.claimed; i < pieces.size(); ++i) {
      const bool skipped = reducer_.skipped_[pieces[i].front().parameter];
      if (in_chunks || !skipped) pieces_.push_back(&pieces[i]);
    }
  }

  GradientReducer& reducer_;
  std::vector<const GradientPiece*> pieces_;
};

/// Gives every replica a gradient of each parameter that any has one of, and folds what did not
/// arrive during backward. Called while all replicas wait.
void GradientReducer::complete_gradients(Bucket& bucket) {
  for (const int p : bucket.parameters) {
    int with = -1, without = -1;
    for (int r = 0; r < replicas(); ++r) (has_gradient(r, p) ? with : without) = r;
    skipped_[p] = with < 0;
    if (with < 0) report_unused(p);
    if (with < 0 || without < 0) continue;
    for (int r = 0; r < replicas(); ++r) {
      if (has_gradient(r, p)) continue;
      if (!options_.allow_unused) {
        const int first = strategy_.layout().first();
        throw ValueError("optimizer.step",
                         cat("parameter ", names_[p], " has a gradient on replica ", first + with,
                             " but none on replica ", first + r,
                             ": use it in the loss on every replica, or set .allow_unused = true "
                             "to count zeros"));
      }
      grad(r, p) = zeros_for(r, p);
    }
  }
  for (int r = 0; r < replicas(); ++r) {
    if (!bucket.has_come[r]) fold(r, bucket);
  }
}

/// Also one that the program has put there by itself.
bool GradientReducer::has_gradient(int replica, int parameter) {
  const Member& member = members_[replica];
  return member.fresh[parameter] || (!member.summed && grad(replica, parameter).defined());
}

/// Sparse where the other replicas' gradients are.
at::Tensor GradientReducer::zeros_for(int replica, int parameter) {
  const at::Tensor& own = parameters_[replica][parameter];
  for (int r = 0; r < replicas(); ++r) {
    const at::Tensor& other = grad(r, parameter);
    const bool is_sparse = has_gradient(r, parameter) && other.defined() && other.is_sparse();
    if (is_sparse) return without_entries(other).to(own.device());
  }
  return at::zeros_like(own);
}

void GradientReducer::report_unused(int parameter) {
  if (!parameters_[0][parameter].requires_grad()) return;
  if (std::exchange(named_unused_[parameter], 1)) return;
  log::warning("[optimizer.step] parameter ", names_[parameter],
               " got no gradient on any replica: it is skipped; freeze it, or use it in the loss");
}

void GradientReducer::synchronize(ReplicaContext& replica) {
  if (replicas() == 1) {
    for (std::size_t p = 0; p < names_.size(); ++p) {
      if (!grad(0, static_cast<int>(p)).defined()) report_unused(static_cast<int>(p));
    }
    return;
  }
  enter_run();
  sum_ready_buckets([] { return true; });
  Sync sync(*this);
  detail::attend_meeting(replica, sync);
  share_sums(strategy_.layout().copy_of(replica.local_id()));
}

}  // namespace cohort
