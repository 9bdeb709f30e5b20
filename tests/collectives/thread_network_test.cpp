#include "cohort/collectives/threads/thread_network.h"

#include <gmock/gmock.h>

#include <limits>
#include <memory>

#include "tests/base/failing.h"
#include "tests/collectives/exchange_suite.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

/// Calls fn(exchange) for all workers of a network, each in its own thread.
void run_on(ThreadNetwork& network, const std::function<void(Peer&)>& fn) {
  std::vector<std::thread> threads;
  for (int worker = 0; worker < network.workers(); ++worker) {
    threads.emplace_back([&network, &fn, worker] {
      const auto exchange = network.exchange(worker);
      Peer peer(*exchange);
      fn(peer);
    });
  }
  for (auto& thread : threads) thread.join();
}

Engine threads_with(const std::string& name, const NetworkOptions& options) {
  return {name, [options](int workers, const std::function<void(Peer&)>& fn) {
            ThreadNetwork network(workers, options);
            run_on(network, fn);
          }};
}

const auto name_of = [](const auto& info) { return info.param.name; };

INSTANTIATE_TEST_SUITE_P(Threads, AnyExchange,
                         testing::Values(threads_with("Instant", {}),
                                         threads_with("Latency", {.latency = milliseconds(1)}),
                                         threads_with("Bandwidth", {.bytes_per_second = 2e8}),
                                         threads_with("Both", {.bytes_per_second = 2e8,
                                                               .latency = milliseconds(1)})),
                         name_of);

/// Two workers, whose exchanges are used by the test's own thread where nobody waits.
class TwoThreads : public testing::Test {
 protected:
  void make(const NetworkOptions& options = {}) {
    network = std::make_unique<ThreadNetwork>(2, options);
    exchanges = {network->exchange(0), network->exchange(1)};
    first = std::make_unique<Peer>(*exchanges[0]);
    second = std::make_unique<Peer>(*exchanges[1]);
  }

  static Seconds since(steady_clock::time_point begin) { return steady_clock::now() - begin; }

  /// Whether a message of worker 0 is there, now or a moment later.
  bool arrives(Lane lane) {
    const auto deadline = steady_clock::now() + milliseconds(20);
    for (;;) {
      const auto seen = exchanges[1]->events();
      if (exchanges[1]->peek(0, lane)) return true;
      if (!exchanges[1]->wait(seen, deadline)) return false;
    }
  }

  std::unique_ptr<ThreadNetwork> network;
  std::vector<std::shared_ptr<Exchange>> exchanges;
  std::unique_ptr<Peer> first, second;
};

using ThreadNetworkArguments = TwoThreads;

TEST_F(ThreadNetworkArguments, AreChecked) {
  EXPECT_FAILS(ThreadNetwork(0), ValueError, "[ThreadNetwork] workers: expected 1 or more, got 0");
  EXPECT_FAILS(ThreadNetwork(2, {.bytes_per_second = -1}), ValueError,
               "bytes_per_second: expected 0 or more bytes per second, got -1");
  EXPECT_FAILS(ThreadNetwork(2, {.latency = milliseconds(-5)}), ValueError,
               "latency: expected 0 or more seconds, got -0.005");
  EXPECT_FAILS(ThreadNetwork(2, {.bytes_per_second = std::numeric_limits<double>::quiet_NaN()}),
               ValueError, "bytes_per_second");
}

TEST_F(ThreadNetworkArguments, NameWorkersThatExist) {
  make();
  EXPECT_FAILS(network->exchange(2), ValueError,
               "[ThreadNetwork.exchange] no such worker: expected 0 to 1, got 2");
  EXPECT_FAILS(network->lose(-1, "?"), ValueError, "[ThreadNetwork.lose]");
  EXPECT_FAILS(network->stop(2), ValueError, "[ThreadNetwork.stop]");
  EXPECT_FAILS(network->resume(2), ValueError, "[ThreadNetwork.resume]");
  EXPECT_FAILS(first->send(0, 1, "me"), ValueError,
               "[exchange.send] expected another worker than 0, from 0 to 1, got 0");
  EXPECT_FAILS(exchanges[0]->peek(2, 1), ValueError, "[exchange.peek]");
}

TEST_F(ThreadNetworkArguments, FitTheMessageThatIsReceived) {
  make();
  Exchange::Transfer transfer;
  EXPECT_FAILS(exchanges[1]->receive(transfer, 0, 1, {}), RuntimeError,
               "expected a message of 0 bytes, got none");
  first->send(1, 1, "five!");
  EXPECT_FAILS(exchanges[1]->receive(transfer, 0, 1, {}), RuntimeError,
               "[exchange.receive] expected a message of 0 bytes, got one of 5");
  EXPECT_EQ(second->receive(0, 1), "five!");
}

TEST_F(ThreadNetworkArguments, MayBeOneWorker) {
  ThreadNetwork alone(1);
  EXPECT_EQ(alone.exchange(0)->workers(), 1);
  alone.exchange(0)->say_goodbye("it has ended");
}

TEST_F(ThreadNetworkArguments, ExchangesOutliveTheNetwork) {
  make();
  network.reset();
  first->send(1, 1, "still here");
  EXPECT_EQ(second->receive(0, 1), "still here");
}

// The simulated network. A test can't say how long something takes at most.

using Network = TwoThreads;

TEST_F(Network, HasALatency) {
  make({.latency = milliseconds(20)});
  const auto begin = steady_clock::now();
  first->send(1, 1, "");
  second->receive(0, 1);
  EXPECT_GE(since(begin), milliseconds(20));
}

