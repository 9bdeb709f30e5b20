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

CallersOwnState::CallersOwnState()
    : autograd_(c10::AutogradState::get_tls_state()),
      keys_(c10::impl::tls_local_dispatch_key_set()),
      autocast_(torch_compat::cpu_autocast()),
      float_control_(float_control()) {}

CallersOwnState::~CallersOwnState() {
  const bool was_autocast_left_on =
      torch_compat::cpu_autocast().is_enabled && !autocast_.is_enabled;
  if (was_autocast_left_on) at::autocast::clear_cache();
  torch_compat::set_cpu_autocast(autocast_);
  c10::impl::_force_tls_local_dispatch_key_set(keys_);
  c10::AutogradState::set_tls_state(autograd_);
  set_float_control(float_control_);
}

}  // namespace cohort::detail
