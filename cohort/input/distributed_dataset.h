#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "cohort/data/map.h"
#include "cohort/distribute/context.h"
#include "cohort/input/input_plan.h"
#include "cohort/input/input_step.h"
#include "cohort/input/job_position.h"
#include "cohort/input/step.h"
#include "cohort/values/per_replica.h"
#include "cohort/values/per_replica_parts.h"

namespace cohort {

namespace detail {
void require_outside_of_replicas(const char* where);
[[noreturn]] void throw_end_of_data();
void move_to(at::Tensor& tensor, const Device& device);
/// Where the elements of each replica are: on its device, or on the host of the worker.
DeviceList element_devices(const InputReplicas& replicas, const InputOptions& options);
/// The step of a worker whose input has thrown.
void tell_workers(const InputReplicas& replicas, const std::exception_ptr& error);
}  // namespace detail

/// One pass over a distributed dataset: gives what the replicas of this worker get, step by step.
/// Used by one thread at a time, outside of replicas.
template <class T>
class DistributedIterator {
 public:
  /// `passes` counts those over the dataset.
  DistributedIterator(std::shared_ptr<const InputPlan> plan, InputReplicas replicas,
                      InputOptions options, std::shared_ptr<std::atomic<std::uint64_t>> passes)
      : plan_(std::move(plan)),
        replicas_(std::move(replicas)),
        options_(std::move(options)),
        devices_(detail::element_devices(replicas_, options_)),
        passes_(std::move(passes)),
        iteration_{.seed = replicas_.world().seed(),
                   .epoch = passes_->fetch_add(1),
                   .in_order = plan_->in_order},
        steps_(telling([this] { return start(); })) {}

  /// The next step's element of each replica. Replicas that there is no data for get one without
  /// rows; the pass ends when there is data for none, on any worker. Throws OutOfRange then.
  PerReplica<T> get_next() {
    if (auto value = get_next_as_optional()) return *std::move(value);
    detail::throw_end_of_data();
  }

  /// The same; nothing at the end.
  std::optional<PerReplica<T>> get_next_as_optional() {
    detail::require_outside_of_replicas("iterator.get_next");
    Step<T> step = kept_ ? *std::exchange(kept_, std::nullopt) : make_step();
    InputStep all = report(step);
    if (replicas_.workers() > 1) all = agreed(all, step);
    ++given_;
    if (!all.has_data) return std::nullopt;
    return complete(std::move(step), all);
  }

  /// How long steps have waited for data that was not ready.
  std::chrono::duration<double> waited() const { return waited_; }

  /// Where the pass stands, behind the last step that it gave; see data::DatasetIterator. It is the
  /// same on all workers, and a call of all of them at the same step.
  ///
  /// Under the policies DATA and FILE_BY_REPLICA, and with PER_REPLICA, a job with any number of
  /// workers can go on from it; else `restore` throws InvalidArgument for another number.
  data::Position position() const {
    data::PositionWriter writer;
    writer.put_stages(plan_->position_stages);
    writer.put(iteration_.seed);
    writer.put(iteration_.epoch);
    writer.put(given_);
    const auto own = [this] { return kept_ ? before_.get() : steps_->position(); };
    writer.append(position_of_job(own, *plan_, replicas_));
    return writer.take();
  }
  void restore(const data::Position& position) {
    data::PositionReader reader(position);
    reader.expect_stages(plan_->position_stages);
    iteration_.seed = reader.get_unsigned();
    iteration_.epoch = reader.get_unsigned();
    given_ = reader.get();
    *passes_ = iteration_.epoch + 1;
    const data::Position own = position_of_worker(reader, *plan_, replicas_);
    reader.expect_end();
    kept_.reset();
    steps_ = start();
    steps_->go_to(own);
  }

 private:
  /// Workers that must make the same batches compare where they are every so many steps.
  static constexpr std::int64_t kCompareEvery = 50;

