#include "cohort/tpu/ring_order.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "tests/base/captured_log.h"

namespace cohort::tpu {
namespace {

using Points = std::vector<Point>;

int steps_between(const Point& a, const Point& b) {
  return std::abs(a[0] - b[0]) + std::abs(a[1] - b[1]) + std::abs(a[2] - b[2]);
}

bool has_every_point_once(const Points& order, const Point& sizes) {
  const std::set<Point> points(order.begin(), order.end());
  const auto count = static_cast<std::size_t>(sizes[0] * sizes[1] * sizes[2]);
  for (const Point& point : points) {
    for (int axis = 0; axis < 3; ++axis) {
      if (point[axis] < 0 || point[axis] >= sizes[axis]) return false;
    }
  }
  return order.size() == count && points.size() == count;
}

TEST(RingOrder, GoesThroughPairsOfRowsAndBackAlongColumnZero) {
  EXPECT_EQ(ring_order({4, 4, 1}), (Points{{0, 0, 0},
                                           {1, 0, 0},
                                           {2, 0, 0},
                                           {3, 0, 0},
                                           {3, 1, 0},
                                           {2, 1, 0},
                                           {1, 1, 0},
                                           {1, 2, 0},
                                           {2, 2, 0},
                                           {3, 2, 0},
                                           {3, 3, 0},
                                           {2, 3, 0},
                                           {1, 3, 0},
                                           {0, 3, 0},
                                           {0, 2, 0},
                                           {0, 1, 0}}));
}

TEST(RingOrder, IsTheSameRingInEveryPlane) {
  EXPECT_EQ(ring_order({2, 2, 1}), (Points{{0, 0, 0}, {1, 0, 0}, {1, 1, 0}, {0, 1, 0}}));
  EXPECT_EQ(ring_order({2, 1, 2}), (Points{{0, 0, 0}, {1, 0, 0}, {1, 0, 1}, {0, 0, 1}}));
  EXPECT_EQ(ring_order({1, 2, 2}), (Points{{0, 0, 0}, {0, 1, 0}, {0, 1, 1}, {0, 0, 1}}));
}

TEST(RingOrder, AlternatesTheDirectionOfLayersAndClosesThroughTheirCorners) {
  EXPECT_EQ(
      ring_order({2, 2, 2}),
      (Points{
          {0, 0, 0}, {1, 0, 0}, {1, 1, 0}, {0, 1, 0}, {0, 1, 1}, {1, 1, 1}, {1, 0, 1}, {0, 0, 1}}));
}

TEST(RingOrder, IsARingOfNeighboursWhereAllSizesAreEven) {
  for (const Point& sizes : {Point{2, 2, 1},
                             {4, 2, 1},
                             {2, 6, 1},
                             {8, 8, 1},
                             {4, 1, 6},
                             {1, 2, 4},
                             {2, 2, 2},
                             {4, 4, 4},
                             {2, 4, 6},
                             {6, 4, 2}}) {
    const CapturedLog log;
    const Points order = ring_order(sizes);
    EXPECT_TRUE(has_every_point_once(order, sizes));
    for (std::size_t i = 0; i < order.size(); ++i) {
      EXPECT_EQ(steps_between(order[i], order[(i + 1) % order.size()]), 1) << i;
    }
    EXPECT_TRUE(log.lines().empty());
  }
}

TEST(RingOrder, IsALineAlongASingleAxis) {
  const CapturedLog log;
  EXPECT_EQ(ring_order({1, 1, 1}), (Points{{0, 0, 0}}));
  EXPECT_EQ(ring_order({4, 1, 1}), (Points{{0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {3, 0, 0}}));
  EXPECT_EQ(ring_order({1, 3, 1}), (Points{{0, 0, 0}, {0, 1, 0}, {0, 2, 0}}));
  EXPECT_EQ(ring_order({1, 1, 3}), (Points{{0, 0, 0}, {0, 0, 1}, {0, 0, 2}}));
  EXPECT_TRUE(log.lines().empty());
}

TEST(RingOrder, IsPlainWithAWarningWhereASizeIsOdd) {
  const CapturedLog log;
  EXPECT_EQ(ring_order({3, 2, 1}),
            (Points{{0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {0, 1, 0}, {1, 1, 0}, {2, 1, 0}}));
  EXPECT_EQ(log.count(log::Level::WARNING, "Odd dimension"), 1);
  EXPECT_TRUE(has_every_point_once(ring_order({2, 2, 3}), {2, 2, 3}));
  EXPECT_EQ(ring_order({2, 2, 3})[4], (Point{0, 0, 1}));
  EXPECT_EQ(log.count(log::Level::WARNING, "Odd dimension"), 3);
}

}  // namespace
}  // namespace cohort::tpu
