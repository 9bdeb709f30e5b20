#include "cohort/collectives/reduction_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/error.h"

namespace cohort::collectives {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

/// The sum over [lo, hi) as one would write it: "(0+1)+2".
std::string written(int lo, int hi, bool outermost = true) {
  if (hi - lo == 1) return std::to_string(lo);
  const int cut = split_point(lo, hi);
  const std::string sum = written(lo, cut, false) + "+" + written(cut, hi, false);
  return outermost ? sum : "(" + sum + ")";
}

/// Calls `visit` with every node of the tree below `node`, itself included.
template <class Visit>
void for_each_node(Node node, const Visit& visit) {
  visit(node);
  if (node.is_leaf()) return;
  const int cut = split_point(node.lo, node.hi);
  for_each_node({node.lo, cut}, visit);
  for_each_node({cut, node.hi}, visit);
}

TEST(ReductionTree, AddsInThisOrder) {
  EXPECT_EQ(written(0, 1), "0");
  EXPECT_EQ(written(0, 2), "0+1");
  EXPECT_EQ(written(0, 3), "(0+1)+2");
  EXPECT_EQ(written(0, 4), "(0+1)+(2+3)");
  EXPECT_EQ(written(0, 5), "((0+1)+(2+3))+4");
  EXPECT_EQ(written(0, 6), "((0+1)+(2+3))+(4+5)");
  EXPECT_EQ(written(0, 7), "((0+1)+(2+3))+((4+5)+6)");
  EXPECT_EQ(written(0, 8), "((0+1)+(2+3))+((4+5)+(6+7))");
  EXPECT_EQ(written(0, 9), "(((0+1)+(2+3))+((4+5)+(6+7)))+8");
}

TEST(ReductionTree, ANodeLooksLikeTheTreeOverAsManyReplicas) {
  EXPECT_EQ(written(8, 11), "(8+9)+10");
  EXPECT_EQ(split_point(1 << 30, (1 << 30) + 100), (1 << 30) + 64);
}

TEST(ReductionTree, NoTwoNodesAreCutAtTheSameReplica) {
  for (int n = 1; n <= 40; ++n) {
    std::set<int> cuts;
    for_each_node({0, n}, [&](Node node) {
      if (!node.is_leaf()) cuts.insert(split_point(node.lo, node.hi));
    });
    EXPECT_EQ(static_cast<int>(cuts.size()), n - 1) << "with " << n << " replicas";
  }
}

TEST(ReductionTree, ContainsItsNodesAndNothingElse) {
  for (int n = 1; n <= 20; ++n) {
    std::set<std::pair<int, int>> nodes;
    for_each_node({0, n}, [&](Node node) { nodes.insert({node.lo, node.hi}); });
    const ReductionTree tree(n);
    for (int lo = -1; lo <= n; ++lo) {
      for (int hi = -1; hi <= n + 1; ++hi) {
        EXPECT_EQ(tree.contains({lo, hi}), nodes.contains({lo, hi})) << Node{lo, hi} << " of " << n;
      }
    }
  }
}

TEST(ReductionTree, LeadsFromANodeToItsParent) {
  const ReductionTree tree(6);
  EXPECT_EQ(tree.parent({4, 5}), (Node{4, 6}));
  EXPECT_EQ(tree.parent({4, 6}), (Node{0, 6}));
  EXPECT_EQ(tree.parent({0, 6}), std::nullopt);
}

TEST(ReductionTree, ParentsUndoTheCutAtEveryNode) {
  for (int n = 2; n <= 40; ++n) {
    const ReductionTree tree(n);
    for_each_node({0, n}, [&](Node node) {
      if (node.is_leaf()) return;
      const int cut = split_point(node.lo, node.hi);
      EXPECT_EQ(tree.parent({node.lo, cut}), node);
      EXPECT_EQ(tree.parent({cut, node.hi}), node);
    });
  }
}

/// What `add_up` makes of the numbers of replicas, and of x for a node that is known.
std::string sum_of(Node node, const std::optional<Node>& known = {}) {
  const auto held = [&](Node part) -> std::optional<std::string> {
    if (part == known) return "x";
    return part.is_leaf() ? std::optional(std::to_string(part.lo)) : std::nullopt;
  };
  return add_up(node, held, [](const std::string& left, const std::string& right) {
    return "(" + left + "+" + right + ")";
  });
}

TEST(AddUp, PutsTheParenthesesOfTheTree) {
  EXPECT_EQ(sum_of({0, 1}), "0");
  EXPECT_EQ(sum_of({0, 5}), "(((0+1)+(2+3))+4)");
  EXPECT_EQ(sum_of({0, 6}), "(((0+1)+(2+3))+(4+5))");
  EXPECT_EQ(sum_of({3, 6}), "((3+4)+5)");
}

TEST(AddUp, TakesNodesThatAreKnown) { EXPECT_EQ(sum_of({0, 4}, Node{2, 4}), "((0+1)+x)"); }

TEST(ReductionTree, WhoeverArrivesLastAtANodeAddsItUp) {
  for (int n = 1; n <= 20; ++n) {
    const ReductionTree tree(n);
    std::vector<int> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(n));
    std::map<int, std::string> sums;  // by the first replica of the highest node so far
    std::map<int, int> sizes;
    for (const int replica : order) {
      sums[replica] = std::to_string(replica);
      sizes[replica] = 1;
      tree.climb({replica, replica + 1}, [&](Node left, Node right) {
        if (sizes[left.lo] != left.size() || sizes[right.lo] != right.size()) return false;
        sums[left.lo] = "(" + sums[left.lo] + "+" + sums[right.lo] + ")";
        sizes[left.lo] += std::exchange(sizes[right.lo], 0);
        return true;
      });
    }
    EXPECT_EQ(sums[0], sum_of(tree.root())) << n;
  }
}

