#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace cohort {

/// How often LibTorch has counted a write to a tensor or to one that was detached from it, all
/// together. 0 for undefined tensors and for those of inference mode, where it does not count.
inline std::int64_t write_count(const at::Tensor& tensor) {
  const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
  return counter.enabled() ? counter.current_version() : 0;
}

}  // namespace cohort
