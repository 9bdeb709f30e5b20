#pragma once

#include <ATen/ThreadLocalState.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "cohort/base/torch_compat.h"

namespace cohort::detail {

/// The caller's LibTorch settings that follow it into the replicas' threads: grad mode, inference
/// mode, autocast, and how the processor treats subnormal numbers (which changes bits).
class CallerState {
 public:
  /// Notes the settings of the calling thread.
  CallerState();

  /// Puts them into effect in another thread while it lives.
  class Guard {
   public:
    explicit Guard(const CallerState& state);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    at::ThreadLocalStateGuard guard_;
    torch_compat::CpuAutocast autocast_before_;
    unsigned float_control_before_;
  };

 private:
  at::ThreadLocalState state_;
  torch_compat::CpuAutocast autocast_;
  unsigned float_control_;
};

/// Notes the same settings of the calling thread and puts them back at the end: the caller's thread
/// runs replica 0, and what the replica sets ends with its run.
class CallersOwnState {
 public:
  CallersOwnState();
  ~CallersOwnState();
  CallersOwnState(const CallersOwnState&) = delete;
  CallersOwnState& operator=(const CallersOwnState&) = delete;

 private:
  const c10::AutogradState autograd_;  // grad mode and inference mode
  const c10::impl::LocalDispatchKeySet keys_;
  const torch_compat::CpuAutocast autocast_;
  const unsigned float_control_;
};

}  // namespace cohort::detail
