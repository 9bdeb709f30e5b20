#pragma once

namespace cohort {

/// False for every T: a function template that is only there to say in one line why a call is
/// wrong has `static_assert(kNever<T>, "what to do instead")` for its body.
template <class T>
inline constexpr bool kNever = false;

}  // namespace cohort
