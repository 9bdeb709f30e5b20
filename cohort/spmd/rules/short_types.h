#pragma once

#include <c10/core/ScalarType.h>

namespace cohort::spmd {

/// Of numbers whose sums and squares soon leave their range or their digits: rules compute these in
/// float.
inline bool is_short(c10::ScalarType type) {
  return type == c10::ScalarType::Half || type == c10::ScalarType::BFloat16;
}

}  // namespace cohort::spmd
