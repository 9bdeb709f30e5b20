#include "cohort/data/node.h"

#include <algorithm>

#include "cohort/base/random.h"

namespace cohort::data {

Iteration Iteration::inner(std::uint64_t n) const {
  Iteration result = *this;
  result.epoch = mix(epoch, n + 1);
  return result;
}

std::uint64_t Node::depth() const {
  std::uint64_t deepest = 0;
  for (const NodePtr& input : inputs()) deepest = std::max(deepest, input->depth() + 1);
  return deepest;
}

}  // namespace cohort::data
