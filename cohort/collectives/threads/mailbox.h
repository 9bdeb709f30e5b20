#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/base/cond_var.h"
#include "cohort/base/mutex.h"
#include "cohort/collectives/exchange.h"
#include "cohort/collectives/threads/message_pool.h"
#include "cohort/collectives/threads/thread_network.h"

namespace cohort::threads {

/// What is under way to one worker, and what it knows of the others. Each link of the worker, with
/// its lanes, its speed and its end, is here, at the receiver's. Thread-safe.
///
/// **Time.** Something that is sent on a link is *visible* at a time that is known when it is sent:
/// later than all that was sent on the link before, as there is one order on it. At that time it
/// becomes an event, which nobody is there to notice but those who wait: they sleep until then. A
/// network without latency and with any bandwidth is `instant`: things are visible at once, and
/// nobody asks the clock.
///
/// **Who wakes whom.** An event wakes all who wait: it is what they wait for. What is visible later
/// wakes at most one of them, if it is earlier than all the rest, to sleep no longer than that.
/// One that leaves at its deadline wakes another, which may have relied on it.
class Mailbox {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Mailbox(int workers, const NetworkOptions& options);
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // For those who send. `sent` is when they began to; it does not matter in an instant network.

  MessagePool& pool() { return pool_; }
  bool is_instant() const { return is_instant_; }

  /// The message gets its place on the link. Nothing happens after the end of the link.
  void post(int from, Lane lane, Messages message, Time sent);

  /// The end of the link from a worker, behind what it has sent.
  void post_end(int from, const std::string& why, Time sent);

  // For the worker itself: see Exchange.

  std::optional<Exchange::Arrival> peek(int from, Lane lane) const;
  std::optional<std::string> lost(int worker) const;
  std::uint64_t events() const { return events_.load(std::memory_order_acquire); }
  bool wait(std::uint64_t seen, const Exchange::Deadline& deadline);
  void wake();

  /// The message that `peek` shows, whose body has so many bytes.
  Messages take(int from, Lane lane, std::size_t bytes);

  /// Ends all links: the worker itself is gone.
  void close(const std::string& why);

 private:
  enum Wake { NOBODY, ONE, ALL };

  struct End {
    std::string why;
    Time visible;
  };
  struct Link {
    std::unordered_map<Lane, Messages> lanes;
    Time free = {};  // when all has been sent
    std::optional<End> end = {};
  };

  Time visible_at(Link& link, std::size_t bytes, Time sent) const;
  static bool is_visible(Time time);
  const Message* next_of(int from, Lane lane) const COHORT_REQUIRES(mutex_);
  Wake announce(Time visible, Time now) COHORT_REQUIRES(mutex_);
  bool count_arrivals(Time now) COHORT_REQUIRES(mutex_);
  void add_event() { events_.fetch_add(1, std::memory_order_release); }
  void notify(Wake wake);
  bool poll(std::uint64_t seen) const;

  // Constant after construction.
  const std::chrono::duration<double> seconds_per_byte_;
  const std::chrono::steady_clock::duration latency_;
  const bool is_instant_;
  const bool polls_;

  MessagePool pool_;
  std::atomic<std::uint64_t> events_{0};  // changes with the lock held
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Link> links_ COHORT_GUARDED_BY(mutex_);
  /// When something becomes an event that is none yet.
  std::priority_queue<Time, std::vector<Time>, std::greater<>> due_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace cohort::threads
