#include "cohort/collectives/world.h"

#include <algorithm>
#include <chrono>
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
  failed_.resize(first_of_.size() - 1);
  lost_.resize(first_of_.size() - 1);
  replicas_lane_ = std::make_unique<WorldLane>(*this, exchange_ ? exchange_->take_lanes(1) : 0);
}

World::~World() {
  replicas_lane_.reset();
  if (exchange_ && process_.is_current()) flush_posted();
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
  seeds_set_at_join_ = seeds_set();
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
  const bool is_as_at_join = exchange_ && own == seed_at_join_ && seeds_set() == seeds_set_at_join_;
  return is_as_at_join ? chiefs_seed_ : own;
}

// Lanes.

void World::enter_lane(WorldLane& lane) {
  if (!exchange_) return;
  const MutexLock lock(mutex_);
  lanes_.insert(&lane);
}

/// Nothing is sent to tell of it where nobody is, or in the child of a fork.
void World::leave_lane(WorldLane& lane) {
  if (!exchange_ || !process_.is_current()) return;
  {
    const MutexLock lock(mutex_);
    lanes_.erase(&lane);
  }
  post_to_all(lane.lane(), {BYE, 0, 0, 0, 0, 0}, "");  // of every epoch
}

std::unique_ptr<WorldLane> World::make_lane(std::string_view what) {
  return agree_on_lane(what, /*is_beside_runs=*/false);
}

std::unique_ptr<WorldLane> World::make_lane_beside_runs(std::string_view what) {
  return agree_on_lane(what, /*is_beside_runs=*/true);
}

/// The first one that no worker has used, also if some have made one that others have not.
std::unique_ptr<WorldLane> World::agree_on_lane(std::string_view what, bool is_beside_runs) {
  if (!exchange_) return std::make_unique<WorldLane>(*this, next_lane_++, is_beside_runs);
  Lane lane = exchange_->next_lane();
  for (const auto& each : replicas_lane_->all_gather(what, as_message(lane))) {
    lane = std::max(lane, value_in<Lane>(each));
  }
  exchange_->skip_lanes(lane + 1);
  return std::make_unique<WorldLane>(*this, lane, is_beside_runs);
}

// Runs.

World::Turn World::take_turn() {
  if (!exchange_) return {};
  process_.require("strategy.run", "job of several workers");
  Turn turn(*this);
  if (turns_held_ == 1) hear_of_ended_runs();
  begin_epoch(std::nullopt);
  return turn;
}

World::Turn World::take_turn_for_run() {
  if (!exchange_) return {};
  process_.require("strategy.run", "job of several workers");
  Turn turn(*this);
  std::uint64_t attempt = 0;
  {
    const MutexLock lock(mutex_);
    attempt = ++attempts_;
  }
  begin_epoch(attempt);
  return turn;
}

std::uint64_t World::begin_run(std::uint64_t next) {
  if (!exchange_) return next;
  const std::uint64_t run = next_run_.value_or(next);
  const MutexLock lock(mutex_);
  listen();
  if (ends_run(run + 1)) {
    has_lost_run_ = true;
    rethrow(*failure_, "strategy.run");
  }
  next_run_.reset();
  run_.store(run + 1, std::memory_order_relaxed);
  return run;
}

/// Another worker's run may have failed after this worker has ended its own run of that number. A
/// call then joins the agreement at once, instead of being cancelled first.
void World::hear_of_ended_runs() {
  const MutexLock lock(mutex_);
  listen();
  if (failure_ && failure_->is_of_a_run() && failure_->run <= run()) has_lost_run_ = true;
}

/// After a failure that this worker has seen: the workers meet, and agree on the next run.
void World::begin_epoch(std::optional<std::uint64_t> attempt) {
  {
    const MutexLock lock(mutex_);
    if (!failure_ || !has_lost_run_ || failure_->kind == Failure::GONE) return;
    listen();
    if (attempt) check_not_lost(*attempt);
  }
  const std::uint64_t first = agree_on_failed_run(attempt);
  run_.store(first, std::memory_order_relaxed);
  next_run_ = first;
}

/// The first run that failed on any worker is the last one that counts.
std::uint64_t World::agree_on_failed_run(std::optional<std::uint64_t> attempt) {
  const std::uint64_t run_before = run();
  std::uint64_t first = begin_agreement(attempt);
  run_.store(0, std::memory_order_relaxed);  // alike on all workers, for this call
  try {
    for (const auto& each :
         replicas_lane_->all_gather("the first call after a failed run", as_message(first))) {
      first = std::min(first, value_in<std::uint64_t>(each));
    }
  } catch (...) {
    run_.store(run_before, std::memory_order_relaxed);
    take_back_agreement();
    throw;
  }
  const MutexLock lock(mutex_);
  failed_run_.reset();
  agreement_.reset();
  return first;
}

