#include "cohort/optim/same_bits.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "cohort/base/hash.h"
#include "cohort/base/whole_tensor.h"
#include "cohort/spmd/placement.h"
#include "cohort/spmd/sharded_tensor.h"

namespace cohort {
namespace {

bool have_same_tiles(const at::Tensor& a, const at::Tensor& b) {
  return spmd::is_sharded(a) && spmd::is_sharded(b) && spmd::layout_of(a) == spmd::layout_of(b);
}

}  // namespace

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (have_same_tiles(a, b)) {
    const auto& ours = spmd::impl(a)->tiles();
    const auto& theirs = spmd::impl(b)->tiles();
    return std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(), same_bits);
  }
  const at::Tensor left = as_read(spmd::full(a.detach()).cpu());
  const at::Tensor right = as_read(spmd::full(b.detach()).cpu());
  return left.nbytes() == right.nbytes() &&
         std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

void copy_values(const at::Tensor& to, const at::Tensor& from) {
  if (spmd::is_sharded(to)) {
    spmd::write_to(to.data(), from.data());
  } else {
    to.data().copy_(from.data());
  }
}

std::uint64_t hash_of_bits(const at::Tensor& tensor) {
  const at::Tensor value = as_read(spmd::full(tensor.detach()).cpu());
  Hash hash;
  hash.add(value.data_ptr(), value.nbytes());
  return std::max<std::uint64_t>(hash.value(), 1);
}

}  // namespace cohort
