#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/collectives/exchange.h"
#include "cohort/collectives/world.h"

namespace cohort {

/// The collectives of the workers on one lane: one after the other, in the same order on all.
///
/// `call` says what a collective is: the user's call, with dtypes and sizes. It travels in the
/// first message and must be the same on all workers, else all of them get InvalidArgument, which
/// names both calls; the lane can be used afterwards. Every wait has the limits of the world, and
/// throws
///   - DeadlineExceeded, which names the workers that have not come,
///   - Unavailable when a worker is gone,
///   - Cancelled when the run has failed on another worker,
/// after which the epoch of the world is over.
///
/// One thread at a time.
class WorldLane {
 public:
  using Bytes = std::vector<std::byte>;

  /// See World::make_lane and make_lane_beside_runs.
  WorldLane(World& world, Lane lane, bool is_beside_runs = false);
  /// Tells the others that this worker comes here no more: who waits for it here gets Unavailable.
  ~WorldLane();
  WorldLane(const WorldLane&) = delete;
  WorldLane& operator=(const WorldLane&) = delete;

  World& world() const { return world_; }
  Lane lane() const { return lane_; }
  bool is_beside_runs() const { return is_beside_runs_; }

  /// What each worker gives, in order of workers: few bytes, which may differ in number.
  std::vector<Bytes> all_gather(std::string_view call, ConstBytes mine);

  /// Every worker's memory becomes a copy of the chief's. As many bytes on all, in the same parts.
  void broadcast(std::string_view call, std::span<const MutableBytes> memory);

  /// What the chief gives, of any size; what the others give is not looked at.
  Bytes of_chief(std::string_view call, std::span<const ConstBytes> mine);

  /// The next collective fails on all workers, since this one can't do its part of it: its replicas
  /// do not fit to each other, or have thrown. The others get InvalidArgument or Cancelled. Does
  /// nothing on a process of its own, and in an epoch that is over.
  void refuse_mismatch(std::string_view call, const std::string& why);
  void refuse(std::string_view call, const std::exception_ptr& error);

  /// How many collectives have failed here with an error that all workers get.
  std::uint64_t failures() const { return failures_; }

  /// Does this worker's part of what all workers do next on this lane: what `part` throws fails it
  /// on all of them.
  template <class Part>
  decltype(auto) take_part(std::string_view call, Part&& part) {
    const std::uint64_t before = failures_;
    try {
      return part();
    } catch (...) {
      if (failures_ == before) refuse(call, std::current_exception());
      throw;
    }
  }

  /// While it lives, waits for other workers have these limits instead of the world's.
  class OwnLimits {
   public:
    OwnLimits(WorldLane& lane, const WaitLimits& limits)
        : lane_(lane.world_.exchange() ? &lane : nullptr) {
      if (lane_) before_ = std::exchange(lane_->limits_, &limits);
    }
    ~OwnLimits() {
      if (lane_) lane_->limits_ = before_;
    }
    OwnLimits(const OwnLimits&) = delete;
    OwnLimits& operator=(const OwnLimits&) = delete;

   private:
    WorldLane* const lane_;  // null where nobody is waited for
    const WaitLimits* before_ = nullptr;
  };

  /// Ends a collective that another thread waits in, and all further ones until `resume`, with
  /// Cancelled: what this worker would have brought does not come any more. From any thread.
  void abandon();
  void resume() { abandoned_.store(false, std::memory_order_release); }

  /// For a thread of its own, which may be slower than the runs: its collectives belong to this
  /// epoch of the world, and throw Cancelled in another one.
  void only_in(std::uint32_t epoch) { only_in_ = epoch; }

  /// How many collectives of that epoch this worker has completed. From any thread.
  std::uint64_t completed_in(std::uint32_t epoch) const;

  class Round;

 private:
  friend class World;

