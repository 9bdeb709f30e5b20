#pragma once

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cohort/data/readers.h"
#include "cohort/input/distributed_dataset.h"
#include "tests/base/failing.h"

/// Workers as threads of one process, and what their replicas get, as text.
namespace cohort {

/// Meets in every step, as the workers of a job do.
class SimulatedJob {
 public:
  explicit SimulatedJob(int workers, std::uint64_t seed = 7) : workers_(workers), seed_(seed) {}

  std::shared_ptr<InputWorkers> worker(int index) { return std::make_shared<Worker>(*this, index); }

 private:
  class Worker : public InputWorkers {
   public:
    Worker(SimulatedJob& job, int index) : job_(job), index_(index) {}
    int count() const override { return job_.workers_; }
    int index() const override { return index_; }
    std::uint64_t seed() const override { return job_.seed_; }
    InputStep agree(const InputStep& mine) override { return job_.meet(index_, mine); }

   private:
    SimulatedJob& job_;
    const int index_;
  };

  InputStep meet(int index, const InputStep& mine) {
    std::unique_lock lock(mutex_);
    if (steps_.empty()) steps_.resize(workers_);
    steps_[index] = mine;
    const int round = round_;
    if (++arrived_ == workers_) {
      done_ = std::exchange(steps_, {});
      arrived_ = 0;
      ++round_;
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&] { return round_ != round; });
    }
    return common_step(done_);
  }

  const int workers_;
  const std::uint64_t seed_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::vector<InputStep> steps_, done_;
  int arrived_ = 0, round_ = 0;
};

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

inline InputReplicas replicas_of(int local, std::shared_ptr<InputWorkers> workers = only_worker()) {
  return {std::vector<Device>(local, Device("cpu:0")), std::move(workers)};
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

/// The same for each of several workers, which run at the same time.
template <class T>
std::vector<Steps> steps_of_workers(const data::Dataset<T>& dataset, int workers, int local,
                                    const InputOptions& options = {}) {
  SimulatedJob job(workers);
  std::vector<Steps> all(workers);
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      all[w] = steps_of(distribute_dataset(dataset, replicas_of(local, job.worker(w)), options));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

inline InputOptions policy(data::AutoShardPolicy policy) { return {.auto_shard = policy}; }

}  // namespace cohort
