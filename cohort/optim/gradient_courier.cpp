#include "cohort/optim/gradient_courier.h"

#include <algorithm>
#include <utility>

namespace cohort {

GradientCourier::GradientCourier(World& world, int buckets, Carry carry)
    : world_(world),
      buckets_(buckets),
      carry_(std::move(carry)),
      lane_(world.make_lane()),
      ready_(buckets, 0) {
  if (!world.holds_root()) thread_ = std::thread([this] { run(); });
}

void GradientCourier::end() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (!thread_.joinable()) return;
  lane_->abandon();
  thread_.join();
}

void GradientCourier::make_ready(int bucket) {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    ready_[bucket] = 1;
  }
  changed_.notify_all();
}

void GradientCourier::begin_round() {
  next_ = 0;
  std::fill(ready_.begin(), ready_.end(), 0);
}

void GradientCourier::wait() {
  if (!thread_.joinable()) return;
  const MutexLock lock(mutex_);
  while (next_ < buckets_ && !error_) changed_.wait(mutex_);
  begin_round();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void GradientCourier::start_over() {
  if (!thread_.joinable()) return;
  const MutexLock lock(mutex_);
  if (is_busy_) lane_->abandon();
  while (is_busy_) changed_.wait(mutex_);
  begin_round();
  error_ = nullptr;
}

void GradientCourier::run() {
  while (const auto bucket = next_bucket()) {
    std::exception_ptr error;
    try {
      carry_(*bucket, *lane_);
    } catch (...) {
      error = std::current_exception();
    }
    note_carried(error);
  }
}

/// Nothing at the end. Behind an error nothing leaves until the round is begun anew.
std::optional<int> GradientCourier::next_bucket() {
  const MutexLock lock(mutex_);
  while (!ending_ && (error_ || next_ == buckets_ || !ready_[next_])) changed_.wait(mutex_);
  if (ending_) return std::nullopt;
  is_busy_ = true;
  return next_;
}

void GradientCourier::note_carried(std::exception_ptr error) {
  {
    const MutexLock lock(mutex_);
    is_busy_ = false;
    error_ = std::move(error);
    if (!error_) ++next_;
  }
  changed_.notify_all();
}

}  // namespace cohort