  StepsPtr<T> start() const {
    StepsPtr<T> steps = make_steps();
    if (options_.per_replica_buffer_size == 0) return steps;
    return std::make_unique<typename data::Prefetch<Step<T>>::Running>(
        std::move(steps), options_.per_replica_buffer_size);
  }
  StepsPtr<T> make_steps() const {
    std::vector<data::IteratorPtr<T>> running;
    for (const data::NodePtr& pipeline : plan_->pipelines) {
      running.push_back(data::typed<T>(pipeline)->iterate(iteration_));
    }
    switch (plan_->how) {
      case InputPlan::How::CUT:
        return std::make_unique<CutSteps<T>>(std::move(running[0]), plan_->cut, plan_->choice);
      case InputPlan::How::DEAL:
        return std::make_unique<DealtSteps<T>>(std::move(running[0]), replicas_.local());
      default:
        return std::make_unique<OwnSteps<T>>(std::move(running));
    }
  }

  Step<T> make_step() {
    if (replicas_.workers() > 1 && !plan_->in_order) before_ = keeper_.of(*steps_);
    Step<T> step;
    step.values.assign(replicas_.local(), std::nullopt);
    const auto begin = std::chrono::steady_clock::now();
    try {
      const bool more = telling([&] { return steps_->next(step); });
      if (!more) step.values.assign(replicas_.local(), std::nullopt);
    } catch (...) {
      compares_next_ = true;
      throw;
    }
    waited_ += std::chrono::steady_clock::now() - begin;
    return step;
  }

  /// Another worker's failure costs this one's replicas nothing where each reads data of its own:
  /// they get the step when it is asked for again. Where all make the same batches, the failed one
  /// is lost to all, and whether they still stand at the same place is compared at once.
  InputStep agreed(const InputStep& mine, Step<T>& step) {
    try {
      const InputStep all = agree(replicas_.lane(), mine);
      compares_next_ = false;
      return all;
    } catch (...) {
      compares_next_ = true;
      if (!plan_->in_order) kept_ = std::move(step);
      throw;
    }
  }

  /// The other workers are told of what it throws, or they would wait for this one.
  template <class F>
  auto telling(const F& make_input) const {
    try {
      return make_input();
    } catch (...) {
      if (replicas_.workers() > 1) detail::tell_workers(replicas_, std::current_exception());
      throw;
    }
  }

  InputStep report(const Step<T>& step) {
    InputStep mine;
    for (const auto& value : step.values) {
      if (!value) continue;
      mine.has_data = true;
      last_ = *value;
    }
    if (replicas_.workers() == 1) return mine;
    if (mine.has_data) mine.look = look_of(*last_);
    const bool compares = given_ % kCompareEvery == 0 || compares_next_;
    if (plan_->in_order && mine.has_data && compares) {
      const data::Position here = position();
      for (const std::int64_t number : here.numbers()) {
        mine.digest = mix(mine.digest, static_cast<std::uint64_t>(number));
      }
    }
    return mine;
  }

  PerReplica<T> complete(Step<T> step, const InputStep& all) {
    std::vector<T> values;
    values.reserve(step.values.size());
    for (std::size_t r = 0; r < step.values.size(); ++r) {
      T element = step.values[r] ? *std::move(step.values[r]) : without_data(all);
      if (options_.fetch_to_device || options_.place_dataset_on_device) {
        fetch(element, replicas_.devices()[r]);
      }
      values.push_back(std::move(element));
    }
    return PerReplica<T>(std::move(values), devices_);
  }

  T without_data(const InputStep& all) const {
    if (last_) return without_rows(*last_);
    return empty_from<T>(all.look.value_or(std::vector<LeafLook>()));
  }

  static void fetch(T& element, const Device& device) {
    nest::visit(
        [&]<class Leaf>(Leaf& leaf) {
          if constexpr (std::is_same_v<Leaf, at::Tensor>) detail::move_to(leaf, device);
        },
        element);
  }

