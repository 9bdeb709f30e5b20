#pragma once

#include <span>
#include <vector>

#include "cohort/spmd/dispatch.h"

/// Operations that look at windows of their input: convolution and pooling.
namespace cohort::spmd {

/// How windows move along one dimension.
struct Window {
  std::int64_t kernel, stride, padding, dilation;

  /// How far it reaches, in elements of the input.
  std::int64_t extent() const { return dilation * (kernel - 1) + 1; }
};

/// What a task reads of one dimension, beyond the input where that is padded, and what the
/// operation has to pad or to cut off itself, on both sides.
struct Reach {
  std::int64_t begin, end;
  std::int64_t padding = 0;
  std::int64_t output_padding = 0;  // of a transposed convolution: cut off less at the end
};

/// For the outputs [begin, end) of `out`, of `in` inputs.
Reach reach_of(const Window& window, std::int64_t in, std::int64_t out, std::int64_t begin,
               std::int64_t end);

/// A list of options, one for each dimension or one for all.
Dims for_each_dim(at::IntArrayRef values, std::int64_t dims);

/// Where tasks are cut: each of its dimensions in parts, as long as there are devices for more.
class TaskGrid {
 public:
  TaskGrid(const Mesh& mesh, at::IntArrayRef sizes);

  int parts(int dim) const { return static_cast<int>(cuts_[dim].size()) - 1; }
  int tasks() const { return tasks_; }

  /// Cuts a dimension here, unless it is cut already or there are too few devices.
  void cut(int dim, const Cuts& cuts);
  /// Cuts it near the places at which another one, which it goes along with, is cut.
  void cut_like(int dim, const Cuts& cuts);
  void cut_evenly(int dim, std::int64_t parts);
  /// Cuts the longest of some dimensions, if there is only one task yet.
  void cut_longest(std::span<const int> dims);

  /// With a device for each task: that of the same tile of the first tensor that is cut like this.
  /// Dimension d of the grid goes along dimension `dim_of[d]` of such a tensor. One task runs where
  /// the first tensor lies.
  Layout with_devices(std::span<const Tensor> tensors, std::span<const int> dim_of) const;

 private:
  std::vector<int> devices_of(const Layout& leader, std::span<const int> dim_of) const;

  const int devices_;
  const Dims sizes_;
  std::vector<Cuts> cuts_;
  int tasks_ = 1;
};

/// Whether any of the tensors has several tiles.
bool is_any_cut(std::span<const Tensor> tensors);

/// The longest dimension cut evenly over all devices.
LayoutPtr spread(const Mesh& mesh, at::IntArrayRef sizes);

/// The gradient of a tensor, of pieces that tasks computed, in its layout. That of an ordinary one
/// is spread over the devices if several tasks made it.
Tensor gradient_of(const Tensor& tensor, const MeshPtr& mesh, const Layout& tasks,
                   std::vector<Piece> pieces);

/// The sum of pieces as an ordinary tensor, added in their order. Changes their values.
Tensor plain_sum(at::IntArrayRef sizes, const std::vector<Piece>& pieces);

}  // namespace cohort::spmd
