#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error.h"
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
/// **Failure.** A run that throws on one worker (`fail`) ends on all: whoever waits in a
/// collective, now or later in this *epoch*, gets the error. Each worker loses one run; before its
/// next one it waits for the others (`begin_run`), and a new epoch begins, in which messages of the
/// old one count no more. A worker that is gone ends everything: Unavailable, from then on.
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
  /// A lane of its own, for the sums of one model's gradients. Made in the same order everywhere.
  std::unique_ptr<WorldLane> make_lane();
  /// The same for what has an order of its own, beside that of runs and calls: input, which another
  /// thread may read while replicas run. Workers that meet there need not be in the same run.
  std::unique_ptr<WorldLane> make_lane_beside_runs();

  // Runs.

  /// Holds the world for a run or a cross-replica call: with several workers, only one at a time
  /// can be in order.
  using Turn = std::unique_lock<std::mutex>;
  [[nodiscard]] Turn take_turn() { return exchange_ ? Turn(turn_mutex_) : Turn(); }

  /// A run begins on this worker. Returns its number, which is `next` but after a failed run: then
  /// the workers agree on one. Throws Cancelled if another worker's run has failed since the last
  /// one began, which takes this one with it; and as every wait for workers does.
  std::uint64_t begin_run(std::uint64_t next);

  /// How many runs have begun: what messages carry.
  std::uint64_t run() const { return run_.load(std::memory_order_relaxed); }

  /// This worker's run has thrown `error` in a replica: all workers get it. Says it once an epoch.
  void fail(int replica, const std::exception_ptr& error) noexcept;

  /// The run fails with what all workers find out by themselves, so that nobody need be told.
  void fail_alike(const std::string& text);

  /// Throws what ended the epoch, if something has that concerns this run: Cancelled, or the error
  /// of the world itself. Run 0 is none: a worker that is late or gone concerns it, a failed run
  /// does not.
  void check(std::string_view where, std::uint64_t run);

  const WaitLimits& limits() const { return limits_; }

 private:
  friend class WorldLane;

  /// Why the epoch is over.
  struct Failure {
    enum Kind : std::uint8_t { RUN, MISMATCH, LATE, GONE } kind = RUN;
    std::uint64_t run = 0;
    std::string text;

    /// Over with the run; a worker that is late or gone concerns everything.
    bool is_of_a_run() const { return kind == RUN || kind == MISMATCH; }
  };
  /// True if the failure concerns what this worker does now. A worker that is behind first gets to
  /// the run that has failed: the others were through with all that comes before.
  bool concerns(std::uint64_t run) const COHORT_REQUIRES(mutex_);

  /// A message that nobody waits for.
  struct Posted {
    std::string text;
    Exchange::Transfer transfer;
  };

  World(std::shared_ptr<Exchange> exchange, int index, const WaitLimits& limits);

  void settle(std::vector<int> first_of);
  void agree_on_replicas(const Options& options);
  std::uint64_t agree_on_run(std::uint64_t failed);
  std::uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }
  bool is_over(std::uint64_t run);
  void leave_lane(Lane lane);
  void end_epoch(Failure failure);
  void end_epoch_locked(Failure failure) COHORT_REQUIRES(mutex_);
  void listen() COHORT_REQUIRES(mutex_);
  void take_notice(int from, const Exchange::Arrival& notice) COHORT_REQUIRES(mutex_);
  void post(int to, Lane lane, const MessageHead& head, const std::string& text)
      COHORT_REQUIRES(mutex_);
  void post_to_all(Lane lane, const MessageHead& head, const std::string& text, int but = -1);
  void note_mismatch(const std::string& text);
  [[noreturn]] void throw_mismatch(std::string_view where, const std::string& text);
  [[noreturn]] static void rethrow(const Failure& failure, std::string_view where);

  // Constant after construction.
  const std::shared_ptr<Exchange> exchange_;
  const int index_;
  const WaitLimits limits_;
  std::vector<int> first_of_;  // of each worker; and the number of replicas
  std::vector<std::vector<collectives::Node>> nodes_;
  std::uint64_t chiefs_seed_ = 0, seed_at_join_ = 0;
  Lane control_lane_ = 0;
  std::unique_ptr<WorldLane> replicas_lane_;

  std::atomic<Lane> next_lane_{0};  // without an exchange
  std::mutex turn_mutex_;
  std::atomic<std::uint64_t> run_{0};
  std::atomic<std::uint32_t> epoch_{0};

  Mutex mutex_;
  std::optional<Failure> failure_ COHORT_GUARDED_BY(mutex_);
  bool has_lost_run_ COHORT_GUARDED_BY(mutex_) = false;  // in this epoch
  std::string mismatch_ COHORT_GUARDED_BY(mutex_);       // the text of the last one
  std::list<Posted> posted_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort
