#pragma once

#include <concepts>
#include <string>
#include <vector>

#include "cohort/strategies/multi_worker_mirrored_strategy.h"
#include "tests/oracle/oracle.h"
#include "tests/oracle/strategies.h"

/// What the files of the theme `multiworker` have in common.
namespace cohort::oracle {

/// Gives {"worker0": outcome, …}, the form of every case of the theme.
template <class F>
Json for_each_worker(int workers, const F& outcome_of) {
  Json all = Json::object();
  for (int w = 0; w < workers; ++w) all[cat("worker", w)] = outcome_of(w);
  return all;
}

/// The same result on both of two workers.
inline Json on_both(const Json& result) {
  return for_each_worker(2, [&](int) { return Json{{"result", result}}; });
}

/// Each of two workers has its own.
inline Json on_two(const Json& first, const Json& second) {
  return for_each_worker(2, [&](int w) { return Json{{"result", w == 0 ? first : second}}; });
}

/// The same error on both.
inline Json both_fail(const Json& error) {
  return for_each_worker(2, [&](int) { return error; });
}

/// What fn(strategy), or fn(strategy, worker), gives or throws on each worker of the case's job.
template <class F>
Json of_workers(const Json& input, const F& fn) {
  const int workers = input["workers"];
  const int replicas = workers * input["replicas_per_worker"].get<int>();
  std::vector<Json> outcomes(workers);
  run_workers(workers, [&](const Worker& worker) {
    Json& outcome = outcomes[worker.index()];
    outcome = attempt([&]() -> Json {
      const MultiWorkerMirroredStrategy strategy(
          {.worker = worker, .replicas = replicas, .timeout = std::chrono::seconds(60)});
      if constexpr (std::invocable<F, const Strategy&>) {
        return {{"result", encode(fn(strategy))}};
      } else {
        return {{"result", encode(fn(strategy, worker.index()))}};
      }
    });
  });
  return for_each_worker(workers, [&](int w) { return outcomes[w]; });
}

}  // namespace cohort::oracle
