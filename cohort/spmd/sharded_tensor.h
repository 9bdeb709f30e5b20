#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <memory>
#include <vector>

#include "cohort/spmd/copied_view.h"
#include "cohort/spmd/layout.h"
#include "cohort/spmd/mesh.h"

namespace cohort::spmd {

using at::Tensor;
using MeshPtr = std::shared_ptr<Mesh>;

/// The dispatch key of sharded tensors: below autograd, above all that computes. LibTorch 1.13 does
/// not use it; 2.15 has begun to, for tensors without data. Nothing else names it.
constexpr auto kShardKey = c10::DispatchKey::Fake;

/// A second one, above autograd, where some operations are taken apart. LibTorch keeps it for
/// wrappers of tensors.
constexpr auto kCompositeKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

/// What a sharded tensor is: its tiles, and where they lie. It has no memory of its own.
///
/// Autograd above sees an ordinary tensor of the full sizes on the CPU; every operation arrives at
/// `kShardKey`, where a rule runs it tile by tile, or where it is gathered.
class ShardedTensorImpl : public c10::TensorImpl {
 public:
  ShardedTensorImpl(MeshPtr mesh, LayoutPtr layout, std::vector<Tensor> tiles);

  const MeshPtr& mesh() const { return mesh_; }
  const LayoutPtr& layout() const { return layout_; }
  const std::vector<Tensor>& tiles() const {
    if (copied_view_) copied_view_->refresh();
    return tiles_;
  }

  /// Of a copy that stands for a view, or a view of one; else null. Whoever writes to the tiles is
  /// `Writing`.
  const std::shared_ptr<CopiedView>& copied_view() const { return copied_view_; }
  void set_copied_view(std::shared_ptr<CopiedView> view) { copied_view_ = std::move(view); }

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& other) override;

 private:
  const char* tensorimpl_type_name() const override;

  MeshPtr mesh_;
  LayoutPtr layout_;
  std::vector<Tensor> tiles_;
  std::shared_ptr<CopiedView> copied_view_;
};

inline bool is_sharded(const Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->key_set().has(kShardKey);
}
inline ShardedTensorImpl* impl(const Tensor& tensor) {
  return static_cast<ShardedTensorImpl*>(tensor.unsafeGetTensorImpl());
}
inline const Layout& layout_of(const Tensor& sharded) { return *impl(sharded)->layout(); }

/// A tensor of these tiles.
Tensor wrap(const MeshPtr& mesh, LayoutPtr layout, std::vector<Tensor> tiles);

/// The same for a view: with the strides and offset that the view of an ordinary tensor would have,
/// from which autograd works out what was changed in place.
Tensor wrap_view(const MeshPtr& mesh, LayoutPtr layout, std::vector<Tensor> tiles,
                 at::IntArrayRef strides, std::int64_t offset);

/// Any part of a tensor, sharded or not, as one tensor: a view where it lies in one tile, else a
/// copy, as of sparse ones. What lies outside of the tensor is `pad`.
Tensor fetch(const Tensor& tensor, const Region& region, double pad = 0);

/// All of it; a tensor that is not sharded as it is.
Tensor gather(const Tensor& tensor);

/// A tensor, sharded or not, in this layout. Tiles that lie there already are shared.
Tensor reshard(const Tensor& tensor, const MeshPtr& mesh, const LayoutPtr& layout);

/// Makes a copy stand for a view of `base`: see CopiedView.
void stand_for_view(const Tensor& copy, const Tensor& base, CopiedView::Read read,
                    CopiedView::Write write);

/// Copies a tensor, sharded or not, into the tiles of a sharded one of the same sizes.
void write_to(const Tensor& sharded, const Tensor& values);

/// Copies into an ordinary tensor that may be expanded: what stands for many elements is written
/// once.
void write_once(Tensor to, Tensor from);

/// A part of a tensor that somebody computed.
struct Piece {
  Region region;
  Tensor values;
};
/// Copies pieces into the tiles of a sharded tensor. Devices without a part in them are left alone.
void write_pieces(const Tensor& sharded, const std::vector<Piece>& pieces);
/// The sum of pieces, which may overlap and reach beyond the tensor: added in their order.
Tensor sum_of_pieces(const MeshPtr& mesh, const LayoutPtr& layout,
                     const std::vector<Piece>& pieces);
/// The same for values that nobody else has: the sum may be made in their memory.
Tensor sum_of_own_pieces(const MeshPtr& mesh, const LayoutPtr& layout, std::vector<Piece> pieces);

/// tile(i) for each tile of the layout, on its device.
std::vector<Tensor> make_tiles(Mesh& mesh, const Layout& layout, FunctionRef<Tensor(int)> tile);

}  // namespace cohort::spmd
