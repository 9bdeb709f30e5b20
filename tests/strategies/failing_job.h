#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cohort/collectives/exchange.h"
#include "cohort/collectives/threads/thread_network.h"
#include "tests/base/failing.h"
#include "tests/strategies/job.h"

namespace cohort {

/// For jobs in which something goes wrong.

/// What a call has thrown: "InvalidArgument: …"; or "nothing".
inline std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return cat(error.kind(), ": ", error.what());
  } catch (const std::exception& error) {
    return cat("another: ", error.what());
  }
  return "nothing";
}

/// Waits until it is so. False if that takes longer than a minute.
inline bool happens(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

inline at::Tensor sum_of_ids() {
  return get_replica_context().all_reduce("SUM", at::full({2}, id() + 1.0));
}

/// After whatever happened, a run works as ever.
inline void expect_usable(const Strategy& strategy) {
  const int n = strategy.num_replicas_in_sync();
  const auto sums = strategy.run([] { return sum_of_ids()[0].item<double>(); });
  EXPECT_THAT(strategy.local_results(sums), testing::Each(n * (n + 1) / 2.0));
}

/// What every worker of a job gets of one call.
inline std::vector<std::string> on_each_worker(
    const Job& job, const std::function<std::string(const Strategy&, int worker)>& program,
    std::chrono::duration<double> timeout = std::chrono::seconds(60), int devices = 2) {
  configure({.cpu_devices = devices});
  std::vector<std::string> texts(job.workers);
  run_workers(job.workers, [&](const Worker& worker) {
    const MultiWorkerMirroredStrategy strategy(
        {.worker = worker, .replicas = job.replicas, .timeout = timeout});
    texts[worker.index()] = program(strategy, worker.index());
  });
  return texts;
}

/// `run_workers` on a network of the test's own, for its faults.
inline void on_network(ThreadNetwork& network, const std::function<void(const Worker&)>& program) {
  std::vector<std::thread> threads;
  for (int w = 0; w < network.workers(); ++w) {
    threads.emplace_back([&network, &program, w] {
      const Worker worker(network.exchange(w));
      try {
        program(worker);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "worker " << w << ": " << error.what();
      }
      worker.exchange()->say_goodbye("it has ended");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace cohort
