#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "cohort/collectives/chunks.h"

namespace cohort {

/// A stretch of one parameter's gradient.
struct GradientPart {
  int parameter;
  collectives::Range range;
};

/// What a thread sums at a time.
using GradientPiece = std::vector<GradientPart>;

/// Parameters whose gradients are summed together.
struct GradientBucket {
  std::vector<int> parameters;
  /// Chunks of about the same size, for gradients that can all be cut.
  std::vector<GradientPiece> pieces;
  /// A parameter each, for all others.
  std::vector<GradientPiece> whole;
};

/// Fills buckets of so many bytes in the order in which backward makes the gradients: those of the
/// last layers first. The first bucket is smaller than the others, so that summing begins early.
std::vector<GradientBucket> make_gradient_buckets(const std::vector<at::Tensor>& parameters,
                                                  std::int64_t first_bytes, std::int64_t bytes);

}  // namespace cohort
