#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "cohort/collectives/chunks.h"
#include "cohort/collectives/reduction_tree.h"

namespace cohort::collectives {

/// Which replicas each leaf buffer of a sum stands for, compiled to a list of additions.
///
/// A leaf buffer holds one replica's contribution, or the sum of a whole node of the tree that was
/// folded before; the result is the same. Six replicas, of which a device folded 0 to 3:
///
///     const SumPlan plan{{0, 4}, {4, 5}, {5, 6}};      // leaf 0 + (leaf 1 + leaf 2)
///
/// Make it once and keep it: the constructor allocates. Immutable, so threads may share it.
class SumPlan {
 public:
  /// One buffer for each of the replicas 0 to n-1. Throws ValueError for less than one.
  explicit SumPlan(int replicas);

  /// One buffer for each node, in order of id. Together they make up [front().lo, back().hi), the
  /// root of the tree or any node of it that is to be folded early. Throws ValueError that names
  /// the first buffer that does not fit.
  explicit SumPlan(std::span<const Node> leaves);
  SumPlan(std::initializer_list<Node> leaves) : SumPlan(std::span(leaves.begin(), leaves.size())) {}

  /// How many buffers the sum reads.
  int leaves() const { return leaves_; }

  /// The program of a stack machine: 0 pushes the next leaf; 2 to 8 replaces so many topmost
  /// operands by their sum. The last step stores to the outputs (and is 1 for a single leaf).
  std::span<const uint8_t> steps() const { return steps_; }

 private:
  void compile(Node root, std::span<const Node> leaves);

  int leaves_;
  std::vector<uint8_t> steps_;
};

/// Adds the leaves in tree order and stores the sum in every output, for the elements of `range`.
///
/// An element of the result depends on that element of the leaves alone: it has the same bits for
/// any cut into ranges, any number of threads, any early folding of nodes, any machine. Half and
/// BFloat16 are rounded after every addition, as early folding has to; integers wrap around. (A
/// NaN stays a NaN, but its sign and payload are the processor's choice.)
///
/// A buffer is the address of element 0 of a contiguous array of `dtype`. An output may be one of
/// the leaves, which is then overwritten, or another buffer, but must not overlap a leaf partly.
/// Threads may work on disjoint ranges of the same buffers at the same time.
///
/// `divisor` is what the sum is divided by in the end, with true division: the number of replicas
/// for MEAN. Integers are not divided here, since their mean is a float64 (semantics 7.9).
///
/// Throws InvalidArgument, before touching any buffer, for a dtype that cannot be added (bool,
/// quantized types), for integers with a divisor, and when there are not as many leaves as in the
/// plan. With an empty range it checks just that. Allocates nothing; needs 40 KiB of stack.
void ordered_sum(c10::ScalarType dtype, const SumPlan& plan, std::span<const void* const> leaves,
                 std::span<void* const> outputs, Range range, double divisor = 1);

/// False for a dtype that cannot be added.
bool has_ordered_sum(c10::ScalarType dtype);

/// Copies the bytes of `range` from `source` to every output, reading them from memory once.
/// An output may be the source itself, but must not overlap it partly. For data of any dtype.
void broadcast_bytes(const void* source, std::span<void* const> outputs, Range range);

}  // namespace cohort::collectives
