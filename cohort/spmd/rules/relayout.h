#pragma once

#include <span>
#include <string>
#include <vector>

#include "cohort/spmd/sharded_tensor.h"

/// What several rules ask about layouts.
namespace cohort::spmd {

/// A tensor is cut along a dimension, which may count from the end.
bool is_split_along(const Tensor& x, std::int64_t dim);

/// The sharded tensor that a result follows: the largest one that is cut, else the largest one.
/// There must be one.
const Tensor& leader_of(std::span<const Tensor> tensors);

/// As another layout cuts as many dimensions, over the same devices. A dimension of another size is
/// cut evenly, into as many parts.
LayoutPtr layout_like(const Layout& like, at::IntArrayRef sizes);

/// One dimension in a part for each device; whole where the leader lies on one device.
LayoutPtr layout_along(std::int64_t dim, at::IntArrayRef sizes, const Tensor& leader);

/// A tensor of these sizes, laid out like another: tile(region) is the part of it.
Tensor laid_out_like(const Tensor& like, at::IntArrayRef sizes,
                     FunctionRef<Tensor(const Region&)> tile);

/// A layout in which one tile comes after the other in the order of elements.
LayoutPtr layout_in_rows(const Tensor& leader, at::IntArrayRef sizes);

/// All elements of a tensor, sharded or not, in their order.
Tensor flat(const Tensor& x);

/// How a result is cut that follows several tensors, the most important one first: as long as there
/// are devices for more tiles.
class Following {
 public:
  explicit Following(at::IntArrayRef sizes) : sizes_(sizes.begin(), sizes.end()) {
    for (const std::int64_t size : sizes) cuts_.push_back({0, size});
  }

  /// Cuts as a tensor is cut; one that is not sharded says nothing. `dims` are the dimensions of
  /// the result that go with the tensor's, -1 for none.
  Following& after(const Tensor& x, std::span<const int> dims);

  /// If tensors are cut where the result can't be, its longest dimension is cut. Null if there was
  /// no sharded tensor.
  LayoutPtr layout() const;

 private:
  Dims sizes_;
  std::vector<Cuts> cuts_;
  int tiles_ = 1;
  const ShardedTensorImpl* leader_ = nullptr;  // all cuts are its own, if there are any
  bool is_mixed_ = false;                      // or not
  int most_tiles_ = 1;                         // of a tensor
};

/// Letters of the dimensions for Partition: "abc". Those of `x` but one: "a*c".
std::string letters_of(std::int64_t dims);
std::string letters_but(const Tensor& x, std::int64_t dim);

/// Like fetch(), but never a view.
Tensor fetch_copy(const Tensor& tensor, const Region& region, double pad = 0);

}  // namespace cohort::spmd
