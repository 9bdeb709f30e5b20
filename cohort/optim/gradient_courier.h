#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/base/cond_var.h"
#include "cohort/base/home_process.h"
#include "cohort/base/mutex.h"
#include "cohort/collectives/world_lane.h"

namespace cohort {

/// A thread that takes buckets of gradients to the other workers while backward goes on.
///
/// Buckets leave in the order of their numbers, which is the same on all workers: one that is ready
/// waits for those before it. A round is over when all of its buckets have left (`wait`). What
/// throws in the thread comes out there, and the buckets behind it stay.
///
/// Where one worker holds all replicas there is nothing to take anywhere: no thread is made, and
/// `wait` returns at once.
///
/// The destructor ends the thread; it must not be called in the child of a `fork`: hold it as
/// UsedByThreads<GradientCourier>.
class GradientCourier {
 public:
  /// `carry(bucket, lane)` adds up a bucket over the workers, in the courier's thread.
  using Carry = std::function<void(int bucket, WorldLane& lane)>;

  GradientCourier(World& world, std::unique_ptr<WorldLane> lane, int buckets, Carry carry);
  ~GradientCourier();
  GradientCourier(const GradientCourier&) = delete;
  GradientCourier& operator=(const GradientCourier&) = delete;

  /// A bucket of this round may leave when those before it have. From any thread.
  void make_ready(int bucket);

  /// Returns when all buckets have left; the next round begins. Rethrows what has failed.
  void wait();

  /// Forgets the round. Only when it has failed on all workers, or can't have begun: the thread
  /// gives up what it waits for then.
  void start_over();

  /// The lane's number, alike on all workers.
  WorldLane& lane() const { return *lane_; }

 private:
  void run();
  std::optional<int> next_bucket();
  void note_carried(std::exception_ptr error);
  void begin_round() COHORT_REQUIRES(mutex_);

  // Constant after construction.
  World& world_;
  const int buckets_;
  const Carry carry_;
  const std::unique_ptr<WorldLane> lane_;

  Mutex mutex_;
  CondVar changed_;
  std::vector<char> ready_ COHORT_GUARDED_BY(mutex_);
  int next_ COHORT_GUARDED_BY(mutex_) = 0;          // the bucket that leaves next
  bool is_busy_ COHORT_GUARDED_BY(mutex_) = false;  // it is on its way
  bool ending_ COHORT_GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ COHORT_GUARDED_BY(mutex_);
  std::uint32_t epoch_ COHORT_GUARDED_BY(mutex_) = 0;  // of the world, in which they became ready
  OwnThreads threads_;  // one, or none; last: it uses all of the above
};

}  // namespace cohort
