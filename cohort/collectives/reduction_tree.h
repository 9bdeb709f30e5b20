#pragma once

#include <bit>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

/// The order in which Cohort adds.
///
/// Floating-point addition is not associative, so a sum over replicas has the same bits on one
/// core and on four machines only if its parentheses never move. They are those of a binary tree
/// over the replica ids: a node covers the ids [lo, hi) and is cut at the largest power of two
/// that is smaller than its size. Six replicas are added as ((0+1)+(2+3))+(4+5):
///
///                  [0,6)                      cut at 4
///                 /     \                                                                     .
///            [0,4)       [4,6)                cut at 2 and 5
///           /     \      /   \                                                                .
///       [0,2)   [2,4)   4     5               cut at 1 and 3
///       /  \     /  \                                                                         .
///      0    1   2    3
///
/// Three properties make this tree the one to use:
///   - its depth is logarithmic, so rounding errors grow with log n instead of n;
///   - a node looks like the tree over as many replicas as it covers: any machine that holds all
///     of [lo, hi) can fold it alone, early, and knows nothing of the others;
///   - two different nodes are never cut at the same id. An inner node is therefore known by its
///     cut, 1 to n-1, and what belongs to it can lie in an array with that index.
namespace cohort::collectives {

/// The replica ids [lo, hi) as a node of a tree. A replica on its own is a leaf.
struct Node {
  int lo = 0;
  int hi = 0;

  int size() const { return hi - lo; }
  bool is_leaf() const { return size() == 1; }

  friend bool operator==(const Node&, const Node&) = default;
};

/// Prints "[lo, hi)".
std::ostream& operator<<(std::ostream& out, const Node& node);

/// The id where the node [lo, hi) is cut: its children are [lo, cut) and [cut, hi).
/// The node must have at least two replicas.
constexpr int split_point(int lo, int hi) {
  return lo + static_cast<int>(std::bit_floor(static_cast<unsigned>(hi - lo - 1)));
}

/// Adds up a node from those of its nodes that are there: `held(node)` returns an optional, which
/// has the sum of a node where that is known; every leaf's must be. `add(left, right)` adds two.
/// Every sum of Cohort goes this way, whatever is added: numbers, tensors, or steps of a program.
template <class Held, class Add>
auto add_up(Node node, const Held& held, const Add& add) {
  auto sum = held(node);
  if (sum) return *std::move(sum);
  const int cut = split_point(node.lo, node.hi);
  auto left = add_up({node.lo, cut}, held, add);
  return add(std::move(left), add_up({cut, node.hi}, held, add));
}

/// The tree over the replicas 0 to n-1. A value of one number; nodes are computed, not stored.
///
/// Functions that take a node throw ValueError when it is none of this tree.
class ReductionTree {
 public:
  /// Throws ValueError for less than one replica.
  explicit ReductionTree(int replicas);

  int replicas() const { return replicas_; }
  Node root() const { return {0, replicas_}; }

  /// True when adding the replicas of `node` is one step of the whole sum.
  bool contains(Node node) const;

  /// The node that `node` is half of; nothing for the root.
  std::optional<Node> parent(Node node) const;

  /// Adds up as far as it goes for now, from a node that has just become known: calls
  /// `join(left, right)` with the halves of its parent, which adds the right one to the left one
  /// and returns true, or returns false if the other one is not there; then with the halves of the
  /// parent's parent, and so on. Of those who arrive at a node, the last one goes on.
  template <class Join>
  void climb(Node node, const Join& join) const {
    while (const std::optional<Node> above = parent(node)) {
      const int cut = split_point(above->lo, above->hi);
      if (!join(Node{above->lo, cut}, Node{cut, above->hi})) return;
      node = *above;
    }
  }

  /// The fewest nodes that make up the replicas [first, last), in order of id: what a worker that
  /// holds these replicas can fold before it talks to others. At most two for each level of the
  /// tree; none for an empty block. Throws ValueError for a block that is not inside [0, n).
  std::vector<Node> subtrees(int first, int last) const;

 private:
  int replicas_;
};

}  // namespace cohort::collectives
