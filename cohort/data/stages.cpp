// What the stages need and does not depend on the type of elements.

#include <numeric>

#include "cohort/data/sequence.h"
#include "cohort/data/shuffle.h"
#include "cohort/data/slicing.h"

namespace cohort::data {

std::vector<std::int64_t> permutation(std::int64_t size, std::uint64_t seed) {
  std::vector<std::int64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  RandomStream random(seed);
  for (std::int64_t i = size; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

void check_shard(std::int64_t shards, std::int64_t index, const char* where) {
  if (shards < 1) throw InvalidArgument(where, cat("expected at least one shard, got ", shards));
  if (index >= 0 && index < shards) return;
  throw InvalidArgument(
      where, cat("the index is out of range: expected 0 to ", shards - 1, ", got ", index));
}

void throw_too_few_elements(const ShardOf& shard, std::int64_t elements) {
  throw InvalidArgument(
      "auto_shard",
      cat("there are fewer elements or files than shards: expected at least ", shard.count,
          ", got ", elements,
          "; use another AutoShardPolicy: DATA, or OFF for all data on every worker"));
}

void throw_other_cardinality(std::int64_t expected, std::int64_t got, bool more) {
  throw InvalidArgument("dataset.assert_cardinality",
                        cat("the dataset has another number of elements: expected ", expected,
                            ", got ", more ? "more than " : "", got));
}

WindowOptions checked_window(WindowOptions options) {
  if (options.shift == 0) options.shift = options.size;
  if (options.size < 1 || options.shift < 1 || options.stride < 1) {
    throw InvalidArgument("dataset.window",
                          cat("size, shift and stride must be positive, got ", options.size, ", ",
                              options.shift, " and ", options.stride));
  }
  return options;
}

}  // namespace cohort::data
