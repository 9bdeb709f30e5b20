#include "cohort/spmd/mesh.h"

#include "cohort/base/error.h"
#include "cohort/device/allowed_cores.h"
#include "cohort/device/intra_op_threads.h"
#include "cohort/spmd/trace.h"

namespace cohort::spmd {
namespace {

struct Current {
  const Mesh* mesh = nullptr;
  int device = 0;
};
thread_local Current current;

std::int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int current_logical_device() { return current.device; }

Mesh::Mesh(std::string name, std::vector<Device> devices)
    : name_(std::move(name)),
      devices_(std::move(devices)),
      cores_(allowed_cores()),
      workers_(devices_.size()) {
  if (devices_.empty()) throw ValueError("spmd::Mesh", "there must be a logical device");
}

Mesh::~Mesh() {
  for (int d = 1; d <= threads_.size(); ++d) workers_[d].parker.signal(STOP);
  threads_.join();
}

/// More devices than cores: whoever polls keeps another from working.
Parker::Patience Mesh::patience() const {
  return size() <= cores_ ? Parker::Patience::POLL : Parker::Patience::SLEEP;
}

void Mesh::run(std::span<const int> device_of, FunctionRef<void(int)> task) {
  if (current.mesh == this) {
    for (std::size_t i = 0; i < device_of.size(); ++i) task(static_cast<int>(i));
    return;
  }
  if (size() > 1) threads_.process().require(name_, "strategy");
  const MutexLock lock(running_);
  device_of_ = device_of;
  task_ = &task;
  operation_ = Operation::current();
  for (int d = threads_.size() + 1; d < size(); ++d) {
    threads_.start([this, d] { thread_main(d); });
  }
  std::uint64_t used = 0;  // by device; those from 64 on count as used
  for (const int device : device_of) used |= std::uint64_t{1} << std::min(device, 63);
  const auto is_used = [&](int d) { return (used >> std::min(d, 63) & 1) != 0; };
  int others = 0;
  for (int d = 1; d < size(); ++d) others += is_used(d) ? 1 : 0;
  unfinished_.store(others, std::memory_order_relaxed);
  for (int d = 1; d < size(); ++d) {
    if (is_used(d)) workers_[d].parker.signal(WORK);
  }
  if (is_used(0)) {
    const BelowAutograd below;
    const IntraOpThreads one(1);
    run_tasks(0);
  }
  if (others > 0) caller_.wait(patience());
  std::exception_ptr first;
  for (Worker& worker : workers_) {
    auto error = std::exchange(worker.error, nullptr);
    if (!first) first = std::move(error);
  }
  if (first) std::rethrow_exception(first);
}

void Mesh::run_tasks(int device) {
  const Current before = std::exchange(current, {this, device});
  const OperationScope scope(operation_);
  const bool is_recorded = operation_ && Operation::is_recording();
  const std::int64_t start = is_recorded ? now_ns() : 0;
  std::int64_t count = 0;
  try {
    for (std::size_t i = 0; i < device_of_.size(); ++i) {
      if (device_of_[i] != device) continue;
      (*task_)(static_cast<int>(i));
      ++count;
    }
  } catch (...) {
    workers_[device].error = std::current_exception();
  }
  if (is_recorded) operation_->ran(device, count, start, now_ns(), name_);
  current = before;
}

void Mesh::thread_main(int device) {
  const BelowAutograd below;
  const IntraOpThreads one(1);
  while (workers_[device].parker.wait(patience()) != STOP) {
    run_tasks(device);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) caller_.signal(DONE);
  }
}

}  // namespace cohort::spmd
