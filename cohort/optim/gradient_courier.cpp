#include "cohort/optim/gradient_courier.h"

#include <algorithm>
#include <utility>

namespace cohort {

GradientCourier::GradientCourier(World& world, std::unique_ptr<WorldLane> lane, int buckets,
                                 Carry carry)
    : world_(world),
      buckets_(buckets),
      carry_(std::move(carry)),
      lane_(std::move(lane)),
      ready_(buckets, 0) {
  if (!world.holds_root()) threads_.start([this] { run(); });
}

GradientCourier::~GradientCourier() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (!threads_.empty()) lane_->abandon();
  threads_.join();
}

void GradientCourier::make_ready(int bucket) {
  if (threads_.empty()) return;
  {
    const MutexLock lock(mutex_);
    ready_[bucket] = 1;
    epoch_ = world_.epoch();
  }
  changed_.notify_all();
}

void GradientCourier::begin_round() {
  next_ = 0;
  std::fill(ready_.begin(), ready_.end(), 0);
}

void GradientCourier::wait() {
  if (threads_.empty()) return;
  const MutexLock lock(mutex_);
  while (next_ < buckets_ && !error_) changed_.wait(mutex_);
  begin_round();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void GradientCourier::start_over() {
  if (threads_.empty()) return;
  const MutexLock lock(mutex_);
  if (is_busy_) lane_->abandon();
  while (is_busy_) changed_.wait(mutex_);
  lane_->resume();
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
  lane_->only_in(epoch_);
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
