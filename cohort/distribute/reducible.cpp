#include "cohort/distribute/reducible.h"

#include <ATen/ATen.h>

namespace cohort {

at::Tensor number_tensor(double value, c10::ScalarType dtype) {
  return at::scalar_tensor(value, dtype);
}

at::Tensor number_tensor(std::int64_t value, c10::ScalarType dtype) {
  return at::scalar_tensor(value, dtype);
}

}  // namespace cohort
