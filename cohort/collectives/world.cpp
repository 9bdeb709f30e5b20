#include "cohort/collectives/world.h"

#include <algorithm>
#include <cstring>

#include "cohort/base/exception_note.h"
#include "cohort/base/random.h"
#include "cohort/collectives/worker.h"
#include "cohort/collectives/world_lane.h"
#include "cohort/collectives/world_message.h"

namespace cohort {

using namespace world_message;

std::shared_ptr<World> World::alone(int replicas) {
  std::shared_ptr<World> world(new World(nullptr, 0, {}));
  world->settle({0, replicas});
  return world;
}

std::shared_ptr<World> World::join(const Worker& worker, const Options& options) {
  std::shared_ptr<World> world(new World(worker.exchange(), worker.index(), options.limits));
  world->agree_on_replicas(options);
  return world;
}

World::World(std::shared_ptr<Exchange> exchange, int index, const WaitLimits& limits)
    : exchange_(std::move(exchange)), index_(index), limits_(limits) {
  control_lane_ = exchange_ ? exchange_->take_lanes(1) : 0;
  first_of_.assign((exchange_ ? exchange_->workers() : 1) + 1, 0);
  replicas_lane_ = make_lane();
}

World::~World() {
  replicas_lane_.reset();
  const MutexLock lock(mutex_);
  for (Posted& each : posted_) exchange_->cancel(each.transfer);
}

void World::settle(std::vector<int> first_of) {
  first_of_ = std::move(first_of);
  const collectives::ReductionTree tree(replicas());
  nodes_.clear();
  for (int w = 0; w < workers(); ++w) {
    nodes_.push_back(tree.subtrees(first_of_[w], first_of_[w + 1]));
  }
}

namespace {

/// What a worker says of itself when it joins.
struct Introduction {
  std::int64_t wanted;
  std::int64_t devices;
  std::uint64_t seed;
};

template <class T>
ConstBytes as_message(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <class T>
T value_in(const std::vector<std::byte>& bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), std::min(sizeof value, bytes.size()));
  return value;
}

/// So many replicas in blocks; the first ones take one more.
std::vector<int> in_blocks(int replicas, int workers) {
  std::vector<int> first_of{0};
  for (int w = 0; w < workers; ++w) {
    first_of.push_back(first_of.back() + replicas / workers + (w < replicas % workers ? 1 : 0));
  }
  return first_of;
}

}  // namespace

void World::agree_on_replicas(const Options& options) {
  seed_at_join_ = cohort::seed();
  const Introduction mine{options.replicas, options.devices, seed_at_join_};
  const auto all = replicas_lane_->all_gather("the strategy's constructor", as_message(mine));
  const auto chief = value_in<Introduction>(all[0]);
  chiefs_seed_ = chief.seed;
  std::vector<int> one_each{0};
  for (int w = 0; w < workers(); ++w) {
    const auto other = value_in<Introduction>(all[w]);
    one_each.push_back(one_each.back() + static_cast<int>(other.devices));
    if (other.wanted == chief.wanted) continue;
    throw ValueError("MultiWorkerMirroredStrategy",
                     cat("the workers ask for different numbers of replicas in the job: worker 0 "
                         "for .replicas = ",
                         chief.wanted, ", worker ", w, " for ", other.wanted,
                         "; give all of them the same number"));
  }
  const int wanted = static_cast<int>(chief.wanted);
  if (wanted > 0 && wanted < workers()) {
    throw ValueError("MultiWorkerMirroredStrategy",
                     cat("fewer replicas than workers: expected at least ", workers(),
                         ", got .replicas = ", wanted, "; it counts the whole job"));
  }
  settle(wanted > 0 ? in_blocks(wanted, workers()) : one_each);
}

std::string World::name(int worker) const {
  const std::string name = exchange_ ? exchange_->name(worker) : cat("worker ", worker);
  const int first = first_of_[worker], last = first_of_[worker + 1] - 1;
  if (last < first) return name;
  if (last == first) return cat(name, " (replica ", first, ')');
  return cat(name, " (replicas ", first, last == first + 1 ? " and " : " to ", last, ')');
}

int World::worker_of(int replica) const {
  const auto next = std::upper_bound(first_of_.begin(), first_of_.end(), replica);
  return static_cast<int>(next - first_of_.begin()) - 1;
}

std::uint64_t World::seed() const {
  const std::uint64_t own = cohort::seed();
  return own == seed_at_join_ ? chiefs_seed_ : own;
}

std::unique_ptr<WorldLane> World::make_lane() {
  return std::make_unique<WorldLane>(*this, exchange_ ? exchange_->take_lanes(1) : next_lane_++);
}

/// Nothing is sent to tell of it where nobody is.
void World::leave_lane(Lane lane) {
  if (exchange_) post_to_all(lane, {BYE, 0, 0, 0, 0, 0}, "");  // of every epoch
}

std::unique_ptr<WorldLane> World::make_lane_beside_runs() {
  auto lane = make_lane();
  lane->is_beside_runs_ = true;
  return lane;
}

// Runs.

std::uint64_t World::begin_run(std::uint64_t next) {
  if (!exchange_) return next;
  std::uint64_t failed = 0;
  {
    const MutexLock lock(mutex_);
    listen();
    if (!concerns(next + 1)) {
      run_.store(next + 1, std::memory_order_relaxed);
      return next;
    }
    if (failure_->kind == Failure::GONE || !has_lost_run_) {
      has_lost_run_ = true;
      rethrow(*failure_, "strategy.run");
    }
    failed = failure_->run;
  }
  const std::uint64_t run = agree_on_run(failed);
  run_.store(run + 1, std::memory_order_relaxed);
  return run;
}

