#include "tests/collectives/exchange_suite.h"

#include <gmock/gmock.h>

#include <numeric>

namespace cohort {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

TEST_P(AnyExchange, KnowsTheWorkersAndTheirNames) {
  std::vector<std::atomic<int>> seen(3);
  run(3, [&](Peer& me) {
    EXPECT_EQ(me.exchange.workers(), 3);
    EXPECT_THAT(me.exchange.name(2), HasSubstr("worker 2"));
    ++seen[me.index()];
  });
  for (const auto& each : seen) EXPECT_EQ(each, 1);
}

TEST_P(AnyExchange, KeepsTheOrderOfALane) {
  constexpr int kCount = 500;
  run(
      [](Peer& me) {
        for (int i = 0; i < kCount; ++i) ASSERT_TRUE(me.send(1, 7, std::string(i % 50, 'x'), i));
        EXPECT_EQ(me.receive(1, 7), "all here");
      },
      [](Peer& me) {
        for (int i = 0; i < kCount; ++i) {
          std::uint64_t number = 0;
          EXPECT_EQ(me.receive(0, 7, &number).size(), static_cast<std::size_t>(i % 50));
          ASSERT_EQ(number, static_cast<std::uint64_t>(i));
        }
        me.send(0, 7, "all here");
      });
}

TEST_P(AnyExchange, DoesNotLetALaneWaitForAnother) {
  run(
      [](Peer& me) {
        me.send(1, 1, "first");
        me.send(1, 4'000'000'000U, "second");
        EXPECT_EQ(me.receive(1, 1), "thanks");
      },
      [](Peer& me) {
        EXPECT_EQ(me.receive(0, 4'000'000'000U), "second");
        EXPECT_EQ(me.receive(0, 1), "first");
        me.send(0, 1, "thanks");
      });
}

TEST_P(AnyExchange, KeepsMessagesOfDifferentWorkersApart) {
  run(4, [](Peer& me) {
    for (int other = 0; other < 4; ++other) {
      if (other != me.index()) me.send(other, 3, cat(me.index(), " to ", other));
    }
    for (int other = 3; other >= 0; --other) {
      if (other == me.index()) continue;
      EXPECT_EQ(me.receive(other, 3), cat(other, " to ", me.index()));
    }
  });
}

TEST_P(AnyExchange, SendsAndReceivesBodiesInParts) {
  run(
      [](Peer& me) {
        const std::string a = "one ", b = "", c = "message";
        const std::vector<ConstBytes> parts{
            std::as_bytes(std::span(a)), std::as_bytes(std::span(b)), std::as_bytes(std::span(c))};
        Exchange::Transfer transfer;
        me.exchange.send(transfer, 1, 1, {1, 2, 3, 4, 5, 6}, parts);
        me.finish(transfer);
        EXPECT_EQ(me.receive(1, 1), "thanks");
      },
      [](Peer& me) {
        const auto arrival = me.wait_for(0, 1);
        ASSERT_TRUE(arrival);
        EXPECT_EQ(arrival->body_bytes, 11U);
        EXPECT_EQ(arrival->head, (MessageHead{1, 2, 3, 4, 5, 6}));
        std::string a(2, '?'), b(9, '?');
        const std::vector<MutableBytes> parts{
            std::as_writable_bytes(std::span(a)), {}, std::as_writable_bytes(std::span(b))};
        Exchange::Transfer transfer;
        me.exchange.receive(transfer, 0, 1, parts);
        me.finish(transfer);
        EXPECT_EQ(a + "|" + b, "on|e message");
        me.send(0, 1, "thanks");
      });
}

TEST_P(AnyExchange, CarriesEmptyBodies) {
  run(
      [](Peer& me) {
        Exchange::Transfer transfer;
        me.exchange.send(transfer, 1, 1, {9}, {});
        me.finish(transfer);
        me.send(1, 1, "");
        EXPECT_EQ(me.receive(1, 1), "thanks");
      },
      [](Peer& me) {
        const auto arrival = me.wait_for(0, 1);
        ASSERT_TRUE(arrival);
        EXPECT_EQ(arrival->body_bytes, 0U);
        EXPECT_EQ(arrival->head[0], 9U);
        Exchange::Transfer transfer;
        me.exchange.receive(transfer, 0, 1, {});
        me.finish(transfer);
        EXPECT_EQ(me.receive(0, 1), "");
        me.send(0, 1, "thanks");
      });
}

/// Both send before either receives.
TEST_P(AnyExchange, CarriesLargeBodies) {
  run(2, [](Peer& me) {
    const int other = 1 - me.index();
    std::vector<std::uint32_t> mine(5'000'000), theirs(mine.size());
    std::iota(mine.begin(), mine.end(), me.index());
    Exchange::Transfer out, in;
    const ConstBytes body = std::as_bytes(std::span(mine));
    me.exchange.send(out, other, 2, {}, {&body, 1});
    const auto arrival = me.wait_for(other, 2);
    ASSERT_TRUE(arrival);
    ASSERT_EQ(arrival->body_bytes, body.size());
    const MutableBytes into = std::as_writable_bytes(std::span(theirs));
    me.exchange.receive(in, other, 2, {&into, 1});
    me.finish(in);
    me.finish(out);
    std::iota(mine.begin(), mine.end(), other);
    EXPECT_TRUE(mine == theirs);
    me.meet(other, 3);
  });
}

TEST_P(AnyExchange, ShowsAMessageUntilItIsReceived) {
  run(
      [](Peer& me) {
        me.send(1, 1, "first");
        me.send(1, 1, "second!");
        me.meet(1, 2);
      },
      [](Peer& me) {
        me.meet(0, 2);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(me.wait_for(0, 1)->body_bytes, 5U);
        EXPECT_FALSE(me.exchange.peek(0, 5));
        EXPECT_EQ(me.receive(0, 1), "first");
        EXPECT_EQ(me.wait_for(0, 1)->body_bytes, 7U);
        EXPECT_EQ(me.receive(0, 1), "second!");
        EXPECT_FALSE(me.exchange.peek(0, 1));
      });
}

/// Three threads of each worker, which send to and wait for all others at the same time.
TEST_P(AnyExchange, IsUsedBySeveralThreads) {
  constexpr int kWorkers = 3, kRounds = 100;
  constexpr Lane kLanes = 3;
  run(kWorkers, [](Peer& me) {
    const auto talk = [&me](Lane lane) {
      for (int round = 0; round < kRounds; ++round) {
        for (int i = 1; i < kWorkers; ++i) {
          const int to = (me.index() + i) % kWorkers;
          ASSERT_TRUE(me.send(to, lane, cat(me.index(), '-', lane, '-', round), round));
        }
        for (int i = 1; i < kWorkers; ++i) {
          const int from = (me.index() + i) % kWorkers;
          ASSERT_EQ(me.receive(from, lane), cat(from, '-', lane, '-', round));
        }
      }
    };
    std::vector<std::thread> threads;
    for (Lane lane = 0; lane < kLanes; ++lane) threads.emplace_back(talk, lane);
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(me.exchange.traffic().messages, std::uint64_t{kRounds * kLanes * (kWorkers - 1)});
  });
}

TEST_P(AnyExchange, LetsThreadsSendOnOneLane) {
  constexpr int kThreads = 4, kEach = 50;
  run(
      [](Peer& me) {
        std::vector<std::thread> threads;
        for (int t = 0; t < kThreads; ++t) {
          threads.emplace_back([&me, t] {
            for (int i = 0; i < kEach; ++i) me.send(1, 1, std::string(1000 * t, 'a' + t), i);
          });
        }
        for (auto& thread : threads) thread.join();
        me.meet(1, 2);
      },
      [](Peer& me) {
        std::vector<std::uint64_t> next(kThreads);
        for (int i = 0; i < kThreads * kEach; ++i) {
          std::uint64_t number = 0;
          const std::string body = me.receive(0, 1, &number);
          const std::size_t t = body.size() / 1000;
          ASSERT_EQ(body, std::string(1000 * t, static_cast<char>('a' + t)));
          EXPECT_EQ(number, next[t]++);
        }
        me.meet(0, 2);
      });
}

// Waiting.

TEST_P(AnyExchange, WaitsUntilTheDeadline) {
  run(2, [](Peer& me) {
    const auto deadline = steady_clock::now() + milliseconds(30);
    for (auto seen = me.exchange.events(); me.exchange.wait(seen, deadline);) {
      seen = me.exchange.events();
    }
    EXPECT_GE(steady_clock::now(), deadline);
    const auto past = steady_clock::now() - milliseconds(1);
    while (me.exchange.wait(me.exchange.events(), past)) {
    }
    me.meet(1 - me.index(), 1);
  });
}

TEST_P(AnyExchange, DoesNotWaitForWhatHasHappened) {
  run(2, [](Peer& me) {
    const auto seen = me.exchange.events();
    me.exchange.wake();
    EXPECT_TRUE(me.exchange.wait(seen, std::nullopt));
    me.meet(1 - me.index(), 1);
  });
}

TEST_P(AnyExchange, EndsAllWaitsWhenItIsWoken) {
  run(2, [](Peer& me) {
    std::atomic<bool> is_over = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        for (;;) {
          const auto seen = me.exchange.events();
          if (is_over) return;
          me.exchange.wait(seen, std::nullopt);
        }
      });
    }
    std::this_thread::sleep_for(milliseconds(5));
    is_over = true;
    me.exchange.wake();
    for (auto& thread : threads) thread.join();
    me.meet(1 - me.index(), 1);
  });
}

// Ends.

TEST_P(AnyExchange, SaysWhyAWorkerIsGone) {
  run(
      [](Peer& me) {
        EXPECT_FALSE(me.exchange.lost(1));
        me.send(1, 1, "go");
        EXPECT_EQ(me.receive(1, 1), "nothing: it is tired");
        EXPECT_EQ(me.exchange.lost(1), "it is tired");
      },
      [](Peer& me) {
        EXPECT_EQ(me.receive(0, 1), "go");
        me.exchange.say_goodbye("it is tired");
        me.exchange.say_goodbye("it is awake again");
      });
}

TEST_P(AnyExchange, TellsAllOthersOfAnEnd) {
  run(4, [](Peer& me) {
    if (me.index() == 2) return me.exchange.say_goodbye("it is tired");
    EXPECT_EQ(me.wait_for_loss(2), "it is tired");
    for (const int other : {0, 1, 3}) {  // these go on
      if (other != me.index()) me.meet(other, 9);
    }
  });
}

TEST_P(AnyExchange, DeliversWhatWasSentBeforeTheEnd) {
  run(
      [](Peer& me) {
        for (int i = 0; i < 20; ++i) ASSERT_EQ(me.receive(1, 1), cat("message ", i));
        EXPECT_EQ(me.receive(1, 2), std::string(1'000'000, 'x'));
        EXPECT_EQ(me.receive(1, 1), "nothing: it is tired");
      },
      [](Peer& me) {
        for (int i = 0; i < 20; ++i) me.send(0, 1, cat("message ", i));
        me.send(0, 2, std::string(1'000'000, 'x'));
        me.exchange.say_goodbye("it is tired");
      });
}

TEST_P(AnyExchange, SendsNothingToAWorkerThatIsGone) {
  run(
      [](Peer& me) {
        me.wait_for_loss(1);
        const auto before = me.exchange.traffic();
        EXPECT_FALSE(me.send(1, 1, "are you there?"));
        EXPECT_EQ(me.exchange.traffic().messages, before.messages);
        EXPECT_EQ(me.exchange.traffic().bytes, before.bytes);
      },
      [](Peer& me) { me.exchange.say_goodbye("it is tired"); });
}

TEST_P(AnyExchange, LosesTheOthersItself) {
  run(2, [](Peer& me) {
    me.meet(1 - me.index(), 1);
    me.exchange.say_goodbye("it is tired");
    EXPECT_THAT(me.wait_for_loss(1 - me.index()), HasSubstr("it is tired"));
    EXPECT_FALSE(me.send(1 - me.index(), 1, "are you there?"));
  });
}

// Transfers.

TEST_P(AnyExchange, NoLongerUsesTheMemoryOfACancelledTransfer) {
  run(
      [](Peer& me) {
        Exchange::Transfer never_begun, out;
        me.exchange.cancel(never_begun);
        auto large = std::make_unique<std::string>(1'000'000, 'x');
        const ConstBytes body = std::as_bytes(std::span(*large));
        me.exchange.send(out, 1, 1, {}, {&body, 1});
        me.exchange.cancel(out);
        EXPECT_TRUE(out.done());
        large.reset();
        me.meet(1, 2);
      },
      [](Peer& me) { me.meet(0, 2); });
}

TEST_P(AnyExchange, CountsWhatItHasSent) {
  run(
      [](Peer& me) {
        EXPECT_EQ(me.exchange.traffic().messages, 0U);
        EXPECT_EQ(me.exchange.traffic().bytes, 0U);
        me.send(1, 1, "five!");
        me.send(1, 2, "");
        EXPECT_EQ(me.exchange.traffic().messages, 2U);
        EXPECT_EQ(me.exchange.traffic().bytes, 2 * sizeof(MessageHead) + 5);
        EXPECT_EQ(me.receive(1, 1), "thanks");
      },
      [](Peer& me) {
        EXPECT_EQ(me.receive(0, 1), "five!");
        EXPECT_EQ(me.exchange.traffic().messages, 0U);
        me.send(0, 1, "thanks");
      });
}

}  // namespace
}  // namespace cohort