  /// What messages carry, and what must be the same on all workers. Beside runs there is neither a
  /// run, nor an epoch that ends with a failed one.
  std::uint64_t run() const { return is_beside_runs_ ? 0 : world_.run(); }
  std::uint32_t epoch() const { return is_beside_runs_ ? 0 : world_.epoch(); }

  /// The next collective is the first one of its epoch, whatever came before.
  void forget_epoch() { epoch_ = ~std::uint32_t{0}; }

  /// The number of the next collective, which counts from now on.
  std::uint64_t next_in_epoch();
  void note_completed(std::uint32_t epoch, std::uint64_t sequence);
  void refuse(std::uint64_t kind, const std::string& why);

  World& world_;
  const Lane lane_;
  const bool is_beside_runs_;
  const WaitLimits* limits_ = nullptr;  // instead of the world's
  std::optional<std::uint32_t> only_in_;
  std::uint32_t epoch_ = 0;
  std::uint64_t sequence_ = 0;               // of collectives, in the epoch
  std::optional<std::uint64_t> broken_off_;  // the one that an exception of this worker has ended
  std::uint64_t failures_ = 0;
  std::atomic<std::uint64_t> completed_{0};  // the epoch, and how many in it: 32 bits each
  std::atomic<bool> abandoned_{false};
};

/// One collective: what this worker sends and expects. For those who make collectives.
///
/// A first step, in which every worker must send something to the chief and the chief expects it
/// from all; then any number of others. A step's messages are announced with `send` and `expect`,
/// and `finish` returns when all of them are there.
class WorldLane::Round {
 public:
  Round(WorldLane& lane, std::string_view call);
  /// The collective is complete. In an exception: abandons what is not finished, and the lane knows
  /// which collective `refuse` is to fail.
  ~Round();
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  void send(int to, std::span<const ConstBytes> body);
  void expect(int from, std::vector<MutableBytes> into);
  /// A body of any size.
  void expect(int from, Bytes& into);
  void finish();

 private:
  struct Outgoing {
    std::vector<ConstBytes> body;
    Exchange::Transfer transfer;
  };
  struct Expected {
    enum State { AWAITED, COMING, HERE };

    int from;
    std::vector<MutableBytes> into;
    Bytes* bytes = nullptr;  // instead of `into`
    Bytes call = {};
    State state = AWAITED;
    Exchange::Transfer transfer = {};
  };

  void wait_for_all();
  void say_that_i_wait();
  void listen_for_waiting();
  bool is_complete();
  bool advance(Expected& expected);
  void take(Expected& expected, const Exchange::Arrival& arrival);
  Bytes take_all(int from, const Exchange::Arrival& arrival);
  void throw_error(int from, const Exchange::Arrival& arrival);
  void throw_mismatch(int from, const Exchange::Arrival& arrival);
  void throw_left(int from);
  [[noreturn]] void throw_abandoned() const;
  void throw_gone(int worker, const std::string& why);
  void throw_late(WaitLimits::Seconds timeout);
  void warn(WaitLimits::Seconds waited) const;
  enum class Of { EXPECTED, ALL };
  std::string missing(Of of) const;
  MessageHead head(std::uint64_t kind, std::size_t text_bytes) const;
  bool is_of_this(const MessageHead& head) const;
  bool is_old(const MessageHead& head) const;

  WorldLane& lane_;
  World& world_;
  Exchange& exchange_;
  const std::string call_;
  const std::uint64_t call_hash_;
  const int exceptions_ = std::uncaught_exceptions();
  std::uint64_t run_ = 0;
  std::uint32_t epoch_ = 0;
  std::uint64_t sequence_ = 0;
  bool has_failed_ = false;
  bool has_said_that_it_waits_ = false;
  std::vector<bool> introduced_;  // to each worker: the call has been sent
  std::vector<bool> waits_;       // each worker: it has said that it is in this collective
  std::list<Outgoing> outgoing_;
  std::list<Expected> expected_;
};

}  // namespace cohort