  std::shared_ptr<const InputPlan> plan_;
  InputReplicas replicas_;
  InputOptions options_;
  DeviceList devices_;
  std::shared_ptr<std::atomic<std::uint64_t>> passes_;
  data::Iteration iteration_;
  StepsPtr<T> steps_;
  std::optional<Step<T>> kept_;  // what this worker made when another one's input failed
  data::PositionKeeper keeper_;
  data::KeptPosition before_;   // the last step made, where it may have to be kept
  bool compares_next_ = false;  // after a failure
  std::optional<T> last_;       // the last element seen
  std::int64_t given_ = 0;
  std::chrono::duration<double> waited_{0};
};

/// A dataset as the replicas of a strategy get it. A small value; copies are the same.
///
///     auto distributed = strategy.distribute_dataset(dataset.batch(256));
///     for (const auto& batch : distributed) strategy.run(step, batch);
///
/// Each loop is a new pass. Elements are `PerReplica<T>`: `run` gives each replica its own. Pairs,
/// tuples and structs can be taken apart: `for (const auto& [x, y] : distributed)`.
///
/// With several workers, each makes the same passes in the same order, one thread at a time. Passes
/// over two datasets may go on at the same time, and while replicas run.
template <class T>
class DistributedDataset {
 public:
  using value_type = PerReplica<T>;

  DistributedDataset(data::NodePtr dataset, InputPlan plan, InputReplicas replicas,
                     InputOptions options)
      : dataset_(std::move(dataset)),
        plan_(std::make_shared<const InputPlan>(std::move(plan))),
        replicas_(std::move(replicas)),
        options_(std::move(options)) {}

  /// A new pass.
  DistributedIterator<T> iterator() const {
    detail::require_outside_of_replicas("distributed_dataset.iterator");
    return DistributedIterator<T>(plan_, replicas_, options_, passes_);
  }

  class Range;
  Range begin() const { return Range(iterator()); }
  std::default_sentinel_t end() const { return {}; }

  /// The number of steps; data::kInfinite, or data::kUnknownCardinality.
  std::int64_t cardinality() const { return count_steps(*plan_, replicas_); }
  /// What a replica's elements look like.
  data::ElementSpec element_spec() const { return replica_spec(*plan_, replicas_); }
  /// What will happen, in a few lines: which policy and why, who reads what, what each replica
  /// gets, and whether that depends on the number of workers.
  std::string explain() const { return explain_plan(dataset_, *plan_, replicas_, options_); }

 private:
  data::NodePtr dataset_;  // as the user made it
  std::shared_ptr<const InputPlan> plan_;
  InputReplicas replicas_;
  InputOptions options_;
  std::shared_ptr<std::atomic<std::uint64_t>> passes_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
};

template <class T>
class DistributedDataset<T>::Range {
 public:
  using value_type = PerReplica<T>;
  using difference_type = std::ptrdiff_t;

  explicit Range(DistributedIterator<T> pass) : pass_(std::move(pass)) { ++*this; }
  const PerReplica<T>& operator*() const { return *element_; }
  Range& operator++() {
    element_ = pass_.get_next_as_optional();
    return *this;
  }
  bool operator==(std::default_sentinel_t) const { return !element_; }

 private:
  DistributedIterator<T> pass_;
  std::optional<PerReplica<T>> element_;
};

/// `strategy.distribute_dataset`, for any replicas.
template <class T>
DistributedDataset<T> distribute_dataset(const data::Dataset<T>& dataset,
                                         const InputReplicas& replicas,
                                         const InputOptions& options) {
  const auto policy = options.auto_shard.value_or(dataset.options().auto_shard);
  return DistributedDataset<T>(
      dataset.node(), plan_dataset(dataset.node(), policy, replicas, options), replicas, options);
}

}  // namespace cohort
