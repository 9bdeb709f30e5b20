#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/base/home_process.h"
#include "cohort/base/mutex.h"
#include "cohort/collectives/exchange.h"
#include "cohort/collectives/reduction_tree.h"
#include "cohort/device/wait_clock.h"

namespace cohort {

class Worker;
class WorldLane;

/// The job that a strategy trains in: its workers and which one this is, its replicas and which of
/// them this worker runs, the seed, the names for errors, the exchange of bytes, and the end of a
/// run for all.
///
/// A process on its own is a world of one worker; nothing above the exchange asks whether there are
/// more. Replicas have global ids: worker w runs a block [first_of(w), first_of(w + 1)).
///
/// **Order.** Runs and collectives are begun in the same order on all workers. A collective on a
/// lane is complete on a worker only when all workers have come to the same one, so that an error
/// in it is the same everywhere, and the next one works.
///
/// **Failure.** A run that throws on one worker (`fail`) ends on all: whoever waits in a collective
/// that the worker has not completed, now or later in this *epoch*, gets the error. What it has
/// completed the others complete too, so that a step is taken by all workers or by none. Before its
/// next run or call each worker waits for the others, and a new epoch begins, in which messages of
/// the old one count no more. A worker that had ended the failed run already, and hears of it in a
/// later one, loses that. A worker that is gone ends everything: Unavailable, from then on.
class World {
 public:
  struct Options {
    /// Of the whole job; 0 means one for each device of each worker.
    int replicas = 0;
    /// The devices of this worker that replicas can be put on.
    int devices = 1;
    /// For every wait for other workers.
    WaitLimits limits = {};
  };

  /// This process alone, with so many replicas.
  static std::shared_ptr<World> alone(int replicas);

  /// The world that all workers of a job join, each from one thread, in the same order where there
  /// are several worlds. Returns when all have come. Throws ValueError on all workers if there are
  /// fewer replicas than workers, or if the workers ask for different numbers.
  static std::shared_ptr<World> join(const Worker& worker, const Options& options);

  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Workers.
  int workers() const { return static_cast<int>(first_of_.size()) - 1; }
  int index() const { return index_; }
  bool is_chief() const { return index_ == 0; }
  /// "worker 2 (replicas 6 and 7)".
  std::string name(int worker) const;
  /// Null for a process on its own.
  const std::shared_ptr<Exchange>& exchange() const { return exchange_; }

  // Replicas.
  int replicas() const { return first_of_.back(); }
  int first_of(int worker) const { return first_of_[worker]; }
  int first() const { return first_of_[index_]; }
  int local() const { return first_of_[index_ + 1] - first_of_[index_]; }
  int worker_of(int replica) const;
  /// The global id of the i-th replica here; the place here of the replica with a global id; and
  /// whether it is here.
  int id_of(int i) const { return first() + i; }
  int place_of(int id) const { return id - first(); }
  bool has(int id) const { return first() <= id && id < first() + local(); }

  /// What the replicas of a worker can add up by themselves: the nodes of the tree over all
  /// replicas. A world of one worker has one, the root.
  std::span<const collectives::Node> nodes_of(int worker) const { return nodes_[worker]; }
  std::span<const collectives::Node> nodes() const { return nodes_[index_]; }
  bool holds_root() const { return nodes().size() == 1 && nodes()[0].size() == replicas(); }

  /// The chief's seed, unless the program has called `set_seed` since, on all workers alike.
  std::uint64_t seed() const;

  // Lanes.

  /// Where replicas meet, and cross-replica calls. One thread at a time.
  WorldLane& replicas_lane() { return *replicas_lane_; }
  /// A lane of its own, for the sums of one model's gradients. A collective, whose call is `what`:
  /// for who has the turn, or in a collective of the replicas.
  std::unique_ptr<WorldLane> make_lane(std::string_view what);
  /// The same for what has an order of its own, beside that of runs and calls: input, which another
  /// thread may read while replicas run. Workers that meet there need not be in the same run.
  std::unique_ptr<WorldLane> make_lane_beside_runs(std::string_view what);