TEST_F(Network, SendsTheMessagesOfALinkOneAfterTheOther) {
  make({.bytes_per_second = 1e6, .latency = milliseconds(5)});
  const std::string body(10'000, 'x');
  const auto begin = steady_clock::now();
  for (Lane lane = 0; lane < 3; ++lane) first->send(1, lane, body);
  for (Lane lane = 0; lane < 3; ++lane) {
    second->receive(0, lane);
    EXPECT_GE(since(begin), milliseconds(10 * (lane + 1) + 5));
  }
}

TEST_F(Network, CountsHeads) {
  make({.bytes_per_second = 48'000});
  const auto begin = steady_clock::now();
  for (int i = 0; i < 10; ++i) first->send(1, 1, "");
  for (int i = 0; i < 10; ++i) second->receive(0, 1);
  EXPECT_GE(since(begin), milliseconds(10));
}

TEST_F(Network, TellsOfAnEndBehindWhatWasSent) {
  make({.bytes_per_second = 1e6, .latency = milliseconds(5)});
  const auto begin = steady_clock::now();
  first->send(1, 1, std::string(20'000, 'x'));
  network->lose(0, "it was killed");
  EXPECT_EQ(second->receive(0, 1).size(), 20'000U);
  EXPECT_EQ(second->wait_for_loss(0), "it was killed");
  EXPECT_GE(since(begin), milliseconds(25));
}

/// Whose deadline comes first has the others sleep until the message is there.
TEST_F(Network, WakesAllThreadsThatWait) {
  make({.latency = milliseconds(30)});
  std::vector<std::thread> threads;
  for (Lane lane = 0; lane < 3; ++lane) {
    threads.emplace_back([&, lane] { EXPECT_EQ(second->receive(0, lane), "for you"); });
  }
  threads.emplace_back([&] { arrives(99); });
  for (Lane lane = 0; lane < 3; ++lane) first->send(1, lane, "for you");
  for (auto& thread : threads) thread.join();
}

TEST_F(Network, MayBeSlowBeyondMeasure) {
  make({.bytes_per_second = 1e-300, .latency = Seconds(1e300)});
  first->send(1, 1, "see you in a year");
  first->send(1, 1, "or two");
  EXPECT_FALSE(arrives(1));
}

// Faults.

using Faults = TwoThreads;

TEST_F(Faults, AWorkerThatDiesIsLost) {
  make();
  first->send(1, 1, "help");
  network->lose(0, "it was killed");
  network->lose(0, "it was killed twice");
  EXPECT_EQ(exchanges[1]->lost(0), "it was killed");
  EXPECT_EQ(second->receive(0, 1), "help");
  EXPECT_FALSE(second->send(0, 1, "where are you?"));
}

TEST_F(Faults, AWorkerThatDiesReachesNobody) {
  make();
  network->lose(0, "it was killed");
  EXPECT_EQ(exchanges[0]->lost(1), "this worker has left: it was killed");
  EXPECT_FALSE(first->send(1, 1, "boo"));
  EXPECT_FALSE(arrives(1));
}

TEST_F(Faults, ALossEndsTheWaitsOfBoth) {
  make();
  std::thread other([&] { EXPECT_EQ(second->wait_for_loss(0), "it was killed"); });
  std::thread own([&] { EXPECT_THAT(first->wait_for_loss(1), testing::HasSubstr("killed")); });
  std::this_thread::sleep_for(milliseconds(2));
  network->lose(0, "it was killed");
  other.join();
  own.join();
}

TEST_F(Faults, AStoppedWorkerSendsNothingUntilItGoesOn) {
  make();
  first->send(1, 1, "before");
  network->stop(0);
  first->send(1, 1, "during");
  first->send(1, 2, "during, too");
  EXPECT_EQ(second->receive(0, 1), "before");
  EXPECT_FALSE(arrives(1));
  EXPECT_FALSE(arrives(2));
  EXPECT_FALSE(exchanges[1]->lost(0));
  network->resume(0);
  first->send(1, 1, "after");
  EXPECT_EQ(second->receive(0, 1), "during");
  EXPECT_EQ(second->receive(0, 1), "after");
  EXPECT_EQ(second->receive(0, 2), "during, too");
}

TEST_F(Faults, AStoppedWorkerStillGetsMessages) {
  make();
  network->stop(1);
  first->send(1, 1, "are you there?");
  EXPECT_EQ(second->receive(0, 1), "are you there?");
}

TEST_F(Faults, AStoppedWorkersGoodbyeStaysAway) {
  make();
  network->stop(0);
  first->send(1, 1, "last words");
  exchanges[0]->say_goodbye("it is tired");
  EXPECT_FALSE(exchanges[1]->lost(0));
  network->resume(0);
  EXPECT_EQ(second->receive(0, 1), "last words");
  EXPECT_EQ(second->receive(0, 1), "nothing: it is tired");
}

TEST_F(Faults, WhatAStoppedWorkerHasSentDiesWithIt) {
  make();
  network->stop(0);
  first->send(1, 1, "last words");
  network->lose(0, "it was killed");
  EXPECT_EQ(second->receive(0, 1), "nothing: it was killed");
  network->resume(0);
  EXPECT_FALSE(arrives(1));
}

TEST_F(Faults, KeepTheOrderOfWhatIsSentMeanwhile) {
  make();
  constexpr int kCount = 2000;
  std::thread sender([&] {
    for (int i = 0; i < kCount; ++i) first->send(1, 1, "", i);
    first->send(1, 2, "done");
  });
  while (!exchanges[1]->peek(0, 2)) {
    network->stop(0);
    std::this_thread::yield();
    network->resume(0);
  }
  sender.join();
  for (int i = 0; i < kCount; ++i) {
    std::uint64_t number = 0;
    second->receive(0, 1, &number);
    ASSERT_EQ(number, static_cast<std::uint64_t>(i));
  }
}

}  // namespace
}  // namespace cohort
