#pragma once

#include <vector>

#include "cohort/spmd/dispatch.h"

/// Elements chosen by lists of indices, one list for each of some dimensions: x[i, :, j].
namespace cohort::spmd {

/// x[indices], taken apart. The indices are broadcast to one shape, whose dimensions take the place
/// of the indexed ones: the first one's if they are neighbours, else they come first.
struct Selection {
  Dims sizes;                   // of x
  std::vector<Tensor> indices;  // of each dimension; undefined for one that is taken whole
  Dims shape;                   // of the indices
  int at = 0;                   // the dimension of the result at which that begins
  Dims result;                  // the sizes of the result
  std::vector<int> result_dim;  // for each dimension of x; -1 for an indexed one
  bool from_the_end = true;     // negative indices count from there; else they are errors

  Selection(at::IntArrayRef x_sizes, std::vector<Tensor> given);

  int dims() const { return static_cast<int>(shape.size()); }
  bool is_indexed(int d) const { return result_dim[d] < 0; }

  /// The dimensions of the result that an index's, or the values to be written, go along.
  std::vector<int> dims_of_index(const Tensor& index) const;
  std::vector<int> dims_of_values(const Tensor& values) const;
};

/// x[:, …, index, :, …], with any number of dimensions in the index.
Selection along_dimension(at::IntArrayRef sizes, std::int64_t dim, const Tensor& index,
                          bool from_the_end = false);

/// An index of one dimension, also where it has none.
Tensor as_list_of_indices(const Tensor& index);

/// True at the indices of one dimension, with as many dimensions as x. An ordinary tensor.
Tensor mask_of(const Tensor& x, std::int64_t dim, const Tensor& index);

/// The elements. Each device looks its indices up in one tile of the tensor after the other.
Tensor read_elements(const char* name, const Tensor& x, const Selection& selection);

/// The tensor with values written to the elements, or added to them; a new one, or itself. Each
/// device goes through all indices, and takes those that fall into its own tile: what is added to
/// an element is added in the same order as without tiles.
Tensor write_elements(const char* name, const Tensor& x, const Selection& selection,
                      const Tensor& values, bool accumulate);
void write_elements_in_place(const char* name, const Tensor& x, const Selection& selection,
                             const Tensor& values, bool accumulate);

/// A tensor whose tile i is start(i), with the values written to it.
Tensor written(const MeshPtr& mesh, const LayoutPtr& layout, const Selection& selection,
               Tensor values, bool accumulate, FunctionRef<Tensor(const Region&)> start);

/// The layout in which a tensor that is not sharded is written to.
LayoutPtr layout_for(const Selection& selection, const Tensor& values);

/// The mesh of all that takes part; null if nothing is sharded.
MeshPtr mesh_of(const char* name, const Tensor& x, const Selection& selection,
                const Tensor& values);

}  // namespace cohort::spmd
