#include "cohort/data/bucket.h"

namespace cohort::data {

void check_buckets(const BucketOptions& options) {
  constexpr const char* kWhere = "dataset.bucket_by_sequence_length";
  if (options.batch_sizes.size() != options.boundaries.size() + 1) {
    throw ValueError(kWhere, cat("expected one more batch size than boundaries, got ",
                                 options.batch_sizes.size(), " and ", options.boundaries.size()));
  }
  if (!std::is_sorted(options.boundaries.begin(), options.boundaries.end())) {
    throw ValueError(kWhere, "the boundaries must be in ascending order");
  }
  for (const std::int64_t size : options.batch_sizes) check_batch_size(size, kWhere);
}

}  // namespace cohort::data
