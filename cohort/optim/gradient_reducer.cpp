#include "cohort/optim/gradient_reducer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/collectives/tensor_reduction.h"
#include "cohort/distribute/differentiable_collectives.h"

namespace cohort {

using collectives::Node;
using collectives::Range;
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
      members_(parameters_.size()),
      hooks_(std::make_shared<Hooks>(*this)),
      skipped_(names_.size(), 0),
      shared_(strategy.layout().copies(), 0),
      named_unused_(names_.size(), 0),
      failures_seen_(strategy.failed_runs()) {
  make_buckets();
  make_plan();
  start_round();
  if (replicas() > 1) install_hooks();
}

GradientReducer::~GradientReducer() = default;

/// Backward makes the gradients of the last layers first.
void GradientReducer::make_buckets() {
  bucket_of_.resize(names_.size());
  std::int64_t bytes = 0, limit = 0;
  for (int p = static_cast<int>(names_.size()) - 1; p >= 0; --p) {
    if (buckets_.empty() || bytes >= limit) {
      limit = buckets_.empty() ? options_.first_bucket_bytes : options_.bucket_bytes;
      bytes = 0;
      buckets_.push_back(std::make_unique<Bucket>());
      buckets_.back()->node_size.resize(replicas());
      buckets_.back()->has_come.resize(replicas());
    }
    buckets_.back()->parameters.push_back(p);
    bucket_of_[p] = static_cast<int>(buckets_.size()) - 1;
    bytes += static_cast<std::int64_t>(parameters_[0][p].nbytes());
  }
  for (auto& bucket : buckets_) cut(*bucket);
}

/// Large parameters in chunks; small ones together in one piece.
void GradientReducer::cut(Bucket& bucket) const {
  std::int64_t room = 0;
  for (const int p : bucket.parameters) {
    const at::Tensor& sample = parameters_[0][p];
    const std::int64_t size = static_cast<std::int64_t>(sample.element_size());
    const std::int64_t chunk = collectives::kChunkBytes / size;
    for (std::int64_t begin = 0; begin < sample.numel(); begin += chunk) {
      const Range range{begin, std::min(begin + chunk, sample.numel())};
      if (room <= 0) {
        bucket.pieces.emplace_back();
        room = collectives::kChunkBytes;
      }
      bucket.pieces.back().push_back({p, range});
      room -= range.size() * size;
    }
    bucket.whole.push_back({{p, {0, sample.numel()}}});
  }
}

/// The last sum reads one gradient for each node that the replicas of one device fold.
void GradientReducer::make_plan() {
  const ReplicaLayout& layout = strategy_.layout();
  const ReductionTree tree(replicas());
  for (int device = 0; device < layout.copies(); ++device) {
    const int last = device + 1 < layout.copies() ? layout.owner_of(device + 1) : replicas();
    for (const Node node : tree.subtrees(layout.owner_of(device), last)) {
      nodes_.push_back(node);
      sum_replicas_.push_back(node.lo);
    }
  }
  sum_ = std::make_unique<collectives::SumPlan>(std::span<const Node>(nodes_));
  for (int r = 0; r < replicas(); ++r) {
    if (owner_of_[r] == r) owners_.push_back(r);
  }
}

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

/// A run that threw may have left a round half done. The first replica to come by clears it.
void GradientReducer::start_over_after_failure() {
  const std::uint64_t failures = strategy_.failed_runs();
  if (failures_seen_.load(std::memory_order_acquire) == failures) return;
  const MutexLock lock(failure_mutex_);
  if (failures_seen_.load(std::memory_order_acquire) == failures) return;
  start_round();
  failures_seen_.store(failures, std::memory_order_release);
}

/// A gradient that is shared since the last step must not be added to in place.
void GradientReducer::before_accumulation(int replica, int parameter) {
  const Member& member = members_[replica];
  at::Tensor& own = grad(replica, parameter);
  const bool may_be_shared = member.summed && !member.fresh[parameter];
  if (may_be_shared && own.defined() && own.use_count() > 1) own = own.clone();
}

void GradientReducer::gradient_is_ready(int replica, int parameter) {
  start_over_after_failure();
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

/// A bucket that all replicas have is for whoever has nothing better to do.
void GradientReducer::arrive(int replica, Bucket& bucket) {
  fold(replica, bucket);
  const int arrived = bucket.arrived.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (arrived < replicas() || !kernel_can_sum(bucket)) return;
  bucket.ready.store(true, std::memory_order_release);
}

/// What a replica that is ahead of the others does with the time that it would wait for them.
void GradientReducer::sum_ready_buckets() {
  for (auto& bucket : buckets_) {
    if (!bucket->ready.load(std::memory_order_acquire)) continue;
    for (;;) {
      const std::size_t piece = bucket->claimed.fetch_add(1, std::memory_order_relaxed);
      if (piece >= bucket->pieces.size()) break;
      sum_piece(bucket->pieces[piece]);
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

namespace {

bool dense_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.device().is_cpu() && b.device().is_cpu() &&
         a.layout() == at::kStrided && b.layout() == at::kStrided && a.dtype() == b.dtype() &&
         a.sizes() == b.sizes() && a.strides() == b.strides() && a.is_non_overlapping_and_dense();
}

/// A sparse tensor of the same kind, in memory of its own. (LibTorch 1.13's zeros_like and zero_
/// make another kind.)
at::Tensor without_entries(const at::Tensor& sparse) {
  return at::_sparse_coo_tensor_unsafe(sparse._indices().slice(1, 0, 0).clone(),
                                       sparse._values().slice(0, 0, 0).clone(), sparse.sizes(),
                                       sparse.options());
}

}  // namespace

/// Adds the right one's gradients to the left one's and frees them.
void GradientReducer::fold_pair(int left, int right, const Bucket& bucket) {
  for (const int p : bucket.parameters) {
    at::Tensor &a = grad(left, p), &b = grad(right, p);
    if (skipped_[p]) continue;
    if (dense_alike(a, b)) {
      const void* const leaves[] = {a.data_ptr(), b.data_ptr()};
      void* const output = a.data_ptr();
      collectives::ordered_sum(a.scalar_type(), pair_, leaves, {&output, 1}, {0, a.numel()});
    } else {
      a = collectives::reduce_tensors(ReduceOp::SUM, std::vector<at::Tensor>{a, b});
    }
    b = at::Tensor();
  }
}

bool GradientReducer::kernel_can_sum(int parameter) {
  for (const int r : sum_replicas_) {
    if (!dense_alike(grad(sum_replicas_[0], parameter), grad(r, parameter))) return false;
  }
  return true;
}

bool GradientReducer::kernel_can_sum(const Bucket& bucket) {
  return std::all_of(bucket.parameters.begin(), bucket.parameters.end(),
                     [this](int p) { return !skipped_[p] && kernel_can_sum(p); });
}

void GradientReducer::sum_piece(const Piece& piece) {
  for (const auto& [parameter, range] : piece) sum_range(parameter, range);
}

void GradientReducer::sum_range(int parameter, Range range) {
  if (!kernel_can_sum(parameter)) return sum_slowly(parameter);
  constexpr int kMost = 64;
  const void* leaves[kMost];
  void* outputs[kMost];
  std::size_t reads = 0, writes = 0;
  if (sum_replicas_.size() > kMost) return sum_slowly(parameter);
  for (const int r : sum_replicas_) leaves[reads++] = grad(r, parameter).data_ptr();
  for (const int r : owners_) outputs[writes++] = grad(r, parameter).data_ptr();
  collectives::ordered_sum(grad(owners_[0], parameter).scalar_type(), *sum_, {leaves, reads},
                           {outputs, writes}, range);
}

/// Sparse gradients, other devices, and layouts that differ between replicas.
void GradientReducer::sum_slowly(int parameter) {
  const at::Tensor sum = sum_of_node(parameter, {0, replicas()});
  for (const int r : owners_) {
    grad(r, parameter) = sum.to(parameters_[r][parameter].device(), false, /*copy=*/true);
  }
}

at::Tensor GradientReducer::sum_of_node(int parameter, Node node) {
  if (std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end()) {
    return grad(node.lo, parameter).detach().to(parameters_[0][parameter].device());
  }
  const int cut = collectives::split_point(node.lo, node.hi);
  const at::Tensor pair[] = {sum_of_node(parameter, {node.lo, cut}),
                             sum_of_node(parameter, {cut, node.hi})};
  return collectives::reduce_tensors(ReduceOp::SUM, pair);
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
    const bool in_chunks = bucket.ready || reducer_.kernel_can_sum(bucket);
    const std::vector<Piece>& pieces = in_chunks ? bucket.pieces : bucket.whole;
    for (std::size_t i = bucket.claimed; i < pieces.size(); ++i) {
      const bool skipped = reducer_.skipped_[pieces[i].front().parameter];
      if (in_chunks || !skipped) pieces_.push_back(&pieces[i]);
    }
  }

  GradientReducer& reducer_;
  std::vector<const Piece*> pieces_;
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
  start_over_after_failure();
  sum_ready_buckets();
  Sync sync(*this);
  detail::attend_meeting(replica, sync);
  share_sums(strategy_.layout().copy_of(replica.local_id()));
}

}  // namespace cohort
