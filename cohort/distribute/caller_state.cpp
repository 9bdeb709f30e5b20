#include "cohort/distribute/caller_state.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace cohort::detail {
namespace {

/// The processor's own switches for rounding and subnormal numbers; each thread has its own.
unsigned float_control() {
#if defined(__SSE__)
  return _mm_getcsr();
#else
  return 0;
#endif
}

void set_float_control([[maybe_unused]] unsigned control) {
#if defined(__SSE__)
  _mm_setcsr(control);
#endif
}

}  // namespace

CallerState::CallerState()
    : autocast_(torch_compat::cpu_autocast()), float_control_(float_control()) {}

CallerState::Guard::Guard(const CallerState& state)
    : guard_(state.state_),
      autocast_before_(torch_compat::cpu_autocast()),
      float_control_before_(float_control()) {
  torch_compat::set_cpu_autocast(state.autocast_);
  set_float_control(state.float_control_);
}

CallerState::Guard::~Guard() {
  torch_compat::set_cpu_autocast(autocast_before_);
  set_float_control(float_control_before_);
}

}  // namespace cohort::detail
