#include "cohort/collectives/reduction_tree.h"

#include "cohort/base/error.h"

namespace cohort::collectives {
namespace {

Node left_of(Node node) { return {node.lo, split_point(node.lo, node.hi)}; }
Node right_of(Node node) { return {split_point(node.lo, node.hi), node.hi}; }

/// The half of `node` in which `inner` begins.
Node half_towards(Node node, Node inner) {
  const Node left = left_of(node);
  return inner.lo < left.hi ? left : right_of(node);
}

void collect(Node node, Node block, std::vector<Node>& found) {
  if (node.hi <= block.lo || block.hi <= node.lo) return;
  if (block.lo <= node.lo && node.hi <= block.hi) {
    found.push_back(node);
    return;
  }
  collect(left_of(node), block, found);
  collect(right_of(node), block, found);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Node& node) {
  return out << '[' << node.lo << ", " << node.hi << ')';
}

ReductionTree::ReductionTree(int replicas) : replicas_(replicas) {
  if (replicas < 1) {
    throw ValueError("ReductionTree", cat("expected at least one replica, got ", replicas));
  }
}

bool ReductionTree::contains(Node node) const {
  if (node.lo < 0 || node.lo >= node.hi || node.hi > replicas_) return false;
  Node here = root();
  while (here.size() > node.size()) here = half_towards(here, node);
  return here == node;
}

std::optional<Node> ReductionTree::parent(Node node) const {
  if (!contains(node)) {
    throw ValueError("ReductionTree", cat(node, " is no node of the tree over ", root()));
  }
  std::optional<Node> above;
  for (Node here = root(); here != node; here = half_towards(here, node)) above = here;
  return above;
}

std::vector<Node> ReductionTree::subtrees(int first, int last) const {
  if (first < 0 || last < first || last > replicas_) {
    throw ValueError("ReductionTree.subtrees",
                     cat("expected a block inside ", root(), ", got ", Node{first, last}));
  }
  std::vector<Node> found;
  collect(root(), {first, last}, found);
  return found;
}

}  // namespace cohort::collectives
