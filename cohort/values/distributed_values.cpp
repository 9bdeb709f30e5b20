#include "cohort/values/distributed_values.h"

namespace cohort::detail {

std::size_t checked_component(std::size_t index, std::size_t size, const char* where) {
  if (index < size) return index;
  throw ValueError(where, cat("the value has no component for replica ", index, ": it has ", size,
                              "; make it with the same strategy that uses it"));
}

}  // namespace cohort::detail
