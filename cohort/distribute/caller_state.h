#pragma once

#include <ATen/ThreadLocalState.h>

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

}  // namespace cohort::detail