TEST(ReductionTree, CutsABlockIntoTheFewestNodes) {
  EXPECT_THAT(ReductionTree(6).subtrees(0, 6), ElementsAre(Node{0, 6}));
  EXPECT_THAT(ReductionTree(6).subtrees(0, 3), ElementsAre(Node{0, 2}, Node{2, 3}));
  EXPECT_THAT(ReductionTree(6).subtrees(3, 6), ElementsAre(Node{3, 4}, Node{4, 6}));
  EXPECT_THAT(ReductionTree(8).subtrees(1, 7),
              ElementsAre(Node{1, 2}, Node{2, 4}, Node{4, 6}, Node{6, 7}));
  EXPECT_THAT(ReductionTree(5).subtrees(3, 5), ElementsAre(Node{3, 4}, Node{4, 5}));
  EXPECT_THAT(ReductionTree(5).subtrees(2, 2), IsEmpty());
}

TEST(ReductionTree, SubtreesFollowEachOtherAndCannotBeJoined) {
  for (int n = 1; n <= 20; ++n) {
    const ReductionTree tree(n);
    for (int first = 0; first < n; ++first) {
      for (int last = first + 1; last <= n; ++last) {
        int next = first;
        for (const Node node : tree.subtrees(first, last)) {
          EXPECT_TRUE(node.lo == next && tree.contains(node)) << node << " of " << n;
          const auto parent = tree.parent(node);
          EXPECT_TRUE(!parent || parent->lo < first || parent->hi > last) << node << " of " << n;
          next = node.hi;
        }
        EXPECT_EQ(next, last);
      }
    }
  }
}

TEST(ReductionTree, RefusesWhatItDoesNotHave) {
  const ReductionTree tree(6);
  EXPECT_THROW(ReductionTree(0), ValueError);
  EXPECT_THAT(
      [&] {
        tree.parent({1, 3});
      },
      ThrowsMessage<ValueError>(HasSubstr("[1, 3) is no node of the tree over [0, 6)")));
  EXPECT_THROW(tree.subtrees(4, 7), ValueError);
  EXPECT_THROW(tree.subtrees(4, 3), ValueError);
}

}  // namespace
}  // namespace cohort::collectives
