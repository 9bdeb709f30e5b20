#include "cohort/optim/gradient_reducer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <map>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/base/hash.h"
#include "cohort/base/log.h"
#include "cohort/collectives/reduction_tree.h"
#include "cohort/optim/backward_pass.h"
#include "cohort/optim/gradient_exchange.h"
#include "cohort/optim/replica_training.h"
#include "cohort/spmd/placement.h"
#include "cohort/spmd/sharded_tensor.h"

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
    variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
      if (const auto alive = hooks.lock()) {
        alive->reducer->gradient_is_ready(replica, parameter, inputs[0]);
      }
      return outputs;
    }
    std::weak_ptr<Hooks> hooks;
    int replica, parameter;
  };

  GradientReducer* reducer;
  std::vector<torch_compat::NodePtr> accumulators;
};

namespace {

/// In a run it is made in a collective of the replicas (Model::update).
std::unique_ptr<WorldLane> make_lane(StrategyExtended& strategy) {
  const World::Turn turn = strategy.take_turn();
  return strategy.world().make_lane("what sums a model's gradients (an optimizer's constructor)");
}

}  // namespace

GradientReducer::GradientReducer(StrategyExtended& strategy, TensorTable parameters,
                                 std::vector<std::string> names, std::vector<int> owner_of,
                                 const OptimizerOptions& options)
    : strategy_(strategy),
      parameters_(std::move(parameters)),
      names_(std::move(names)),
      owner_of_(std::move(owner_of)),
      users_of_(parameters_.size(), 0),
      options_(options),
      bucket_of_(names_.size()),
      hooks_(std::make_shared<Hooks>(*this)),
      members_(parameters_.size()),
      gradients_(parameters_.size(), std::vector<at::Tensor>(names_.size())),
      sum_(strategy.layout(), parameters_, gradients_, own_, owner_of_, options.reduce),
      buckets_(filled_buckets()),
      skipped_(names_.size(), 0),
      sparse_(names_.size(), 0),
      summed_(names_.size(), 0),
      sums_(parameters_.size(), std::vector<at::Tensor>(names_.size())),
      taken_(parameters_.size()),
      named_unused_(names_.size(), 0),
      courier_(world(), make_lane(strategy), static_cast<int>(buckets_.size()),
               [this](int bucket, WorldLane& lane) { carry_bucket(bucket, lane); }) {
  for (const int owner : owner_of_) ++users_of_[owner];
  start_round();
  if (!has_sums_over_replicas()) return;
  for (const auto& own : parameters_) own_.emplace_back(own, names_);
  install_hooks();
}

GradientReducer::~GradientReducer() = default;

namespace {

/// The reducers of this process that other workers may name.
struct Enlisted {
  Mutex mutex;
  std::map<std::pair<const World*, Lane>, std::weak_ptr<GradientReducer>> reducers
      COHORT_GUARDED_BY(mutex);
};

Enlisted& enlisted() {
  static auto* const all = new Enlisted();
  return *all;
}

}  // namespace

void GradientReducer::enlist() {
  if (world().holds_root()) return;
  Enlisted& all = enlisted();
  const MutexLock lock(all.mutex);
  std::erase_if(all.reducers, [](const auto& each) { return each.second.expired(); });
  all.reducers[{&world(), id()}] = weak_from_this();
}

std::shared_ptr<GradientReducer> GradientReducer::find(const World& world, Lane id) {
  Enlisted& all = enlisted();
  const MutexLock lock(all.mutex);
  const auto found = all.reducers.find({&world, id});
  return found == all.reducers.end() ? nullptr : found->second.lock();
}

std::vector<std::unique_ptr<GradientReducer::Bucket>> GradientReducer::filled_buckets() {
  std::vector<std::unique_ptr<Bucket>> buckets;
  for (GradientBucket& bucket :
       make_gradient_buckets(parameters_[0], options_.first_bucket_bytes, options_.bucket_bytes)) {
    const int number = static_cast<int>(buckets.size());
    Hash layout;
    for (const int p : bucket.parameters) {
      bucket_of_[p] = number;
      layout.add(names_[p]);
      layout.add(c10::toString(parameters_[0][p].scalar_type()));
      for (const std::int64_t size : parameters_[0][p].sizes()) layout.add_number(size);
      for (const std::int64_t stride : parameters_[0][p].strides()) layout.add_number(stride);
    }
    buckets.push_back(std::make_unique<Bucket>(std::move(bucket), replicas()));
    buckets.back()->call =
        cat("the gradients of bucket ", number, " (from ", names_[buckets.back()->parameters[0]],
            ", ", std::hex, layout.value(), ')');
  }
  return buckets;
}