/// The first run that failed on any worker is the last one that counts.
std::uint64_t World::agree_on_run(std::uint64_t failed) {
  {
    const MutexLock lock(mutex_);
    failure_.reset();
    has_lost_run_ = false;
    epoch_.fetch_add(1, std::memory_order_release);
  }
  run_.store(0, std::memory_order_relaxed);  // alike on all workers, for this call
  const auto all =
      replicas_lane_->all_gather("strategy.run after a failed run", as_message(failed));
  std::uint64_t first = failed;
  for (const auto& each : all) first = std::min(first, value_in<std::uint64_t>(each));
  return first;
}

void World::fail(int replica, const std::exception_ptr& error) noexcept {
  if (!exchange_) return;
  try {
    std::string text = text_of(error);
    const MutexLock lock(mutex_);
    // What all workers have got already keeps its kind for those who have not.
    const bool is_mismatch = !mismatch_.empty() && text.find(mismatch_) != std::string::npos;
    if (!is_mismatch) {
      text = cat("the run of ", name(index_), " has failed: replica ", replica, " threw: ", text);
    }
    has_lost_run_ = true;
    end_epoch_locked({is_mismatch ? Failure::MISMATCH : Failure::RUN, run(), std::move(text)});
  } catch (...) {  // no memory for the text: the others wait until their time is over
  }
}

void World::fail_alike(const std::string& text) {
  if (!exchange_) return;
  const MutexLock lock(mutex_);
  has_lost_run_ = true;
  if (!failure_) failure_ = {Failure::RUN, run(), text};
  exchange_->wake();
}

void World::note_mismatch(const std::string& text) {
  const MutexLock lock(mutex_);
  mismatch_ = text;
}

void World::throw_mismatch(std::string_view where, const std::string& text) {
  note_mismatch(text);
  throw InvalidArgument(where, text);
}

bool World::concerns(std::uint64_t run) const {
  if (!failure_) return false;
  return !failure_->is_of_a_run() || run >= failure_->run;
}

bool World::is_over(std::uint64_t run) {
  const MutexLock lock(mutex_);
  listen();
  return concerns(run);
}

void World::check(std::string_view where, std::uint64_t run) {
  if (!exchange_) return;
  const MutexLock lock(mutex_);
  listen();
  if (!concerns(run)) return;
  has_lost_run_ = true;
  rethrow(*failure_, where);
}

void World::end_epoch(Failure failure) {
  const MutexLock lock(mutex_);
  end_epoch_locked(std::move(failure));
}

/// The first failure counts, on each worker, but for those of the world itself, which count for
/// longer; all workers are told of each.
void World::end_epoch_locked(Failure failure) {
  if (failure_ && (!failure_->is_of_a_run() || failure.is_of_a_run())) return;
  const MessageHead head{NOTICE | failure.text.size() << 8,       epoch(), failure.run, 0, 0,
                         static_cast<std::uint64_t>(failure.kind)};
  for (int w = 0; w < workers(); ++w) {
    if (w != index_) post(w, control_lane_, head, failure.text);
  }
  failure_ = std::move(failure);
  exchange_->wake();
}

void World::listen() {
  for (int w = 0; w < workers(); ++w) {
    if (w == index_) continue;
    while (const auto arrival = exchange_->peek(w, control_lane_)) take_notice(w, *arrival);
  }
}

void World::take_notice(int from, const Exchange::Arrival& notice) {
  std::string text(notice.body_bytes, '\0');
  const MutableBytes part = std::as_writable_bytes(std::span(text.data(), text.size()));
  Exchange::Transfer transfer;
  exchange_->receive(transfer, from, control_lane_, {&part, text.empty() ? 0U : 1U});
  while (!transfer.done()) {
    const auto seen = exchange_->events();
    if (!transfer.done()) exchange_->wait(seen, std::nullopt);
  }
  if (kind_of(notice.head) != NOTICE || epoch_of(notice.head) < epoch()) return;
  Failure told{static_cast<Failure::Kind>(notice.head[5]), run_of(notice.head), std::move(text)};
  if (failure_ && (!failure_->is_of_a_run() || told.is_of_a_run())) return;
  failure_ = std::move(told);
  exchange_->wake();
}

void World::post_to_all(Lane lane, const MessageHead& head, const std::string& text, int but) {
  const MutexLock lock(mutex_);
  for (int w = 0; w < workers(); ++w) {
    if (w != index_ && w != but) post(w, lane, head, text);
  }
}

void World::post(int to, Lane lane, const MessageHead& head, const std::string& text) {
  posted_.remove_if([](const Posted& each) { return each.transfer.done(); });
  Posted& message = posted_.emplace_back();
  message.text = text;
  const ConstBytes body = std::as_bytes(std::span(message.text.data(), message.text.size()));
  exchange_->send(message.transfer, to, lane, head, {&body, text.empty() ? 0U : 1U});
}

void World::rethrow(const Failure& failure, std::string_view where) {
  switch (failure.kind) {
    case Failure::MISMATCH:
      throw InvalidArgument(where, failure.text);
    case Failure::LATE:
      throw DeadlineExceeded(where, failure.text);
    case Failure::GONE:
      throw Unavailable(where, failure.text);
    case Failure::RUN:
      break;
  }
  throw Cancelled(where, failure.text);
}

}  // namespace cohort