/// Returns the run that has failed: the same one if the workers have not agreed the last time.
std::uint64_t World::begin_agreement(std::optional<std::uint64_t> attempt) {
  const MutexLock lock(mutex_);
  if (!failed_run_) failed_run_ = failure_->run;
  if (attempt) agreement_ = {*attempt, *failure_, epoch()};
  failure_.reset();
  std::fill(failed_.begin(), failed_.end(), std::nullopt);
  has_lost_run_ = has_told_ = has_told_lost_run_ = false;
  epoch_.store(std::max(last_failed_, epoch()) + 1, std::memory_order_release);
  return *failed_run_;
}

/// Restores the epoch that the agreement was to end, if `take_back_if_lost` has given it up.
void World::take_back_agreement() {
  const MutexLock lock(mutex_);
  if (!agreement_) return;
  if (agreement_->is_taken_back) {
    epoch_.store(agreement_->epoch, std::memory_order_release);
    has_lost_run_ = has_told_ = true;
    replicas_lane_->forget_epoch();
  }
  agreement_.reset();
}

void World::check_not_lost(std::uint64_t attempt) {
  for (int w = 0; w < workers(); ++w) {
    if (w == index_ || lost_[w] < attempt) continue;
    throw Cancelled("strategy.run", cat(name(w), " has lost this run: ", failure_->text));
  }
}

/// Called by a worker that has lost a run and now waits for a batch of data from all workers.
/// Another worker may be about to begin the run that this one has lost, and wait there for this one
/// to agree on a new epoch. It is told to lose that run too, so that it comes to the batch.
void World::tell_lost_run() {
  if (!failure_ || !has_lost_run_ || std::exchange(has_told_lost_run_, true)) return;
  tell_all(*failure_, failed_[index_] ? *failed_[index_] : progress(), attempts_);
}

void World::fail(int replica, const std::exception_ptr& error) noexcept {
  if (!exchange_) return;
  try {
    const std::string text = text_of(error);
    const MutexLock lock(mutex_);
    has_lost_run_ = true;
    if (has_told_ || (failure_ && !failure_->is_of_a_run())) return;
    has_told_ = true;
    if (!failed_[index_]) failed_[index_] = progress();
    const Failure failure = failure_ ? *failure_ : failure_of_run(replica, text);
    tell_all(failure, *failed_[index_]);
    note(failure, epoch());
  } catch (...) {  // no memory for the text: the others wait until their time is over
  }
}

/// What all workers have got already keeps its kind for those who have not.
World::Failure World::failure_of_run(int replica, const std::string& text) const {
  const bool is_alike = !alike_.text.empty() && text.find(alike_.text) != std::string::npos;
  if (is_alike) return {alike_.kind, run(), text};
  return {Failure::RUN, run(),
          cat("the run of ", name(index_), " has failed: replica ", replica, " threw: ", text)};
}

void World::fail_alike(const std::string& text) {
  if (!exchange_) return;
  const MutexLock lock(mutex_);
  has_lost_run_ = true;
  if (!failed_[index_]) failed_[index_] = progress();
  note({Failure::RUN, run(), text}, epoch());
}

World::Progress World::progress() const {
  Progress progress;
  for (const WorldLane* lane : lanes_) progress[lane->lane()] = lane->completed_in(epoch());
  return progress;
}

void World::note_alike(Failure::Kind kind, const std::string& text) {
  const MutexLock lock(mutex_);
  alike_ = {kind, 0, text};
}

void World::throw_alike(Failure::Kind kind, std::string_view where, const std::string& text) {
  note_alike(kind, text);
  rethrow({kind, 0, text}, where);
}

bool World::ends_run(std::uint64_t run) const {
  if (!failure_) return false;
  return !failure_->is_of_a_run() || run >= failure_->run;
}

bool World::ends(const WorldLane& lane, std::uint64_t sequence) const {
  if (!failure_) return false;
  if (!failure_->is_of_a_run()) return true;
  if (lane.is_beside_runs()) return false;
  return std::any_of(failed_.begin(), failed_.end(), [&](const auto& progress) {
    if (!progress) return false;
    const auto completed = progress->find(lane.lane());
    return completed == progress->end() || completed->second <= sequence;
  });
}

bool World::is_over(const WorldLane& lane, std::uint64_t sequence) {
  const MutexLock lock(mutex_);
  listen();
  if (lane.is_beside_runs()) tell_lost_run();
  return ends(lane, sequence);
}

