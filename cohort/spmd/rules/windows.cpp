#include "cohort/spmd/rules/windows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

namespace cohort::spmd {

Reach reach_of(const Window& window, std::int64_t in, std::int64_t out, std::int64_t begin,
               std::int64_t end) {
  if (begin == 0 && end == out) return {0, in, window.padding};
  const std::int64_t first = begin * window.stride - window.padding;
  return {first, first + (end - 1 - begin) * window.stride + window.extent()};
}

Dims for_each_dim(at::IntArrayRef values, std::int64_t dims) {
  if (values.size() == 1) return Dims(dims, values[0]);
  return {values.begin(), values.end()};
}

TaskGrid::TaskGrid(const Mesh& mesh, at::IntArrayRef sizes)
    : devices_(mesh.size()), sizes_(sizes.begin(), sizes.end()) {
  for (const std::int64_t size : sizes) cuts_.push_back({0, size});
}

void TaskGrid::cut(int dim, const Cuts& cuts) {
  const int count = static_cast<int>(cuts.size()) - 1;
  if (parts(dim) > 1 || (tasks_ > 1 && tasks_ * count > devices_)) return;
  cuts_[dim] = cuts;
  tasks_ *= count;
}

void TaskGrid::cut_like(int dim, const Cuts& cuts) {
  const std::int64_t size = sizes_[dim], from = std::max<std::int64_t>(cuts.back(), 1);
  Cuts own{0};
  for (std::size_t i = 1; i < cuts.size(); ++i) {
    const std::int64_t place = (2 * cuts[i] * size + from) / (2 * from);
    if (place > own.back()) own.push_back(place);
  }
  if (own.size() > 1) cut(dim, own);
}

void TaskGrid::cut_evenly(int dim, std::int64_t parts) { cut(dim, even_cuts(sizes_[dim], parts)); }

void TaskGrid::cut_longest(std::span<const int> dims) {
  if (tasks_ > 1) return;
  const auto is_shorter = [&](int a, int b) { return sizes_[a] < sizes_[b]; };
  cut_evenly(*std::max_element(dims.begin(), dims.end(), is_shorter), devices_);
}

/// Empty if the leader is cut in other ways.
std::vector<int> TaskGrid::devices_of(const Layout& leader, std::span<const int> dim_of) const {
  if (tasks_ == 1) return {leader.device(0)};
  if (leader.dim() != dim_of.back() + 1) return {};
  Dims parts_along(leader.dim(), 1);
  for (std::size_t d = 0; d < dim_of.size(); ++d)
    parts_along[dim_of[d]] *= parts(static_cast<int>(d));
  for (int d = 0; d < leader.dim(); ++d) {
    if (parts_along[d] != leader.parts(d)) return {};
  }
  std::vector<int> devices(tasks_);
  const Layout grid(sizes_, cuts_, devices);
  for (int task = 0; task < tasks_; ++task) {
    Dims place(leader.dim(), 0);
    const Dims own = grid.place(task);
    for (std::size_t d = 0; d < dim_of.size(); ++d) {
      place[dim_of[d]] = place[dim_of[d]] * parts(static_cast<int>(d)) + own[d];
    }
    devices[task] = leader.device(leader.tile_at(place));
  }
  return devices;
}

Layout TaskGrid::with_devices(std::span<const Tensor> tensors, std::span<const int> dim_of) const {
  for (const Tensor& tensor : tensors) {
    if (!is_sharded(tensor)) continue;
    auto devices = devices_of(layout_of(tensor), dim_of);
    if (!devices.empty()) return {sizes_, cuts_, std::move(devices)};
  }
  std::vector<int> devices(tasks_);
  for (int task = 0; task < tasks_; ++task) devices[task] = task % devices_;
  return {sizes_, cuts_, std::move(devices)};
}

bool is_any_cut(std::span<const Tensor> tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) {
    return is_sharded(tensor) && layout_of(tensor).tiles() > 1;
  });
}

LayoutPtr spread(const Mesh& mesh, at::IntArrayRef sizes) {
  const auto longest = std::max_element(sizes.begin(), sizes.end()) - sizes.begin();
  Dims parts(sizes.size(), 1);
  parts[longest] = mesh.size();
  return std::make_shared<Layout>(Layout::split(sizes, parts));
}

Tensor gradient_of(const Tensor& tensor, const MeshPtr& mesh, const Layout& tasks,
                   std::vector<Piece> pieces) {
  LayoutPtr layout = is_sharded(tensor) ? impl(tensor)->layout()
                     : tasks.tiles() > 1
                         ? spread(*mesh, tensor.sizes())
                         : std::make_shared<Layout>(Layout::whole(tensor.sizes(), tasks.device(0)));
  return sum_of_own_pieces(mesh, layout, std::move(pieces));
}

Tensor plain_sum(at::IntArrayRef sizes, const std::vector<Piece>& pieces) {
  Tensor sum;
  for (const Piece& piece : pieces) {
    if (!sum.defined() && piece.region == Region::all_of(sizes)) {
      sum = piece.values;
      continue;
    }
    if (!sum.defined()) sum = at::zeros(sizes, piece.values.options());
    fetch(sum, piece.region).add_(piece.values);
  }
  return sum;
}

}  // namespace cohort::spmd
