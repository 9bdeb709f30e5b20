#include "cohort/spmd/layout.h"

#include <algorithm>
#include <ostream>

#include "cohort/base/error.h"

namespace cohort::spmd {

Region Region::all_of(at::IntArrayRef sizes) {
  return {Dims(sizes.size(), 0), Dims(sizes.begin(), sizes.end())};
}

Dims Region::sizes() const {
  Dims sizes(end);
  for (std::size_t d = 0; d < sizes.size(); ++d) sizes[d] -= begin[d];
  return sizes;
}

bool Region::is_empty() const {
  for (std::size_t d = 0; d < begin.size(); ++d) {
    if (begin[d] >= end[d]) return true;
  }
  return false;
}

Region intersection(const Region& a, const Region& b) {
  Region both = a;
  for (std::size_t d = 0; d < a.begin.size(); ++d) {
    both.begin[d] = std::max(a.begin[d], b.begin[d]);
    both.end[d] = std::min(a.end[d], b.end[d]);
  }
  return both;
}

Cuts even_cuts(std::int64_t size, std::int64_t parts) {
  parts = std::max<std::int64_t>(1, std::min(parts, size));
  const std::int64_t rows = size / parts, longer = size % parts;
  Cuts cuts(parts + 1, 0);
  for (std::int64_t i = 0; i < parts; ++i) cuts[i + 1] = cuts[i] + rows + (i < longer ? 1 : 0);
  return cuts;
}

Layout::Layout(at::IntArrayRef sizes, std::vector<Cuts> cuts, std::vector<int> devices)
    : sizes_(sizes.begin(), sizes.end()), cuts_(std::move(cuts)), devices_(std::move(devices)) {
  std::size_t tiles = 1;
  for (const Cuts& each : cuts_) tiles *= each.size() - 1;
  if (cuts_.size() != sizes_.size() || tiles != devices_.size()) {
    throw RuntimeError("spmd::Layout", "there must be a device for each tile");
  }
}

Layout Layout::split(at::IntArrayRef sizes, at::IntArrayRef parts) {
  std::vector<Cuts> cuts;
  int tiles = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    cuts.push_back(even_cuts(sizes[d], parts[d]));
    tiles *= static_cast<int>(cuts.back().size()) - 1;
  }
  // A dimension that is shorter than its split leaves devices without a tile; the others keep the
  // device that they would have.
  std::vector<int> devices(tiles);
  for (int tile = 0; tile < tiles; ++tile) {
    int rest = tile, stride = 1;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      const int here = static_cast<int>(cuts[d].size()) - 1;
      devices[tile] += rest % here * stride;
      rest /= here;
      stride *= static_cast<int>(parts[d]);
    }
  }
  return {sizes, std::move(cuts), std::move(devices)};
}

Layout Layout::whole(at::IntArrayRef sizes, int device) {
  std::vector<Cuts> cuts;
  for (const std::int64_t size : sizes) cuts.push_back({0, size});
  return {sizes, std::move(cuts), {device}};
}

Dims Layout::place(int tile) const {
  Dims place(sizes_.size(), 0);
  for (int d = dim() - 1; d >= 0; --d) {
    place[d] = tile % parts(d);
    tile /= parts(d);
  }
  return place;
}

int Layout::tile_at(const Dims& place) const {
  int tile = 0;
  for (int d = 0; d < dim(); ++d) tile = tile * parts(d) + static_cast<int>(place[d]);
  return tile;
}

Region Layout::region(int tile) const {
  const Dims at = place(tile);
  Region region;
  for (int d = 0; d < dim(); ++d) {
    region.begin.push_back(cuts_[d][at[d]]);
    region.end.push_back(cuts_[d][at[d] + 1]);
  }
  return region;
}

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  out << at::IntArrayRef(layout.sizes());
  if (layout.tiles() == 1) return out << " on device " << layout.device(0);
  out << " split {";
  for (int d = 0; d < layout.dim(); ++d) out << (d ? ", " : "") << layout.parts(d);
  out << "} over devices {";
  for (int i = 0; i < layout.tiles(); ++i) out << (i ? ", " : "") << layout.device(i);
  return out << '}';
}

}  // namespace cohort::spmd
