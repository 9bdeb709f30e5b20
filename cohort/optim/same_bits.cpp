#include "cohort/optim/same_bits.h"

#include <ATen/ATen.h>

#include <cstring>

namespace cohort {

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.detach().cpu().contiguous(), right = b.detach().cpu().contiguous();
  return left.nbytes() == right.nbytes() &&
         std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

}  // namespace cohort