/// Parameters that are frozen now may be trained later.
void GradientReducer::install_hooks() {
  for (int r = 0; r < replicas(); ++r) {
    for (int p = 0; p < size(); ++p) {
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

LeafGradient::Sharing GradientReducer::sharing_of(int replica) const {
  return users_of_[owner_of_[replica]] > 1 ? LeafGradient::Sharing::SHARED
                                           : LeafGradient::Sharing::OWN;
}

// Rounds.

void GradientReducer::start_round() {
  for (auto& bucket : buckets_) {
    bucket->arrived.store(0, std::memory_order_relaxed);
    std::fill(bucket->node_size.begin(), bucket->node_size.end(), 0);
    std::fill(bucket->has_come.begin(), bucket->has_come.end(), 0);
    bucket->ready.store(false, std::memory_order_relaxed);
    bucket->claimed.store(0, std::memory_order_relaxed);
    bucket->done.store(0, std::memory_order_relaxed);
  }
  for (Member& member : members_) {
    member.missing.resize(buckets_.size());
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      member.missing[b] = static_cast<int>(buckets_[b]->parameters.size());
    }
    member.fresh.assign(names_.size(), 0);
    member.in_pass = member.abandoned = member.has_sums = false;
    member.passes = 0;
  }
  std::fill(skipped_.begin(), skipped_.end(), 0);
  std::fill(sparse_.begin(), sparse_.end(), 0);
}

/// `.grad` is what it was before the round.
void GradientReducer::forget_round() {
  courier_->start_over();
  for (ReplicaGradients& own : own_) own.forget_pass();
  for (auto& gradients : gradients_) std::fill(gradients.begin(), gradients.end(), at::Tensor());
  for (auto& sums : sums_) std::fill(sums.begin(), sums.end(), at::Tensor());
  for (auto& taken : taken_) taken = 0;
  std::uint64_t steps = 0;  // some replicas may not have come to count theirs
  for (const Member& member : members_) steps = std::max(steps, member.steps);
  for (Member& member : members_) member.steps = steps;
  start_round();
}

void GradientReducer::start_over() { forget_round(); }

/// The replica, if backward runs as part of a run of it. Elsewhere gradients are nobody's.
ReplicaContext* GradientReducer::running_replica(int replica) const {
  ReplicaContext* const current = replica_context_or_null();
  const bool is_running = current && &current->extended() == &strategy_ && current->in_run() &&
                          current->local_id() == replica;
  return is_running ? current : nullptr;
}

/// A run that threw may have left a round half done. The first replica of the next one clears it.
void GradientReducer::enter_run(const ReplicaContext& replica) {
  const std::uint64_t run = replica.run_serial();
  if (run_.load(std::memory_order_acquire) == run) return;
  const MutexLock lock(run_mutex_);
  const std::uint64_t before = run_.load(std::memory_order_acquire);
  const bool is_broken = std::any_of(members_.begin(), members_.end(),
                                     [](const Member& member) { return member.abandoned; });
  if (before != run && (is_broken || strategy_.has_failed(before))) forget_round();
  run_.store(run, std::memory_order_release);
}

void GradientReducer::require_whole_passes(const ReplicaContext& replica, const char* where) const {
  if (!is_abandoned(replica.local_id())) return;
  throw RuntimeError(
      where, cat("an earlier backward pass of replica ", replica.replica_id_in_sync_group(),
                 " threw in this run and was caught, so its gradients are half summed: let the "
                 "exception leave strategy.run(), or go on in another run"));
}

void GradientReducer::begin_pass(ReplicaContext& replica) {
  enter_run(replica);
  Member& member = members_[replica.local_id()];
  if (member.in_pass) return;
  require_whole_passes(replica, "backward");
  replica.take_turn("backward");
  member.in_pass = true;
  ++member.passes;
  ReplicaTraining::of(replica).note_reducer(*this);
  BackwardPass::of(replica).add(*this);
}

void GradientReducer::abandon_pass(int replica) {
  Member& member = members_[replica];
  member.abandoned = std::exchange(member.in_pass, false);
}

// Backward.

void GradientReducer::before_accumulation(int replica, int parameter) {
  ReplicaContext* const running = running_replica(replica);
  if (!running) return;
  enter_run(*running);
  own_[replica].before_accumulation(parameter, members_[replica].syncing);
}

void GradientReducer::gradient_is_ready(int replica, int parameter, const at::Tensor& incoming) {
  ReplicaContext* const running = running_replica(replica);
  if (!running) return;
  const bool is_summed = members_[replica].syncing;
  if (is_summed) begin_pass(*running);
  at::Tensor gradient = own_[replica].after_accumulation(parameter, is_summed, incoming);
  if (!is_summed) return;
  if (gradient.defined()) {
    keep(replica, parameter, std::move(gradient));
  } else if (!members_[replica].fresh[parameter]) {
    own_[replica].put_back(parameter);
  }
}

/// Takes a gradient into the round.
void GradientReducer::keep(int replica, int parameter, at::Tensor gradient) {
  Member& member = members_[replica];
  at::Tensor& kept = gradients_[replica][parameter];
  const int b = bucket_of_[parameter];
  if (!member.fresh[parameter]) {
    member.fresh[parameter] = 1;
    kept = std::move(gradient);
    if (--member.missing[b] == 0 && options_.overlap) arrive(replica, *buckets_[b]);
  } else if (!buckets_[b]->has_come[replica]) {  // a backward pass inside of this one made both
    kept = kept + gradient;
  } else {
    throw RuntimeError(
        "backward",
        cat("a backward pass inside of another one made a second gradient of ", names_[parameter],
            ", whose first one is being summed already: set .overlap = false"));
  }
}

/// The last replica of a bucket to come leaves it to those that are ahead of it.
void GradientReducer::arrive(int replica, Bucket& bucket) {
  fold(replica, bucket);
  const int arrived = bucket.arrived.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (arrived == replicas()) {
    if (!can_be_cut(bucket)) return;
    bucket.ready.store(true, std::memory_order_release);
    courier_->make_ready(bucket_of_[bucket.parameters[0]]);
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
      if (piece >= bucket->pieces.size()) break;
      sum_piece(bucket->pieces[piece]);
      bucket->done.fetch_add(1, std::memory_order_release);
    }
  }
}

/// Folds what the replicas of one device, which run one at a time, have of the sum's tree.
void GradientReducer::fold(int replica, Bucket& bucket) {
  const ReplicaLayout& layout = strategy_.layout();
  const ReductionTree tree(layout.global());
  const World& world = layout.world();
  bucket.has_come[replica] = 1;
  bucket.node_size[replica] = 1;
  const int id = world.id_of(replica);
  tree.climb({id, id + 1}, [&](Node left, Node right) {
    if (!world.has(left.lo) || !world.has(right.hi - 1)) return false;
    const int at_left = world.place_of(left.lo), at_right = world.place_of(right.lo);
    const bool one_device = layout.copy_of(at_left) == layout.copy_of(world.place_of(right.hi - 1));
    int &left_size = bucket.node_size[at_left], &right_size = bucket.node_size[at_right];
    if (!one_device || left_size != left.size() || right_size != right.size()) return false;
    fold_pair(at_left, at_right, bucket);
    left_size += std::exchange(right_size, 0);
    return true;
  });
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

// The exchange.

namespace {

/// A gradient where its parameter is. The program may have it from `autograd::grad`, which does not
/// call the parameter's hooks (see ReplicatedModule::place_gradients).
at::Tensor placed_as(const at::Tensor& parameter, at::Tensor gradient) {
  if (spmd::is_sharded(parameter)) {
    const auto& impl = *spmd::impl(parameter);
    return spmd::redistribute(gradient, impl.mesh(), impl.layout());
  }
  return spmd::is_sharded(gradient) ? spmd::full(gradient) : gradient;
}

}  // namespace

void GradientReducer::take_unsummed() {
  const at::NoGradGuard no_grad;
  for (int r = 0; r < replicas(); ++r) {
    for (int p = 0; p < size(); ++p) {
      at::Tensor gradient = own_[r].take_unsummed(p);
      if (!gradient.defined()) continue;
      members_[r].fresh[p] = 1;
      gradients_[r][p] = placed_as(parameters_[r][p], std::move(gradient));
    }
  }
}

void GradientReducer::take_gathered() {
  for (int r = 0; r < replicas(); ++r) {
    for (int p = 0; p < size(); ++p) {
      if (members_[r].fresh[p]) continue;
      at::Tensor gradient = own_[r].take_gathered(p);
      if (!gradient.defined()) continue;
      members_[r].fresh[p] = 1;
      gradients_[r][p] = std::move(gradient);
    }
  }
}

ParameterState& ParameterState::operator+=(const ParameterState& other) {
  if (with < 0) with = other.with;
  if (without < 0) without = other.without;
  has_dense |= other.has_dense;
  return *this;
}

ParameterState GradientReducer::state_of(int parameter) const {
  ParameterState state;
  for (int r = 0; r < replicas(); ++r) {
    const bool has_one = members_[r].fresh[parameter];
    (has_one ? state.with : state.without) = world().id_of(r);
    const at::Tensor& gradient = gradients_[r][parameter];  // undefined once it was folded
    if (has_one && gradient.defined() && !gradient.is_sparse()) state.has_dense = 1;
  }
  return state;
}

/// What is ready on this worker is there on all of its replicas, and dense.
void GradientReducer::agree(const char* where, FunctionRef<ParameterState(int)> state_of) {
  for (int p = 0; p < size(); ++p) {
    const bool is_ready = buckets_[bucket_of_[p]]->ready;
    if (is_ready && world().holds_root()) continue;
    const auto [with, without, has_dense] = state_of(p);
    if (!is_ready) skipped_[p] = with < 0;
    if (!is_ready) sparse_[p] = with >= 0 && !has_dense;
    if (with < 0 || without < 0 || options_.allow_unused) continue;
    const ValueError error(
        where, cat("parameter ", names_[p], " has a gradient on replica ", with,
                   " but none on replica ", without,
                   ": use it in the loss on every replica, or set .allow_unused = true to count "
                   "zeros"));
    world().fail_alike(error.what());  // buckets may be on their way
    forget_round();
    throw error;
  }
}

void GradientReducer::plan_round(std::vector<const GradientPiece*>& pieces) {
  try {
    for (auto& bucket : buckets_) {
      if (!bucket->ready) complete_gradients(*bucket);
      add_pieces(*bucket, pieces);
    }
  } catch (...) {
    forget_round();
    throw;
  }
}

/// What is left of a bucket. One that is ready belongs to the courier, where there is one.
void GradientReducer::add_pieces(const Bucket& bucket,
                                 std::vector<const GradientPiece*>& pieces) const {
  if (bucket.ready && !world().holds_root()) return;
  const bool in_chunks = bucket.ready || can_be_cut(bucket);
  const std::vector<GradientPiece>& all = in_chunks ? bucket.pieces : bucket.whole;
  for (std::size_t i = bucket.claimed; i < all.size(); ++i) {
    const bool skipped = skipped_[all[i].front().parameter];
    if (in_chunks || !skipped) pieces.push_back(&all[i]);
  }
}

void GradientReducer::sum_piece(const GradientPiece& piece) {
  for (const auto& [parameter, range] : piece) sum_.sum(parameter, range);
}

void GradientReducer::carry(std::vector<const GradientPiece*>& pieces) {
  const bool any = std::find(skipped_.begin(), skipped_.end(), 0) != skipped_.end();
  if (world().holds_root() || !any) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b) courier_->make_ready(static_cast<int>(b));
  courier_->wait();
  for (const auto& bucket : buckets_) {
    for (const GradientPiece& piece : bucket->whole) {
      if (!skipped_[piece.front().parameter]) pieces.push_back(&piece);
    }
  }
}

/// In the courier's thread. Of a bucket that left during backward, it sums what others have not.
void GradientReducer::carry_bucket(int number, WorldLane& lane) {
  Bucket& bucket = *buckets_[number];
  while (bucket.ready && bucket.claimed.load(std::memory_order_relaxed) < bucket.pieces.size()) {
    const std::size_t piece = bucket.claimed.fetch_add(1, std::memory_order_relaxed);
    if (piece >= bucket.pieces.size()) break;
    sum_piece(bucket.pieces[piece]);
    bucket.done.fetch_add(1, std::memory_order_release);
  }
  while (bucket.ready && bucket.done.load(std::memory_order_acquire) < bucket.pieces.size()) {
    std::this_thread::yield();
  }
  std::vector<int> parameters;
  for (const int p : bucket.parameters) {
    if (!skipped_[p]) parameters.push_back(p);
  }
  sum_.add_workers(lane, bucket.call, parameters, sparse_, bucket.kept);
}

void GradientReducer::finish_piece(const GradientPiece& piece) {
  for (const auto& [parameter, range] : piece) sum_.finish(parameter, range);
}

void GradientReducer::end_round() {
  for (int p = 0; p < size(); ++p) {
    summed_[p] = !skipped_[p];
    if (skipped_[p]) continue;
    for (int r = 0; r < replicas(); ++r) {
      if (users_of_[r] > 0) sums_[r][p] = gradients_[r][p];
    }
  }
  start_round();
  for (Member& member : members_) member.has_sums = true;
}

/// Gives every replica a gradient of each parameter that any has one of, and folds what did not
/// arrive during backward. Called while all replicas wait.
void GradientReducer::complete_gradients(Bucket& bucket) {
  for (const int p : bucket.parameters) {
    for (int r = 0; !skipped_[p] && r < replicas(); ++r) {
      if (members_[r].fresh[p]) continue;
      own_[r].before_accumulation(p, /*is_summed=*/true);
      gradients_[r][p] = zeros_for(r, p);
    }
  }
  for (int r = 0; r < replicas(); ++r) {
    if (!bucket.has_come[r]) fold(r, bucket);
  }
}

/// Sparse where the other replicas' gradients are.
at::Tensor GradientReducer::zeros_for(int replica, int parameter) const {
  const at::Tensor& own = parameters_[replica][parameter];
  for (int r = 0; r < replicas(); ++r) {
    const at::Tensor& other = gradients_[r][parameter];
    const bool is_sparse = members_[r].fresh[parameter] && other.defined() && other.is_sparse();
    if (is_sparse) return zeros_like_gradient(other).to(own.device());
  }
  if (sparse_[parameter]) {  // on another worker
    return at::_sparse_coo_tensor_unsafe(at::empty({1, 0}, at::kLong),
                                         at::empty_like(own.narrow(0, 0, 0)), own.sizes());
  }
  return at::zeros_like(own);
}

void GradientReducer::take_sums(int replica) {
  if (!std::exchange(members_[replica].has_sums, false)) return;
  const int owner = owner_of_[replica];
  for (int p = 0; p < size(); ++p) {
    gradients_[replica][p] = at::Tensor();
    if (summed_[p]) own_[replica].set_sum(p, sums_[owner][p], sharing_of(replica));
  }
  if (taken_[owner].fetch_add(1, std::memory_order_acq_rel) + 1 < users_of_[owner]) return;
  taken_[owner].store(0, std::memory_order_relaxed);
  std::fill(sums_[owner].begin(), sums_[owner].end(), at::Tensor());
}

// Steps.

void GradientReducer::synchronize(ReplicaContext& replica) {
  if (has_sums_over_replicas()) {
    enter_run(replica);
    require_whole_passes(replica, "optimizer.step");
    GradientExchange exchange(*this, replica.local_id());
    exchange.attend(replica);
  }
  if (replica.local_id() == 0) report_unused();
}

void GradientReducer::report_unused() {
  for (int p = 0; p < size(); ++p) {
    const at::Tensor& parameter = parameters_[0][p];
    const bool has_one =
        own_.empty() ? parameter.grad().defined() : own_[0].leaf(p).peek().defined();
    if (has_one || !parameter.requires_grad() || std::exchange(named_unused_[p], 1)) continue;
    log::warning(
        "[optimizer.step] parameter ", names_[p],
        " got no gradient on any replica: it is skipped; freeze it, or use it in the loss");
  }
}

void GradientReducer::leave_to_owner(const ReplicaContext& replica) {
  const int id = replica.local_id();
  if (!has_sums_over_replicas() || owner_of_[id] == id) return;
  enter_run(replica);
  own_[id].drop_sums();
}

void GradientReducer::begin_step(int owner) {
  if (!has_sums_over_replicas()) return;
  for (int r = 0; r < replicas(); ++r) {
    if (owner_of_[r] == owner) take_sums(r);  // those that wait for their turn have not yet
  }
  for (int p = 0; p < size(); ++p) own_[owner].leaf(p).borrow();
}

void GradientReducer::end_step(int owner) {
  if (!has_sums_over_replicas()) return;
  for (int r = 0; r < replicas(); ++r) {
    if (owner_of_[r] != owner) continue;
    for (int p = 0; r != owner && p < size(); ++p) {
      own_[r].leaf(p).set(own_[owner].leaf(p).peek(), LeafGradient::Sharing::SHARED);
    }
    own_[r].note_step();
  }
  for (int p = 0; users_of_[owner] > 1 && p < size(); ++p) {
    LeafGradient& leaf = own_[owner].leaf(p);
    leaf.set(leaf.take(), LeafGradient::Sharing::SHARED);
  }
}

void GradientReducer::zero_grad(int replica, bool set_to_none) {
  if (const ReplicaContext* running = running_replica(replica)) enter_run(*running);
  if (has_sums_over_replicas()) return own_[replica].zero(set_to_none);
  for (const at::Tensor& parameter : parameters_[replica]) {
    zero_gradient(parameter.mutable_grad(), set_to_none);
  }
}

void GradientReducer::clear_as_first() {
  if (replicas() == 1) return;
  for (int p = 0; p < size(); ++p) {
    if (!own_[0].forget_if_cleared(p)) continue;
    const bool is_none = !own_[0].leaf(p).peek().defined();
    for (int r = 1; r < replicas(); ++r) own_[r].clear(p, is_none);
  }
}

}  // namespace cohort
