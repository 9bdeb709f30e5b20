#include "cohort/tpu/ring_order.h"

#include <algorithm>
#include <utility>

#include "cohort/base/log.h"

namespace cohort::tpu {
namespace {

/// Every point, x fastest and z slowest.
std::vector<Point> plain_order(const Point& sizes) {
  std::vector<Point> order;
  for (int z = 0; z < sizes[2]; ++z) {
    for (int y = 0; y < sizes[1]; ++y) {
      for (int x = 0; x < sizes[0]; ++x) order.push_back({x, y, z});
    }
  }
  return order;
}

/// The column and the row of every point of a layer but its corner (0, 0), from one neighbour of
/// the corner to the other: a snake through the rows that leaves column 0 free, and column 0 back.
std::vector<std::pair<int, int>> around_the_corner(int columns, int rows) {
  std::vector<std::pair<int, int>> order;
  for (int row = 0; row < rows; ++row) {
    for (int i = 1; i < columns; ++i) order.emplace_back(row % 2 == 0 ? i : columns - i, row);
  }
  for (int row = rows - 1; row > 0; --row) order.emplace_back(0, row);
  return order;
}

/// The ring of a flat grid, whose axes of more than one point are these two.
std::vector<Point> ring_of_layer(const Point& sizes, int column_axis, int row_axis) {
  std::vector<Point> order{{0, 0, 0}};
  for (const auto& [column, row] : around_the_corner(sizes[column_axis], sizes[row_axis])) {
    order.push_back({0, 0, 0});
    order.back()[column_axis] = column;
    order.back()[row_axis] = row;
  }
  return order;
}

/// Goes around the corner of each layer, forwards and backwards in turn, so that one ends where the
/// next begins, and comes back through the corners.
std::vector<Point> ring_of_layers(const Point& sizes) {
  auto layer = around_the_corner(sizes[0], sizes[1]);
  std::vector<Point> order{{0, 0, 0}};
  for (int z = 0; z < sizes[2]; ++z) {
    for (const auto& [x, y] : layer) order.push_back({x, y, z});
    std::ranges::reverse(layer);
  }
  for (int z = sizes[2] - 1; z > 0; --z) order.push_back({0, 0, z});
  return order;
}

}  // namespace

std::vector<Point> ring_order(const Point& sizes) {
  std::vector<int> axes;  // with more than one point
  for (int axis = 0; axis < 3; ++axis) {
    if (sizes[axis] > 1) axes.push_back(axis);
  }
  if (axes.size() < 2) return plain_order(sizes);
  if (std::ranges::any_of(axes, [&](int axis) { return sizes[axis] % 2 != 0; })) {
    log::warning("Odd dimension: a grid of ", sizes[0], 'x', sizes[1], 'x', sizes[2],
                 " has no ring that Cohort knows, so its devices are taken row by row");
    return plain_order(sizes);
  }
  return axes.size() == 2 ? ring_of_layer(sizes, axes[0], axes[1]) : ring_of_layers(sizes);
}

}  // namespace cohort::tpu
