#include "cohort/optim/gradient_buckets.h"

#include <algorithm>

namespace cohort {
namespace {

/// Large parameters in chunks; small ones together in one piece.
void cut(GradientBucket& bucket, const std::vector<at::Tensor>& parameters) {
  std::int64_t room = 0;
  for (const int p : bucket.parameters) {
    const at::Tensor& sample = parameters[p];
    const std::int64_t size = static_cast<std::int64_t>(sample.element_size());
    const std::int64_t chunk = collectives::kChunkBytes / size;
    for (std::int64_t begin = 0; begin < sample.numel(); begin += chunk) {
      const collectives::Range range{begin, std::min(begin + chunk, sample.numel())};
      if (room <= 0) {
        bucket.pieces.emplace_back();
        room = collectives::kChunkBytes;
      }
      bucket.pieces.back().push_back({p, range});
      room -= range.size() * size;
    }
    bucket.whole.push_back({{p, {0, sample.numel()}}});
  }
}

}  // namespace

std::vector<GradientBucket> make_gradient_buckets(const std::vector<at::Tensor>& parameters,
                                                  std::int64_t first_bytes, std::int64_t bytes) {
  std::vector<GradientBucket> buckets;
  std::int64_t room = 0;
  for (int p = static_cast<int>(parameters.size()) - 1; p >= 0; --p) {
    if (buckets.empty() || room <= 0) {
      room = buckets.empty() ? first_bytes : bytes;
      buckets.emplace_back();
    }
    buckets.back().parameters.push_back(p);
    room -= static_cast<std::int64_t>(parameters[p].nbytes());
  }
  for (GradientBucket& bucket : buckets) cut(bucket, parameters);
  return buckets;
}

}  // namespace cohort