  // Runs.

  /// The right to begin a run or a cross-replica call: with several workers, only one thread at a
  /// time can be in order. Who has it may take it again, for a call inside of the call.
  class Turn {
   public:
    Turn() = default;
    explicit Turn(World& world) : world_(&world), lock_(world.turn_mutex_) { ++world.turns_held_; }
    ~Turn() {
      if (lock_) --world_->turns_held_;
    }
    Turn(Turn&&) = default;
    Turn& operator=(Turn&&) = delete;

   private:
    World* world_ = nullptr;
    std::unique_lock<std::recursive_mutex> lock_;
  };
  /// For a call. After a failed run it first waits for the other workers, and throws as every such
  /// wait.
  [[nodiscard]] Turn take_turn();
  /// For a run. The same; also throws Cancelled when another worker has lost its run of the same
  /// number and waits for this worker's next batch of data: the two would wait for each other.
  [[nodiscard]] Turn take_turn_for_run();

  /// A run begins on this worker, which has taken the turn for it. Returns its number, which is
  /// `next` but after a failed run: then the workers have agreed on one. Throws Cancelled if
  /// another worker's run has failed since the last one began, which takes this one with it.
  std::uint64_t begin_run(std::uint64_t next);

  /// How many runs have begun: what messages carry.
  std::uint64_t run() const { return run_.load(std::memory_order_relaxed); }

  /// This worker's run has thrown `error` in a replica: all workers get it. Says it once an epoch.
  void fail(int replica, const std::exception_ptr& error) noexcept;

  /// The run fails with what all workers find out by themselves, so that nobody need be told.
  void fail_alike(const std::string& text);

  const WaitLimits& limits() const { return limits_; }

  /// Counts the failed runs and late workers so far, alike on all workers: messages of another
  /// epoch are old.
  std::uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }

 private:
  friend class WorldLane;

  /// How many collectives a worker has completed on each lane, in the epoch that it has ended.
  using Progress = std::map<Lane, std::uint64_t>;

  /// Why the epoch is over.
  struct Failure {
    /// An exception of a replica; calls that do not fit; a lane that a worker has left; a worker
    /// that is late, or gone.
    enum Kind : std::uint8_t { RUN, MISMATCH, LEFT, LATE, GONE } kind = RUN;
    std::uint64_t run = 0;
    std::string text;

    /// Over with the run; a worker that is late or gone concerns everything.
    bool is_of_a_run() const { return kind < LATE; }
  };
  /// True if the failure takes this run with it. A worker that is behind first gets to the run that
  /// has failed: the others were through with all that comes before.
  bool ends_run(std::uint64_t run) const COHORT_REQUIRES(mutex_);
  /// True if a collective of a lane can't be completed any more.
  bool ends(const WorldLane& lane, std::uint64_t sequence) const COHORT_REQUIRES(mutex_);

  /// A message that nobody waits for.
  struct Posted {
    std::string text;
    Exchange::Transfer transfer;
  };

  World(std::shared_ptr<Exchange> exchange, int index, const WaitLimits& limits);

