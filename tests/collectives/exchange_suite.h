#pragma once

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/collectives/exchange.h"

namespace cohort {

/// One worker of a job, in the words of the tests. What takes longer than a minute has failed.
class Peer {
 public:
  explicit Peer(Exchange& exchange) : exchange(exchange) {}

  Exchange& exchange;

  int index() const { return exchange.index(); }

  /// Sends and waits until it is sent. False if the other worker is gone.
  bool send(int to, Lane lane, const std::string& body, std::uint64_t number = 0) {
    Exchange::Transfer transfer;
    const MessageHead head{number, 1, 2, 3, 4, ~std::uint64_t{5}};
    const ConstBytes bytes = std::as_bytes(std::span(body));
    exchange.send(transfer, to, lane, head, {&bytes, 1});
    finish(transfer);
    return !transfer.failed();
  }

  /// Waits for the next message and takes it.
  std::string receive(int from, Lane lane, std::uint64_t* number = nullptr) {
    const auto arrival = wait_for(from, lane);
    if (!arrival) return "nothing: " + exchange.lost(from).value_or("it is late");
    EXPECT_EQ(arrival->head[5], ~std::uint64_t{5});
    if (number) *number = arrival->head[0];
    std::string body(arrival->body_bytes, '?');
    const MutableBytes bytes = std::as_writable_bytes(std::span(body));
    Exchange::Transfer transfer;
    exchange.receive(transfer, from, lane, {&bytes, 1});
    finish(transfer);
    EXPECT_FALSE(transfer.failed());
    return body;
  }

  /// The next message; nothing if the other worker is gone, and has sent no more.
  std::optional<Exchange::Arrival> wait_for(int from, Lane lane) {
    for (;;) {
      const auto seen = exchange.events();
      const auto lost = exchange.lost(from);
      if (const auto arrival = exchange.peek(from, lane)) return arrival;
      if (lost || !wait(seen)) return std::nullopt;
    }
  }

  /// Waits until the other worker is gone. Says why.
  std::string wait_for_loss(int worker) {
    for (;;) {
      const auto seen = exchange.events();
      if (const auto why = exchange.lost(worker)) return *why;
      if (!wait(seen)) return "it is still there";
    }
  }

  /// Waits until both have come.
  void meet(int other, Lane lane) {
    send(other, lane, "here");
    EXPECT_EQ(receive(other, lane), "here");
  }

  void finish(Exchange::Transfer& transfer) {
    for (;;) {
      const auto seen = exchange.events();
      if (transfer.done()) return;
      ASSERT_TRUE(wait(seen)) << "a transfer that is never done";
    }
  }

 private:
  bool wait(std::uint64_t seen) {
    return exchange.wait(seen, std::chrono::steady_clock::now() + std::chrono::minutes(1));
  }
};

/// A way to move bytes: makes a job of so many workers, calls the function for each of them at the
/// same time, and returns when all have ended.
struct Engine {
  std::string name;
  std::function<void(int workers, const std::function<void(Peer&)>&)> run;
};

inline void PrintTo(const Engine& engine, std::ostream* out) { *out << engine.name; }

/// What every engine must do: exchange_suite.cpp has the cases. The test of an engine says
///
///     INSTANTIATE_TEST_SUITE_P(Threads, AnyExchange, testing::Values(…));
class AnyExchange : public testing::TestWithParam<Engine> {
 protected:
  static void run(int workers, const std::function<void(Peer&)>& fn) {
    GetParam().run(workers, fn);
  }

  /// What each worker does, for two.
  static void run(const std::function<void(Peer&)>& first,
                  const std::function<void(Peer&)>& second) {
    run(2, [&](Peer& me) { (me.index() == 0 ? first : second)(me); });
  }
};

}  // namespace cohort
