#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cohort {

/// Memory that an engine reads, or writes to.
using ConstBytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

/// One ordered sequence of messages between each two workers of a job. Messages of different lanes
/// never wait for each other. Numbers are chosen by whoever uses them, alike on all workers.
using Lane = std::uint32_t;

/// What travels in front of a message's body. An engine carries it, and knows nothing of it.
using MessageHead = std::array<std::uint64_t, 6>;

/// Moves bytes between the workers of a job: the one thing that differs between threads, processes
/// and machines. What the bytes mean, in which order workers talk, and what is an error are for
/// those above (World).
///
/// A message is a head and a body, which is given and taken in parts, so that nobody has to copy
/// tensors together. Messages from one worker to another arrive whole and, on each lane, in order.
/// Sending never waits for the receiver:
///
///     Exchange::Transfer out, in;
///     exchange.send(out, 1, lane, head, {{bytes}});
///     for (;;) {                                           // until the other's message is there
///       const auto seen = exchange.events();
///       const auto why = exchange.lost(1);                 // before `peek`: see `lost`
///       if (exchange.peek(1, lane)) break;
///       if (why) throw …;
///       if (!exchange.wait(seen, deadline)) throw …;       // nothing has happened until then
///     }
///     exchange.receive(in, 1, lane, {{buffer}});
///     while (!in.done()) …                                 // events and wait, as above
///
/// Thread-safe, but on each lane only one thread at a time receives. An engine has no threads that
/// must run for transfers to go on while somebody is in `wait`: whoever waits polls for all.
class Exchange {
 public:
  /// A message under way. Belongs to the caller, who keeps it and the memory of the message's body
  /// where they are until it is done, or cancelled.
  class Transfer {
   public:
    Transfer() = default;
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;

    /// True when the engine no longer uses the memory: the message has been sent, or its body is in
    /// place, or the transfer has failed.
    bool done() const { return state_.load(std::memory_order_acquire) != UNDER_WAY; }
    /// True if it is done but did not get through, since the other worker is gone.
    bool failed() const { return state_.load(std::memory_order_acquire) == FAILED; }

    // For engines.
    enum State : std::uint8_t { DONE, UNDER_WAY, FAILED };
    void set(State state) { state_.store(state, std::memory_order_release); }

   private:
    std::atomic<State> state_{DONE};
  };

  /// A message that has arrived: what is known before its body is taken.
  struct Arrival {
    MessageHead head;
    std::uint64_t body_bytes = 0;
  };

  /// What has gone out so far, to all workers together, heads and all; what the engine adds for
  /// itself is not counted.
  struct Traffic {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
  };

  using Deadline = std::optional<std::chrono::steady_clock::time_point>;

  virtual ~Exchange() = default;

  /// How many workers the job has, and which of them this one is.
  virtual int workers() const = 0;
  virtual int index() const = 0;

  /// What errors call a worker: "worker 2", with its address where it has one.
  virtual std::string name(int worker) const = 0;

  /// Starts to send a message to another worker. To one that is lost nothing is sent, and the
  /// transfer has failed.
  virtual void send(Transfer& transfer, int to, Lane lane, const MessageHead& head,
                    std::span<const ConstBytes> body) = 0;

  /// The next message of a lane from another worker, if it has arrived. Stays the next one until
  /// `receive` takes it. What a worker sent before it was lost still arrives.
  virtual std::optional<Arrival> peek(int from, Lane lane) = 0;

  /// Starts to take that message: its body goes to these parts, one after the other, which have as
  /// many bytes together. Only after `peek` has shown it.
  virtual void receive(Transfer& transfer, int from, Lane lane,
                       std::span<const MutableBytes> into) = 0;

  /// A number that grows whenever something has happened that a waiting thread may look for: a
  /// message has arrived, a transfer is done, a worker is lost, `wake` was called.
  virtual std::uint64_t events() const = 0;

  /// Returns true when `events()` differs from `seen`, false at the deadline.
  virtual bool wait(std::uint64_t seen, const Deadline& deadline) = 0;

  /// Ends all waits of this worker's threads once.
  virtual void wake() = 0;

  /// Abandons a transfer: returns when the engine no longer uses its memory, and never waits for
  /// the other worker. What was to be sent may arrive all the same; what was to be received is
  /// lost. An engine that can't recall a message (MPI's, once the other side has agreed to take it)
  /// keeps a copy of what is left of it, or counts the other worker as lost.
  virtual void cancel(Transfer& transfer) = 0;

  /// Why another worker is gone, or nothing while it is there. All that it has sent has arrived by
  /// then: a message that `peek` does not show after this has given a reason never comes.
  virtual std::optional<std::string> lost(int worker) const = 0;

  /// Tells the others that this worker ends and needs nobody any more, and why, if it is not the
  /// normal end of the program. They see it as lost, behind what it has sent, and it sees them as
  /// lost. Later calls change nothing.
  virtual void say_goodbye(const std::string& reason) = 0;

  virtual Traffic traffic() const = 0;

  /// The first of so many lanes that nobody has used. Workers that ask in the same order get the
  /// same ones.
  Lane take_lanes(Lane count) { return next_lane_.fetch_add(count); }
  /// The lane that `take_lanes` gives next.
  Lane next_lane() const { return next_lane_.load(); }
  /// Counts all lanes before this one as used.
  void skip_lanes(Lane next) {
    Lane now = next_lane_.load();
    while (now < next && !next_lane_.compare_exchange_weak(now, next)) {
    }
  }

 private:
  std::atomic<Lane> next_lane_{0};
};

}  // namespace cohort
