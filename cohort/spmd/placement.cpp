#include "cohort/spmd/placement.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <numeric>
#include <ostream>

#include "cohort/base/error.h"
#include "cohort/distribute/strategy.h"
#include "cohort/spmd/dispatch.h"

namespace cohort::spmd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Where a tensor lies: a layout of a mesh, or (null) nowhere special.
struct Place : torch::CustomClassHolder {
  Place(MeshPtr mesh, LayoutPtr layout) : mesh(std::move(mesh)), layout(std::move(layout)) {}
  static c10::intrusive_ptr<Place> of(const Tensor& tensor) {
    if (!is_sharded(tensor)) return c10::make_intrusive<Place>(nullptr, nullptr);
    return c10::make_intrusive<Place>(impl(tensor)->mesh(), impl(tensor)->layout());
  }

  const MeshPtr mesh;
  const LayoutPtr layout;
};
using PlacePtr = c10::intrusive_ptr<Place>;

Tensor moved(const Tensor& tensor, const PlacePtr& place);

/// A part of a tensor in memory of its own, so that writing to it leaves the tensor alone.
Tensor own_copy(const Tensor& tensor, const Region& region) {
  const Tensor part = fetch(tensor, region);
  bool is_view = !is_sharded(tensor) && part.is_alias_of(tensor);
  if (is_sharded(tensor)) {
    for (const Tensor& tile : impl(tensor)->tiles()) is_view |= part.is_alias_of(tile);
  }
  return is_view ? part.clone(at::MemoryFormat::Contiguous) : part;
}

/// The gradient goes to where the tensor was.
struct Move : torch::autograd::Function<Move> {
  static Tensor forward(AutogradContext* context, const Tensor& tensor, const PlacePtr& place) {
    context->saved_data["before"] = at::IValue::make_capsule(Place::of(tensor));
    const Operation operation("cohort::move");
    const BelowAutograd below;
    if (!place->layout) return own_copy(tensor, Region::all_of(tensor.sizes()));
    return wrap(place->mesh, place->layout, make_tiles(*place->mesh, *place->layout, [&](int i) {
                  return own_copy(tensor, place->layout->region(i));
                }));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto before =
        c10::static_intrusive_pointer_cast<Place>(context->saved_data["before"].toCapsule());
    if (!gradients[0].defined()) return {Tensor(), Tensor()};
    return {moved(gradients[0], before), Tensor()};
  }
};

Tensor moved(const Tensor& tensor, const PlacePtr& place) {
  const bool is_there = place->layout ? is_sharded(tensor) && layout_of(tensor) == *place->layout &&
                                            impl(tensor)->mesh() == place->mesh
                                      : !is_sharded(tensor);
  return is_there ? tensor : Move::apply(tensor, place);
}

Tensor moved(const Tensor& tensor, const MeshPtr& mesh, LayoutPtr layout) {
  require_rules();
  return moved(tensor, c10::make_intrusive<Place>(mesh, std::move(layout)));
}

}  // namespace

Tensor split(const Tensor& tensor, const MeshPtr& mesh, at::IntArrayRef parts) {
  if (static_cast<std::int64_t>(parts.size()) != tensor.dim() ||
      c10::multiply_integers(parts) > mesh->size() ||
      std::any_of(parts.begin(), parts.end(), [](std::int64_t each) { return each < 1; })) {
    throw ValueError(
        "spmd::split",
        cat("a tensor of sizes ", tensor.sizes(), " can't be split ", parts, " over ", mesh->name(),
            ": expected a number of parts for each dimension, ", mesh->size(), " in all at most"));
  }
  return moved(tensor, mesh, std::make_shared<Layout>(Layout::split(tensor.sizes(), parts)));
}

Tensor assign(const Tensor& tensor, const MeshPtr& mesh, int device) {
  if (device < 0 || device >= mesh->size()) {
    throw ValueError("spmd::assign", cat("a tensor of sizes ", tensor.sizes(),
                                         " can't be assigned to logical device ", device, ": ",
                                         mesh->name(), " are 0 to ", mesh->size() - 1));
  }
  return moved(tensor, mesh, std::make_shared<Layout>(Layout::whole(tensor.sizes(), device)));
}