  void settle(std::vector<int> first_of);
  void agree_on_replicas(const Options& options);
  std::unique_ptr<WorldLane> agree_on_lane(std::string_view what, bool is_beside_runs);
  void hear_of_ended_runs();
  void begin_epoch(std::optional<std::uint64_t> attempt);
  std::uint64_t agree_on_failed_run(std::optional<std::uint64_t> attempt);
  std::uint64_t begin_agreement(std::optional<std::uint64_t> attempt);
  void take_back_if_lost(int worker) COHORT_REQUIRES(mutex_);
  void take_back_agreement();
  void check_not_lost(std::uint64_t attempt) COHORT_REQUIRES(mutex_);
  void tell_lost_run() COHORT_REQUIRES(mutex_);
  bool is_over(const WorldLane& lane, std::uint64_t sequence);
  void check(std::string_view where, const WorldLane& lane, std::uint64_t sequence);
  void enter_lane(WorldLane& lane);
  void leave_lane(WorldLane& lane);
  Progress progress() const COHORT_REQUIRES(mutex_);
  Failure failure_of_run(int replica, const std::string& text) const COHORT_REQUIRES(mutex_);
  void end_epoch(Failure::Kind kind, std::string text);
  void note(const Failure& failure, std::uint32_t epoch) COHORT_REQUIRES(mutex_);
  void tell_all(const Failure& failure, const Progress& progress, std::uint64_t lost = 0)
      COHORT_REQUIRES(mutex_);
  void listen() COHORT_REQUIRES(mutex_);
  void take_notice(int from, const Exchange::Arrival& notice) COHORT_REQUIRES(mutex_);
  bool arrives(Exchange::Transfer& transfer);
  void post(int to, Lane lane, const MessageHead& head, const std::string& text)
      COHORT_REQUIRES(mutex_);
  void post_to_all(Lane lane, const MessageHead& head, const std::string& text, int but = -1);
  void flush_posted();
  void note_alike(Failure::Kind kind, const std::string& text);
  [[noreturn]] void throw_alike(Failure::Kind kind, std::string_view where,
                                const std::string& text);
  [[noreturn]] static void rethrow(const Failure& failure, std::string_view where);

  // Constant after construction.
  const HomeProcess process_;
  const std::shared_ptr<Exchange> exchange_;
  const int index_;
  const WaitLimits limits_;
  std::vector<int> first_of_;  // of each worker; and the number of replicas
  std::vector<std::vector<collectives::Node>> nodes_;
  std::uint64_t chiefs_seed_ = 0, seed_at_join_ = 0, seeds_set_at_join_ = 0;
  Lane control_lane_ = 0;
  std::unique_ptr<WorldLane> replicas_lane_;

  std::atomic<Lane> next_lane_{0};  // without an exchange
  std::recursive_mutex turn_mutex_;
  std::atomic<std::uint64_t> run_{0};
  std::atomic<std::uint32_t> epoch_{0};

  // With the turn.
  int turns_held_ = 0;                     // by its thread
  std::optional<std::uint64_t> next_run_;  // agreed on

  Mutex mutex_;
  std::set<WorldLane*> lanes_ COHORT_GUARDED_BY(mutex_);
  Failure alike_ COHORT_GUARDED_BY(mutex_);  // the last one that all workers get by themselves
  std::list<Posted> posted_ COHORT_GUARDED_BY(mutex_);

  // How many runs this worker has begun or tried to begin; and of each other worker, the number of
  // the lost run that it last told of.
  std::uint64_t attempts_ COHORT_GUARDED_BY(mutex_) = 0;
  std::vector<std::uint64_t> lost_ COHORT_GUARDED_BY(mutex_);

  // Of this epoch.
  std::optional<Failure> failure_ COHORT_GUARDED_BY(mutex_);
  std::vector<std::optional<Progress>> failed_ COHORT_GUARDED_BY(mutex_);  // of each worker
  std::uint32_t last_failed_ COHORT_GUARDED_BY(mutex_) = 0;  // the last epoch known to have failed
  bool has_lost_run_ COHORT_GUARDED_BY(mutex_) = false;      // this worker has got the error
  bool has_told_ COHORT_GUARDED_BY(mutex_) = false;          // the others, of its own failed run
  bool has_told_lost_run_ COHORT_GUARDED_BY(mutex_) = false;

  // From the beginning of an agreement to its end.
  std::optional<std::uint64_t> failed_run_ COHORT_GUARDED_BY(mutex_);
  /// The number of the run that waits for the agreement, and the failed epoch that it ends.
  struct Agreement {
    std::uint64_t attempt;
    Failure failure;
    std::uint32_t epoch;
    bool is_taken_back = false;
  };
  std::optional<Agreement> agreement_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort
