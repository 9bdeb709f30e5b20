#include "cohort/data/combine.h"

#include <algorithm>
#include <numeric>

namespace cohort::data {

std::int64_t sum_of_cardinalities(std::span<const NodePtr> inputs) {
  std::int64_t sum = 0;
  for (const NodePtr& input : inputs) {
    const std::int64_t count = input->cardinality();
    if (count == kInfinite || sum == kInfinite) {
      sum = kInfinite;
    } else if (count == kUnknownCardinality || sum == kUnknownCardinality) {
      sum = kUnknownCardinality;
    } else {
      sum += count;
    }
  }
  return sum;
}

std::int64_t least_cardinality(std::span<const NodePtr> inputs) {
  std::int64_t least = kInfinite;
  for (const NodePtr& input : inputs) {
    const std::int64_t count = input->cardinality();
    if (count == kInfinite) continue;
    if (count == kUnknownCardinality) return kUnknownCardinality;
    least = least == kInfinite ? count : std::min(least, count);
  }
  return least;
}

std::vector<double> checked_weights(const SampleOptions& options, std::size_t datasets) {
  constexpr const char* kWhere = "data::sample_from_datasets";
  if (datasets == 0) throw ValueError(kWhere, "expected at least one dataset");
  if (options.weights.empty()) return std::vector<double>(datasets, 1.0);
  if (options.weights.size() != datasets) {
    throw ValueError(kWhere, cat("expected a weight for each of the ", datasets, " datasets, got ",
                                 options.weights.size()));
  }
  const bool valid = std::all_of(options.weights.begin(), options.weights.end(),
                                 [](double weight) { return weight >= 0; });
  const double sum = std::accumulate(options.weights.begin(), options.weights.end(), 0.0);
  if (!valid || !(sum > 0)) {
    throw ValueError(kWhere, "weights must not be negative, and one must be positive");
  }
  return options.weights;
}

std::size_t draw(const std::vector<double>& weights, double uniform) {
  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t last = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    last = i;
    if (left < weights[i]) return i;
    left -= weights[i];
  }
  return last;
}

}  // namespace cohort::data
