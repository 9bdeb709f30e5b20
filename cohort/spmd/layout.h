#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

/// Tensors that are spread over the logical devices of one replica.
namespace cohort::spmd {

using Dims = c10::SmallVector<std::int64_t, 5>;
inline Dims dims_of(at::IntArrayRef values) { return {values.begin(), values.end()}; }

/// A box of a tensor: indices [begin, end) of each dimension. It may reach beyond the tensor, where
/// an operation pads.
struct Region {
  Dims begin, end;

  static Region all_of(at::IntArrayRef sizes);
  int dim() const { return static_cast<int>(begin.size()); }
  Dims sizes() const;
  bool is_empty() const;

  friend bool operator==(const Region& a, const Region& b) {
    return a.begin == b.begin && a.end == b.end;
  }
};

/// What both have in common; empty where they do not touch.
Region intersection(const Region& a, const Region& b);

/// The places at which one dimension is cut: 0, …, its size. Ascending.
using Cuts = std::vector<std::int64_t>;

/// Cuts into `parts` that differ by at most one, the longer ones first; never more than elements.
Cuts even_cuts(std::int64_t size, std::int64_t parts);

/// How a tensor is cut into tiles, and which logical device has which: the product of cuts of its
/// dimensions, tiles numbered with the last dimension fastest. Immutable.
class Layout {
 public:
  Layout(at::IntArrayRef sizes, std::vector<Cuts> cuts, std::vector<int> devices);

  /// Dimension d in `parts[d]` parts; tile i on device i.
  static Layout split(at::IntArrayRef sizes, at::IntArrayRef parts);
  /// One tile.
  static Layout whole(at::IntArrayRef sizes, int device);

  int dim() const { return static_cast<int>(sizes_.size()); }
  const Dims& sizes() const { return sizes_; }
  const Cuts& cuts(int dim) const { return cuts_[dim]; }
  const std::vector<Cuts>& cuts() const { return cuts_; }
  int parts(int dim) const { return static_cast<int>(cuts_[dim].size()) - 1; }
  int tiles() const { return static_cast<int>(devices_.size()); }
  int device(int tile) const { return devices_[tile]; }
  const std::vector<int>& devices() const { return devices_; }

  /// The part in each dimension that a tile is, and the other way round.
  Dims place(int tile) const;
  int tile_at(const Dims& place) const;
  Region region(int tile) const;

  friend bool operator==(const Layout& a, const Layout& b) {
    return a.sizes_ == b.sizes_ && a.cuts_ == b.cuts_ && a.devices_ == b.devices_;
  }
  /// "[8, 32] split {2, 1} over devices {0, 1}".
  friend std::ostream& operator<<(std::ostream& out, const Layout& layout);

 private:
  Dims sizes_;
  std::vector<Cuts> cuts_;  // of each dimension
  std::vector<int> devices_;
};

/// Tensors of one shape, one after the other through a network, share it.
using LayoutPtr = std::shared_ptr<const Layout>;

}  // namespace cohort::spmd
