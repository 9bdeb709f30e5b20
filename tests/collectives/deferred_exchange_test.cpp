#include "tests/collectives/deferred_exchange.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>

#include <thread>

#include "cohort/collectives/threads/thread_network.h"
#include "cohort/distribute/replica_random.h"
#include "tests/collectives/exchange_suite.h"
#include "tests/strategies/job.h"

namespace cohort {
namespace {

using OnCancel = DeferredExchange::OnCancel;

Engine deferred(const std::string& name, const NetworkOptions& options, OnCancel on_cancel) {
  return {name, [=](int workers, const std::function<void(Peer&)>& fn) {
            ThreadNetwork network(workers, options);
            std::vector<std::thread> threads;
            for (int worker = 0; worker < workers; ++worker) {
              threads.emplace_back([&, worker] {
                DeferredExchange exchange(network.exchange(worker), on_cancel);
                Peer peer(exchange);
                fn(peer);
              });
            }
            for (auto& thread : threads) thread.join();
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Deferred, AnyExchange,
    testing::Values(deferred("Instant", {}, OnCancel::SENT),
                    deferred("WithLoss", {}, OnCancel::LOST),
                    deferred("Latency", {.latency = std::chrono::milliseconds(1)}, OnCancel::SENT)),
    [](const auto& info) { return info.param.name; });

/// Two workers in the test's own thread, and a message between them.
class DeferredTransfers : public testing::Test {
 protected:
  static constexpr Lane kLane = 7;

  void send(DeferredExchange& from, Exchange::Transfer& transfer) {
    const ConstBytes body = std::as_bytes(std::span(text));
    from.send(transfer, 1, kLane, {}, {&body, 1});
  }

  static void wait(DeferredExchange& exchange) {
    EXPECT_TRUE(exchange.wait(exchange.events(), std::nullopt));
  }

  ThreadNetwork network{2};
  DeferredExchange first{network.exchange(0)}, second{network.exchange(1)};
  const std::string text = "hello";
};

TEST_F(DeferredTransfers, AreUnderWayUntilSomebodyWaits) {
  Exchange::Transfer out, in;
  send(first, out);
  EXPECT_FALSE(out.done());
  EXPECT_FALSE(second.peek(0, kLane));
  EXPECT_EQ(first.traffic().messages, 0U);
  wait(first);
  EXPECT_TRUE(out.done());
  ASSERT_TRUE(second.peek(0, kLane));
  std::string received(text.size(), '?');
  const MutableBytes into = std::as_writable_bytes(std::span(received));
  second.receive(in, 0, kLane, {&into, 1});
  EXPECT_FALSE(in.done());
  EXPECT_EQ(received, "?????");
  EXPECT_FALSE(second.peek(0, kLane));
  wait(second);
  EXPECT_TRUE(in.done());
  EXPECT_EQ(received, text);
}

TEST_F(DeferredTransfers, AreSentBehindTheOthersWhenTheyAreCancelled) {
  Exchange::Transfer earlier, cancelled;
  send(first, earlier);
  send(first, cancelled);
  first.cancel(cancelled);
  EXPECT_TRUE(earlier.done());
  EXPECT_TRUE(cancelled.done());
  EXPECT_EQ(first.traffic().messages, 2U);
}

TEST_F(DeferredTransfers, MayBeLostWhenTheyAreCancelled) {
  DeferredExchange losing(network.exchange(0), OnCancel::LOST);
  Exchange::Transfer cancelled;
  send(losing, cancelled);
  losing.cancel(cancelled);
  EXPECT_TRUE(cancelled.done());
  EXPECT_EQ(losing.traffic().messages, 0U);
}

TEST_F(DeferredTransfers, FailWhenTheOtherWorkerIsGone) {
  Exchange::Transfer out;
  network.lose(1, "it was killed");
  send(first, out);
  EXPECT_FALSE(out.failed());
  wait(first);
  EXPECT_TRUE(out.failed());
}

// A job over it.

/// What the workers of a job make of a program.
std::vector<std::string> on_deferred_workers(const Job& job, const Program& program,
                                             OnCancel on_cancel) {
  configure({.cpu_devices = 2});
  torch::manual_seed(3);
  ThreadNetwork network(job.workers);
  std::vector<std::string> texts(job.workers);
  std::vector<std::thread> threads;
  for (int w = 0; w < job.workers; ++w) {
    threads.emplace_back([&, w] {
      const auto exchange = std::make_shared<DeferredExchange>(network.exchange(w), on_cancel);
      const detail::WorkersGenerator random(at::detail::createCPUGenerator(3));
      try {
        texts[w] = program(MultiWorkerMirroredStrategy({.worker = Worker(exchange),
                                                        .replicas = job.replicas,
                                                        .timeout = std::chrono::seconds(60)}));
      } catch (const std::exception& error) {
        texts[w] = error.what();
      }
      exchange->say_goodbye("it has ended");
    });
  }
  for (std::thread& thread : threads) thread.join();
  return texts;
}

void expect_same_over_deferred_exchanges(const Program& program) {
  for (const Job& job : {Job{2, 2}, Job{8, 3}}) {
    const std::string expected = on_one_process(job.replicas, program);
    for (const OnCancel on_cancel : {OnCancel::SENT, OnCancel::LOST}) {
      EXPECT_THAT(on_deferred_workers(job, program, on_cancel), testing::Each(expected));
    }
  }
}

TEST(AJobOverADeferredExchange, Reduces) {
  expect_same_over_deferred_exchanges([](const Strategy& strategy) {
    const auto large = strategy.run([] { return at::rand({20'000}) * (id() + 1); });
    const auto small = strategy.run([] { return at::rand({3}) * (id() + 1); });
    std::string text = bits_of(strategy.reduce("SUM", large));
    text += bits_of(strategy.reduce("MEAN", small));
    text += bits_of(strategy.gather(small, 0));
    const auto sums = strategy.run(
        [](const at::Tensor& a, const at::Tensor& b) {
          auto& replica = get_replica_context();
          replica.barrier();
          return std::pair(replica.all_reduce("SUM", a), replica.all_gather(b, 0));
        },
        large, small);
    text += bits_of(strategy.local_results(sums.first)[0]);
    return text + bits_of(strategy.local_results(sums.second)[0]);
  });
}

/// Runs fail in the middle of a sum of gradients and behind it.
TEST(AJobOverADeferredExchange, TrainsAndGoesOnAfterFailedRuns) {
  expect_same_over_deferred_exchanges([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    const int last = strategy.num_replicas_in_sync() - 1;
    Model<torch::nn::Linear> model(200, 40);  // large enough for each worker to add a range of it
    Optimizer<torch::optim::SGD> optimizer(
        model, torch::optim::SGDOptions(0.1).momentum(0.9),
        OptimizerOptions{.first_bucket_bytes = 64, .bucket_bytes = 1 << 10});
    std::string text;
    for (int step = 0; step < 6; ++step) {
      const auto fail_at = [step](int when, int who) {
        if (step == when && id() == who) throw std::runtime_error("in the middle");
      };
      try {
        strategy.run([&] {
          optimizer.zero_grad();
          at::Tensor loss = model(at::rand({2, 200})).square().mean();
          loss.register_hook([&](const at::Tensor& gradient) {
            fail_at(1, last);
            return gradient;
          });
          loss.backward();
          fail_at(3, 0);
          optimizer.step();
          get_replica_context().barrier();
        });
        text += "done ";
      } catch (const std::exception&) {  // Cancelled, on the other workers
        text += "failed ";
      }
    }
    return text + fingerprint(model);
  });
}

TEST(AJobOverADeferredExchange, ReadsItsInput) {
  expect_same_over_deferred_exchanges([](const Strategy& strategy) {
    std::string text;
    const auto numbers = data::range(40).batch(strategy.num_replicas_in_sync());
    for (const auto& batch : strategy.distribute_dataset(numbers)) {
      text += bits_of(strategy.reduce("SUM", batch, 0));
    }
    return text;
  });
}

}  // namespace
}  // namespace cohort
