#pragma once

#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "cohort/collectives/meeting.h"
#include "cohort/distribute/differentiable_collectives.h"
#include "cohort/distribute/replica_random.h"
#include "cohort/distribute/strategy.h"
#include "cohort/values/call.h"

namespace cohort::detail {

/// What a replica brings to a merge_call: its function and its arguments.
///
/// The work, done once in replica 0's thread: merge the arguments of all, call replica 0's
/// function in cross-replica context, keep the result where all replicas can take their part.
template <class F, class... Args>
class MergeCall : public collectives::Contribution {
 public:
  MergeCall(ReplicaContext& replica, F& fn, const Args&... args)
      : replica_(replica), fn_(fn), args_(args...) {}

  std::string describe() const override { return "replica_context.merge_call"; }
  std::optional<std::string> mismatch(const Contribution&) const override { return std::nullopt; }
  bool leader_only() const override { return true; }

  std::int64_t plan(std::span<Contribution* const> all) override {
    for (Contribution* each : all) all_.push_back(static_cast<MergeCall*>(each));
    return 1;
  }

  void work(std::int64_t) override {
    StrategyExtended& extended = replica_.extended();
    const ModeGuard cross_replica(extended, nullptr);
    const OutsideOfReplica outside;
    Strategy strategy(extended.shared_from_this());
    if (replica_.attachment()) replica_.attachment()->pause_run();
    call(strategy, std::index_sequence_for<Args...>());
    if (replica_.attachment()) replica_.attachment()->resume_run();
    for (MergeCall* each : all_) each->result_ = result_;
  }

  /// This replica's part of the result. Only after the meeting.
  auto take() {
    if constexpr (!std::is_void_v<Result>) {
      return nest::select(*result_, replica_.local_id(), replica_.extended().layout().local(),
                          "replica_context.merge_call");
    }
  }

 private:
  template <std::size_t I>
  using Arg = std::tuple_element_t<I, std::tuple<Args...>>;
  template <class T>
  using Merged = decltype(nest::merge(std::declval<std::vector<T>>()));

 public:
  using Result = std::remove_cvref_t<decltype(nest::call(
      std::declval<F&>(), std::declval<Strategy&>(), std::declval<Merged<Args>>()...))>;

 private:
  template <std::size_t I>
  auto merged_argument() const {
    std::vector<Arg<I>> values;
    values.reserve(all_.size());
    for (const MergeCall* each : all_) values.push_back(std::get<I>(each->args_));
    return nest::merge(values, replica_.extended().layout().replica_devices());
  }

  template <std::size_t... I>
  void call(Strategy& strategy, std::index_sequence<I...>) {
    if constexpr (std::is_void_v<Result>) {
      nest::call(fn_, strategy, merged_argument<I>()...);
    } else {
      result_ = std::make_shared<const Result>(nest::call(fn_, strategy, merged_argument<I>()...));
    }
  }

  ReplicaContext& replica_;
  F& fn_;
  std::tuple<const Args&...> args_;
  std::vector<MergeCall*> all_;  // of replica 0's
  std::shared_ptr<std::conditional_t<std::is_void_v<Result>, char, const Result>> result_;
};

template <class F, class... Args>
auto merge_call(ReplicaContext& replica, F& fn, const Args&... args) {
  require_replica_context(replica, "replica_context.merge_call");
  static_assert(
      nest::Takes<F, Strategy&, decltype(nest::merge(std::declval<std::vector<Args>>()))...>,
      "merge_call(fn, args...): fn must take (Strategy&, PerReplica<Arg>...)");
  MergeCall<F, Args...> call(replica, fn, args...);
  attend_meeting(replica, call);
  return call.take();
}

}  // namespace cohort::detail
