#pragma once

#include <array>
#include <vector>

namespace cohort::tpu {

/// The x, y and z of a chip, or of a block of chips.
using Point = std::array<int, 3>;

/// The points of a grid in such an order that each is the neighbour of the one before, and the last
/// of the first: a ring, along which values can be passed on.
///
/// A grid of one axis has no ring; its points come in a straight line. A grid of two or three axes,
/// with an odd size among them, gets none either: its points come with x fastest and z slowest, and
/// the log has a warning. All sizes must be at least 1.
///
///     ring_order({4, 4, 1})      0 -- 1 -- 2 -- 3        x to the right, y down
///                                |              |
///                               15    6 -- 5 -- 4
///                                |    |
///                               14    7 -- 8 -- 9
///                                |              |
///                               13 - 12 - 11 - 10
std::vector<Point> ring_order(const Point& sizes);

}  // namespace cohort::tpu
