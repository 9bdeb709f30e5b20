#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/base/home_process.h"
#include "cohort/base/mutex.h"
#include "cohort/device/device.h"
#include "cohort/device/parker.h"

namespace cohort::spmd {

class Operation;

/// The logical devices of one replica, each with a thread that runs the operations on its tiles.
/// The replica's own thread is device 0's, so that a mesh of one device costs no thread.
///
/// Idle threads sleep. The destructor ends them; in the child of a `fork` they are not there.
class Mesh {
 public:
  /// `name` is for errors: "the 4 logical devices of replica 1". `devices` are where the logical
  /// ones lie: several may share one.
  Mesh(std::string name, std::vector<Device> devices);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  const std::string& name() const { return name_; }
  int size() const { return static_cast<int>(devices_.size()); }
  const Device& device(int logical) const { return devices_[logical]; }

  /// Calls task(i) on the thread of logical device `device_of[i]`, for every i, those of different
  /// devices at the same time and those of one device in order; returns when all have ended.
  /// Rethrows the exception of the lowest device. Tasks run without gradients, below autograd, with
  /// one thread each.
  ///
  /// One call at a time; others wait. From one of the mesh's own tasks, runs them in this thread.
  /// Throws RuntimeError in a process that was forked from the mesh's.
  void run(std::span<const int> device_of, FunctionRef<void(int)> task);

 private:
  struct Worker {
    Parker parker;
    std::exception_ptr error;
  };
  enum Signal : Parker::Signal { WORK = 1, STOP = 2, DONE = 3 };

  void thread_main(int device);
  void run_tasks(int device);
  Parker::Patience patience() const;

  const std::string name_;
  const std::vector<Device> devices_;
  const int cores_;
  std::deque<Worker> workers_;

  Mutex running_;
  // Of the call that is running.
  std::span<const int> device_of_;
  const FunctionRef<void(int)>* task_ = nullptr;
  Operation* operation_ = nullptr;
  std::atomic<int> unfinished_{0};
  Parker caller_;

  OwnThreads threads_;  // of devices 1, 2, …; started by the first call
};

/// The logical device whose task this thread runs; 0 outside of tasks.
int current_logical_device();

/// What tasks run under, for work that the replica's thread does itself: without gradients, below
/// autograd.
struct BelowAutograd {
  at::AutoGradMode no_gradients{false};
  at::AutoDispatchBelowADInplaceOrView below;
};

}  // namespace cohort::spmd