void World::check(std::string_view where, const WorldLane& lane, std::uint64_t sequence) {
  const MutexLock lock(mutex_);
  listen();
  if (!ends(lane, sequence)) return;
  has_lost_run_ = true;
  rethrow(*failure_, where);
}

/// A worker is late or gone: all workers are told.
void World::end_epoch(Failure::Kind kind, std::string text) {
  const MutexLock lock(mutex_);
  const Failure failure{kind, failed_run_.value_or(run()), std::move(text)};
  if (!failure_ || failure_->is_of_a_run()) tell_all(failure, {});
  note(failure, epoch());
}

/// The first failure counts, on each worker, but for those of the world itself, which count for
/// longer.
void World::note(const Failure& failure, std::uint32_t epoch) {
  last_failed_ = std::max(last_failed_, epoch);
  if (failure_ && failure_->is_of_a_run() && failure.is_of_a_run()) {
    failure_->run = std::min(failure_->run, failure.run);
  }
  if (!failure_ || (failure_->is_of_a_run() && !failure.is_of_a_run())) failure_ = failure;
  exchange_->wake();
}

/// The progress stands behind the text: a lane and a number, for each lane.
void World::tell_all(const Failure& failure, const Progress& progress, std::uint64_t lost) {
  std::string body = failure.text;
  for (const auto& [lane, completed] : progress) {
    const std::uint64_t entry[] = {lane, completed};
    body.append(reinterpret_cast<const char*>(entry), sizeof entry);
  }
  const MessageHead head{NOTICE | failure.text.size() << 8,       epoch(), failure.run, lost, 0,
                         static_cast<std::uint64_t>(failure.kind)};
  for (int w = 0; w < workers(); ++w) {
    if (w != index_) post(w, control_lane_, head, body);
  }
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
  if (!arrives(transfer)) return;
  if (kind_of(notice.head) != NOTICE) return;
  lost_[from] = std::max(lost_[from], notice.head[3]);
  if (epoch_of(notice.head) < epoch()) return take_back_if_lost(from);
  const std::string_view entries = std::string_view(text).substr(text_bytes_of(notice.head));
  Progress progress;
  for (std::size_t at = 0; at + 16 <= entries.size(); at += 16) {
    std::uint64_t entry[2];
    std::memcpy(entry, entries.data() + at, sizeof entry);
    progress[static_cast<Lane>(entry[0])] = entry[1];
  }
  const Failure told{static_cast<Failure::Kind>(notice.head[5]), run_of(notice.head),
                     text.substr(0, text_bytes_of(notice.head))};
  if (told.is_of_a_run()) failed_[from] = std::move(progress);
  note(told, static_cast<std::uint32_t>(epoch_of(notice.head)));
}

/// The other worker has lost, in the old epoch, the run that this worker waits to begin in a new
/// one: this worker's wait ends with the old epoch's failure.
void World::take_back_if_lost(int worker) {
  if (!agreement_ || lost_[worker] < agreement_->attempt) return;
  failure_ = agreement_->failure;
  failed_[worker].emplace();
  agreement_->is_taken_back = true;
}

/// Waits for the rest of a message whose beginning is here. False if it does not come.
bool World::arrives(Exchange::Transfer& transfer) {
  Exchange::Deadline deadline;
  if (limits_.timeout) {
    using Clock = std::chrono::steady_clock;
    deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(*limits_.timeout);
  }
  while (!transfer.done()) {
    const auto seen = exchange_->events();
    if (transfer.done()) break;
    if (exchange_->wait(seen, deadline)) continue;
    exchange_->cancel(transfer);
    return false;
  }
  return !transfer.failed();
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

/// What was said last should get out, if the others take it.
void World::flush_posted() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  const MutexLock lock(mutex_);
  const auto is_done = [](const Posted& each) { return each.transfer.done(); };
  while (!std::all_of(posted_.begin(), posted_.end(), is_done)) {
    const auto seen = exchange_->events();
    if (std::all_of(posted_.begin(), posted_.end(), is_done)) break;
    if (!exchange_->wait(seen, deadline)) break;
  }
  for (Posted& each : posted_) exchange_->cancel(each.transfer);
}

void World::rethrow(const Failure& failure, std::string_view where) {
  switch (failure.kind) {
    case Failure::MISMATCH:
      throw InvalidArgument(where, failure.text);
    case Failure::LATE:
      throw DeadlineExceeded(where, failure.text);
    case Failure::LEFT:
    case Failure::GONE:
      throw Unavailable(where, failure.text);
    case Failure::RUN:
      break;
  }
  throw Cancelled(where, failure.text);
}

}  // namespace cohort
