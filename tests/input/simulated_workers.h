#pragma once

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "cohort/data/readers.h"
#include "cohort/distribute/run_workers.h"
#include "cohort/input/distributed_dataset.h"
#include "tests/base/failing.h"
#include "tests/distribute/each_worker.h"

/// Workers as threads of one process, and what their replicas get, as text.
namespace cohort {

inline std::string numbers_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.reshape({-1}).to(at::kDouble);
  std::string text;
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    text += cat(i ? " " : "", flat[i].item<double>());
  }
  return text;
}

/// The leaves of an element, as `0 1` or `0 1;5 6`.
template <class T>
std::string numbers_of(const T& element) {
  std::string text;
  nest::visit(
      [&]<class Leaf>(const Leaf& leaf) {
        if (!text.empty()) text += ';';
        if constexpr (std::is_same_v<Leaf, at::Tensor>) {
          text += numbers_of(leaf);
        } else if constexpr (std::is_same_v<Leaf, data::Strings>) {
          for (const std::string_view each : leaf) text += cat(each, ' ');
        } else {
          text += cat(leaf);
        }
      },
      element);
  return text;
}

/// `0 1|2 3`: what each replica of a worker gets in a step.
template <class T>
std::string step_text(const PerReplica<T>& step) {
  std::string text;
  for (std::size_t r = 0; r < step.size(); ++r) {
    text += (r ? "|" : "") + numbers_of(step.values()[r]);
  }
  return text;
}

using Steps = std::vector<std::string>;

/// Those of a process alone.
inline InputReplicas replicas_of(int local) {
  return InputReplicas(std::vector<Device>(local, Device("cpu:0")));
}

/// Those of one worker of a job that has so many.
inline InputReplicas replicas_of_job(int replicas, const Worker& worker) {
  auto world =
      World::join(worker, {.replicas = replicas, .limits = {.timeout = std::chrono::seconds(60)}});
  std::vector<Device> devices(world->local(), Device("cpu:0"));
  return InputReplicas(std::move(devices), std::move(world));
}

/// Those of one worker of a job in which each has as many.
inline InputReplicas replicas_of(int local, const Worker& worker) {
  return replicas_of_job(local * worker.count(), worker);
}

/// What fn(worker) returns on each worker of a job, which call it at the same time.
template <class F>
auto of_each_worker(int workers, const F& fn) {
  std::vector<std::invoke_result_t<const F&, const Worker&>> results(workers);
  run_workers(workers, [&](const Worker& worker) { results[worker.index()] = fn(worker); });
  return results;
}

template <class T>
Steps steps_of(const DistributedDataset<T>& dataset) {
  Steps steps;
  for (const auto& step : dataset) steps.push_back(step_text(step));
  return steps;
}

/// What `local` replicas on one worker get.
template <class T>
Steps steps_of(const data::Dataset<T>& dataset, int local, const InputOptions& options = {}) {
  return steps_of(distribute_dataset(dataset, replicas_of(local), options));
}

/// The same for each worker of a job.
template <class T>
std::vector<Steps> steps_of_job(const data::Dataset<T>& dataset, const Job& job,
                                const InputOptions& options = {}) {
  return of_each_worker(job.workers, [&](const Worker& worker) {
    return steps_of(distribute_dataset(dataset, replicas_of_job(job.replicas, worker), options));
  });
}
template <class T>
std::vector<Steps> steps_of_workers(const data::Dataset<T>& dataset, int workers, int local,
                                    const InputOptions& options = {}) {
  return steps_of_job(dataset, {local * workers, workers}, options);
}

/// What each replica of a job gets, whichever worker it is on.
inline std::vector<Steps> by_replica(const std::vector<Steps>& of_workers) {
  std::vector<Steps> replicas;
  for (const Steps& steps : of_workers) {
    const std::size_t first = replicas.size();
    const auto local = 1 + std::count(steps.at(0).begin(), steps.at(0).end(), '|');
    replicas.resize(first + local);
    for (const std::string& step : steps) {
      std::stringstream parts(step + "|");
      for (int r = 0; r < local; ++r) {
        std::string part;
        std::getline(parts, part, '|');
        replicas[first + r].push_back(part);
      }
    }
  }
  return replicas;
}
template <class T>
std::vector<Steps> by_replica(const data::Dataset<T>& dataset, const Job& job,
                              const InputOptions& options = {}) {
  return by_replica(steps_of_job(dataset, job, options));
}

inline InputOptions policy(data::AutoShardPolicy policy) { return {.auto_shard = policy}; }

}  // namespace cohort