Tensor redistribute(const Tensor& tensor, const MeshPtr& mesh, const LayoutPtr& layout) {
  if (layout->sizes() != dims_of(tensor.sizes())) {
    throw ValueError("spmd::redistribute", cat("the layout is for another tensor: expected sizes ",
                                               tensor.sizes(), ", got ", *layout));
  }
  return moved(tensor, mesh, layout);
}

Tensor redistribute(const Tensor& tensor, const LayoutPtr& layout) {
  if (!is_sharded(tensor)) {
    throw ValueError("spmd::redistribute", "the tensor is not sharded: name the mesh too");
  }
  return redistribute(tensor, impl(tensor)->mesh(), layout);
}

Tensor full(const Tensor& tensor) {
  return moved(tensor, c10::make_intrusive<Place>(nullptr, nullptr));
}

Tensor to_local(const Tensor& tensor, int device) {
  if (!is_sharded(tensor)) {
    throw ValueError("spmd::to_local", cat("the tensor is not sharded: ", tensor.sizes()));
  }
  const ShardedTensorImpl& sharded = *impl(tensor);
  if (device < 0 || device >= sharded.mesh()->size()) {
    throw ValueError("spmd::to_local",
                     cat("there is no logical device ", device, ": ", sharded.mesh()->name(),
                         " are 0 to ", sharded.mesh()->size() - 1));
  }
  const auto& devices = sharded.layout()->devices();
  const auto count = std::count(devices.begin(), devices.end(), device);
  if (count == 0) return {};
  if (count > 1) {
    throw ValueError("spmd::to_local", cat("device ", device, " has ", count,
                                           " tiles, expected one: ", *sharded.layout()));
  }
  return sharded.tiles()[std::find(devices.begin(), devices.end(), device) - devices.begin()];
}

Tensor from_local(const std::vector<Tensor>& tiles, const MeshPtr& mesh, at::IntArrayRef parts) {
  require_rules();
  std::int64_t count = 1;
  for (const std::int64_t each : parts) count *= each;
  if (tiles.empty() || count != static_cast<std::int64_t>(tiles.size()) || count > mesh->size() ||
      tiles[0].dim() != static_cast<std::int64_t>(parts.size())) {
    throw ValueError("spmd::from_local", cat("expected a tile for each place of a grid ", parts,
                                             ", at most ", mesh->size(), ", got ", tiles.size()));
  }
  std::vector<Cuts> cuts(parts.size(), Cuts{0});
  Dims sizes(parts.size(), 0);
  for (std::size_t d = 0; d < parts.size(); ++d) {
    std::int64_t stride = 1;
    for (std::size_t i = d + 1; i < parts.size(); ++i) stride *= parts[i];
    for (std::int64_t part = 0; part < parts[d]; ++part) {
      cuts[d].push_back(cuts[d].back() + tiles[part * stride].size(static_cast<std::int64_t>(d)));
    }
    sizes[d] = cuts[d].back();
  }
  std::vector<int> devices(tiles.size());
  std::iota(devices.begin(), devices.end(), 0);
  auto layout = std::make_shared<Layout>(sizes, std::move(cuts), std::move(devices));
  for (int i = 0; i < layout->tiles(); ++i) {
    if (tiles[i].sizes() == at::IntArrayRef(layout->region(i).sizes())) continue;
    throw ValueError("spmd::from_local",
                     cat("tile ", i, " does not fit: expected ",
                         at::IntArrayRef(layout->region(i).sizes()), ", got ", tiles[i].sizes()));
  }
  std::vector<Tensor> detached;
  for (const Tensor& tile : tiles) detached.push_back(tile.detach());
  return wrap(mesh, std::move(layout), std::move(detached));
}

std::ostream& print(std::ostream& out, const Tensor& tensor) {
  if (is_sharded(tensor))
    out << layout_of(tensor) << " of " << impl(tensor)->mesh()->name() << '\n';
  return out << full(tensor.detach());
}

}  // namespace cohort::spmd
