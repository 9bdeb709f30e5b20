#include "cohort/spmd/sharded_tensor.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/torch_compat.h"
#include "cohort/spmd/trace.h"

namespace cohort::spmd {
namespace {

constexpr const char* kUseFull =
    "a tensor that is sharded over logical devices: use cohort::spmd::full(tensor) first";

}  // namespace

ShardedTensorImpl::ShardedTensorImpl(MeshPtr mesh, LayoutPtr layout, std::vector<Tensor> tiles)
    : TensorImpl(c10::DispatchKeySet({c10::DispatchKey::CPU, kShardKey, kCompositeKey}),
                 tiles[0].dtype(), c10::Device(c10::kCPU)),
      mesh_(std::move(mesh)),
      layout_(std::move(layout)),
      tiles_(std::move(tiles)) {
  set_storage_access_should_throw();
  torch_compat::forbid_memory<TensorImpl>(*this, kUseFull);
  set_sizes_contiguous(layout_->sizes());
}

c10::intrusive_ptr<c10::TensorImpl> ShardedTensorImpl::shallow_copy_and_detach(
    const c10::VariableVersion& version, bool allow_change) const {
  auto copy = c10::make_intrusive<ShardedTensorImpl>(mesh_, layout_, tiles_);
  copy->set_sizes_and_strides(sizes(), strides());
  copy->set_storage_offset(storage_offset());
  copy->copied_view_ = copied_view_;
  if (!copy->is_inference()) copy->set_version_counter(version);
  copy->set_allow_tensor_metadata_change(allow_change);
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> ShardedTensorImpl::shallow_copy_and_detach(
    c10::VariableVersion&& version, bool allow_change) const {
  return shallow_copy_and_detach(static_cast<const c10::VariableVersion&>(version), allow_change);
}

/// For set_data: as the tiles of the other.
void ShardedTensorImpl::shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& other) {
  if (!other->key_set().has(kShardKey)) {
    throw ValueError("spmd", "a sharded tensor can't get the data of one that is not: use copy_()");
  }
  const auto* from = static_cast<const ShardedTensorImpl*>(other.get());
  TensorImpl::shallow_copy_from(other);
  mesh_ = from->mesh_;
  layout_ = from->layout_;
  tiles_ = from->tiles_;
  copied_view_ = from->copied_view_;
}

const char* ShardedTensorImpl::tensorimpl_type_name() const { return kUseFull; }

Tensor wrap(const MeshPtr& mesh, LayoutPtr layout, std::vector<Tensor> tiles) {
  return at::detail::make_tensor<ShardedTensorImpl>(mesh, std::move(layout), std::move(tiles));
}

Tensor wrap_view(const MeshPtr& mesh, LayoutPtr layout, std::vector<Tensor> tiles,
                 at::IntArrayRef strides, std::int64_t offset) {
  // In inference mode too a view of an ordinary tensor is one that autograd can follow.
  const c10::InferenceMode ordinary(false);
  Tensor view = wrap(mesh, std::move(layout), std::move(tiles));
  auto* base = view.unsafeGetTensorImpl();
  const Dims sizes(base->sizes().begin(), base->sizes().end());
  base->set_sizes_and_strides(sizes, strides);
  base->set_storage_offset(offset);
  return view;
}

namespace {

/// The part of a tensor whose element 0 is at `origin`.
Tensor part_of(Tensor tensor, const Region& region, const Dims& origin) {
  for (int d = 0; d < region.dim(); ++d) {
    const std::int64_t size = region.end[d] - region.begin[d];
    if (size == tensor.size(d)) continue;  // then it begins at the origin
    tensor = tensor.narrow(d, region.begin[d] - origin[d], size);
  }
  return tensor;
}

/// An uninitialized tensor for a region, but for what lies outside of `inside`: that is `pad`.
Tensor padded(const Region& region, const Region& inside, double pad, const Tensor& like) {
  if (inside.is_empty()) return at::full(region.sizes(), pad, like.options());
  Tensor result = at::empty(region.sizes(), like.options());
  for (int d = 0; d < region.dim(); ++d) {
    const std::int64_t before = inside.begin[d] - region.begin[d];
    const std::int64_t after = region.end[d] - inside.end[d];
    if (before > 0) result.narrow(d, 0, before).fill_(pad);
    if (after > 0) result.narrow(d, inside.end[d] - region.begin[d], after).fill_(pad);
  }
  return result;
}

Tensor fetch_plain(const Tensor& tensor, const Region& region, double pad) {
  const Region inside = intersection(region, Region::all_of(tensor.sizes()));
  if (inside == region) return part_of(tensor, region, Dims(region.dim(), 0));
  Tensor result = padded(region, inside, pad, tensor);
  if (inside.is_empty()) return result;
  part_of(result, inside, region.begin).copy_(part_of(tensor, inside, Dims(region.dim(), 0)));
  return result;
}

}  // namespace

Tensor fetch(const Tensor& tensor, const Region& region, double pad) {
  if (!is_sharded(tensor)) {
    const bool is_dense = tensor.layout() == at::kStrided;
    return fetch_plain(is_dense ? tensor : tensor.to_dense(), region, pad);
  }
  const ShardedTensorImpl& sharded = *impl(tensor);
  const Layout& layout = *sharded.layout();
  const Region inside = intersection(region, Region::all_of(layout.sizes()));
  const int here = current_logical_device();
  Tensor result;
  for (int i = 0; i < layout.tiles(); ++i) {
    const Region tile = layout.region(i);
    const Region common = intersection(inside, tile);
    if (common.is_empty() && !(common == region)) continue;
    const Tensor values = part_of(sharded.tiles()[i], common, tile.begin);
    if (layout.device(i) != here) Operation::moved(values.nbytes());
    if (common == region) return values;
    if (!result.defined()) result = padded(region, inside, pad, values);
    part_of(result, common, region.begin).copy_(values);
  }
  return result.defined() ? result : padded(region, inside, pad, sharded.tiles()[0]);
}

Tensor gather(const Tensor& tensor) {
  if (!is_sharded(tensor)) return tensor;
  const BelowAutograd below;
  return fetch(tensor, Region::all_of(tensor.sizes()));
}

std::vector<Tensor> make_tiles(Mesh& mesh, const Layout& layout, FunctionRef<Tensor(int)> tile) {
  std::vector<Tensor> tiles(layout.tiles());
  mesh.run(layout.devices(), [&](int i) { tiles[i] = tile(i); });
  return tiles;
}

Tensor reshard(const Tensor& tensor, const MeshPtr& mesh, const LayoutPtr& layout) {
  if (is_sharded(tensor) && layout_of(tensor) == *layout) return tensor;
  return wrap(mesh, layout, make_tiles(*mesh, *layout, [&](int i) {
                return fetch(tensor, layout->region(i)).contiguous();
              }));
}

void stand_for_view(const Tensor& copy, const Tensor& base, CopiedView::Read read,
                    CopiedView::Write write) {
  impl(copy)->set_copied_view(
      std::make_shared<CopiedView>(base, copy, std::move(read), std::move(write)));
}

void write_to(const Tensor& sharded, const Tensor& values) {
  const Writing writing(sharded);
  if (values.sizes() != sharded.sizes()) {
    throw InvalidArgument(
        "spmd", cat("a sharded tensor of sizes ", sharded.sizes(), " can't become one of sizes ",
                    values.sizes(), ": take cohort::spmd::full(tensor) first"));
  }
  const ShardedTensorImpl& to = *impl(sharded);
  to.mesh()->run(to.layout()->devices(),
                 [&](int i) { to.tiles()[i].copy_(fetch(values, to.layout()->region(i))); });
}

void write_once(Tensor to, Tensor from) {
  for (std::int64_t d = 0; d < to.dim(); ++d) {
    if (to.stride(d) != 0 || to.size(d) < 2) continue;
    to = to.narrow(d, 0, 1);
    from = from.narrow(d, 0, 1);
  }
  to.copy_(from);
}

void write_pieces(const Tensor& sharded, const std::vector<Piece>& pieces) {
  const Writing writing(sharded);
  const ShardedTensorImpl& to = *impl(sharded);
  std::vector<int> tiles, devices;
  for (int i = 0; i < to.layout()->tiles(); ++i) {
    const Region tile = to.layout()->region(i);
    if (std::all_of(pieces.begin(), pieces.end(), [&](const Piece& piece) {
          return intersection(tile, piece.region).is_empty();
        })) {
      continue;
    }
    tiles.push_back(i);
    devices.push_back(to.layout()->device(i));
  }
  to.mesh()->run(devices, [&](int i) {
    const Region tile = to.layout()->region(tiles[i]);
    for (const Piece& piece : pieces) {
      const Region common = intersection(tile, piece.region);
      if (common.is_empty()) continue;
      part_of(to.tiles()[tiles[i]], common, tile.begin)
          .copy_(part_of(piece.values, common, piece.region.begin));
    }
  });
}

namespace {

/// What pieces have of one tile. `may_change` tells whether it may be made in a piece's memory: its
/// part in this tile belongs to this sum alone.
Tensor sum_in_tile(const Region& tile, const std::vector<Piece>& pieces, bool may_change) {
  Tensor sum;
  for (const Piece& piece : pieces) {
    const Region common = intersection(tile, piece.region);
    if (common.is_empty()) continue;
    const Tensor values = part_of(piece.values, common, piece.region.begin);
    if (!sum.defined() && common == tile) {
      sum = may_change ? values : values.clone(at::MemoryFormat::Contiguous);
      continue;
    }
    if (!sum.defined()) sum = at::zeros(tile.sizes(), values.options());
    part_of(sum, common, tile.begin).add_(values);
  }
  return sum.defined() ? sum : at::zeros(tile.sizes(), pieces[0].values.options());
}

}  // namespace

Tensor sum_of_pieces(const MeshPtr& mesh, const LayoutPtr& layout,
                     const std::vector<Piece>& pieces) {
  return wrap(mesh, layout, make_tiles(*mesh, *layout, [&](int i) {
                return sum_in_tile(layout->region(i), pieces, false);
              }));
}

Tensor sum_of_own_pieces(const MeshPtr& mesh, const LayoutPtr& layout, std::vector<Piece> pieces) {
  return wrap(mesh, layout, make_tiles(*mesh, *layout, [&](int i) {
                return sum_in_tile(layout->region(i), pieces, true);
              }));
}

}  // namespace cohort::spmd
