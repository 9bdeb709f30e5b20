#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

#include "cohort/spmd/sharded_tensor.h"

namespace cohort::spmd {

/// While it lives, the large tensors that its thread makes are spread over a mesh from the start:
/// for a model that no device could hold as a whole.
///
///     const MakeInParts parts(mesh);
///     torch::nn::Linear layer(8192, 8192);  // no device has more than its part of the weight
///
/// Those are the tensors of torch::empty, zeros, ones, full, rand and randn that are dense, on the
/// CPU, of a floating point type, and have at least `least_elements`. They are cut along the
/// longest dimension. Random numbers that they are then filled with are those of a whole tensor.
/// What is computed from other tensors lies where those lie; from_blob and arange make whole ones.
/// Asking for the memory of one made in parts throws, which torch::tensor does for so many
/// elements.
///
/// The last one made counts, until it ends. One without a mesh makes whole tensors: for what must
/// be whole inside of a constructor. Belongs to one thread.
class MakeInParts {
 public:
  static constexpr std::int64_t kLeastElements = 64 * 1024;

  /// Throws RuntimeError if LibTorch, or another library, has taken the dispatch key that this
  /// uses.
  explicit MakeInParts(MeshPtr mesh, std::int64_t least_elements = kLeastElements);
  ~MakeInParts();
  MakeInParts(const MakeInParts&) = delete;
  MakeInParts& operator=(const MakeInParts&) = delete;

  const MeshPtr& mesh() const { return mesh_; }
  std::int64_t least_elements() const { return least_elements_; }

 private:
  const MeshPtr mesh_;
  const std::int64_t least_elements_;
  const MakeInParts* const outer_;
  const c10::impl::IncludeDispatchKeyGuard watches_;
};

}  // namespace cohort::spmd
