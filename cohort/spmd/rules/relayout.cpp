#include "cohort/spmd/rules/relayout.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>
#include <numeric>

namespace cohort::spmd {

bool is_split_along(const Tensor& x, std::int64_t dim) {
  return is_sharded(x) && x.dim() > 0 &&
         layout_of(x).parts(static_cast<int>(at::maybe_wrap_dim(dim, x.dim()))) > 1;
}

const Tensor& leader_of(std::span<const Tensor> tensors) {
  const Tensor* best = nullptr;
  const auto is_better = [&](const Tensor& each) {
    if (!best) return true;
    const bool is_cut = layout_of(each).tiles() > 1, best_is_cut = layout_of(*best).tiles() > 1;
    return is_cut != best_is_cut ? is_cut : each.numel() > best->numel();
  };
  for (const Tensor& each : tensors) {
    if (is_sharded(each) && is_better(each)) best = &each;
  }
  return *best;
}

LayoutPtr layout_like(const Layout& like, at::IntArrayRef sizes) {
  std::vector<Cuts> cuts;
  int tiles = 1;
  for (int d = 0; d < like.dim(); ++d) {
    const bool is_same = sizes[d] == like.sizes()[d];
    cuts.push_back(is_same ? like.cuts(d) : even_cuts(sizes[d], like.parts(d)));
    tiles *= static_cast<int>(cuts.back().size()) - 1;
  }
  const Layout shape(sizes, cuts, std::vector<int>(tiles, 0));
  std::vector<int> devices;
  for (int i = 0; i < tiles; ++i) devices.push_back(like.device(like.tile_at(shape.place(i))));
  return std::make_shared<Layout>(sizes, std::move(cuts), std::move(devices));
}

LayoutPtr layout_along(std::int64_t dim, at::IntArrayRef sizes, const Tensor& leader) {
  const Layout& layout = layout_of(leader);
  if (layout.tiles() == 1 || sizes.empty()) {
    return std::make_shared<Layout>(Layout::whole(sizes, layout.device(0)));
  }
  std::vector<std::int64_t> parts(sizes.size(), 1);
  parts[dim] = impl(leader)->mesh()->size();
  return std::make_shared<Layout>(Layout::split(sizes, parts));
}

Tensor laid_out_like(const Tensor& like, at::IntArrayRef sizes,
                     FunctionRef<Tensor(const Region&)> tile) {
  const MeshPtr& mesh = impl(like)->mesh();
  const LayoutPtr layout = layout_like(layout_of(like), sizes);
  return wrap(mesh, layout,
              make_tiles(*mesh, *layout, [&](int i) { return tile(layout->region(i)); }));
}

LayoutPtr layout_in_rows(const Tensor& leader, at::IntArrayRef sizes) {
  std::int64_t first = 0;
  while (first + 1 < static_cast<std::int64_t>(sizes.size()) && sizes[first] == 1) ++first;
  return layout_along(first, sizes, leader);
}

Tensor flat(const Tensor& x) {
  if (!is_sharded(x)) return x.reshape({-1});
  const Tensor own = x.contiguous();
  return at::_unsafe_view(reshard(own, impl(x)->mesh(), layout_in_rows(x, x.sizes())), {-1});
}

Following& Following::after(const Tensor& x, std::span<const int> dims) {
  if (!is_sharded(x)) return *this;
  const Layout& own = layout_of(x);
  const int devices = impl(x)->mesh()->size();
  if (!leader_) leader_ = impl(x);
  most_tiles_ = std::max(most_tiles_, own.tiles());
  for (int d = 0; d < own.dim(); ++d) {
    const int to = dims[d], parts = own.parts(d);
    if (to < 0 || parts == 1 || sizes_[to] != own.sizes()[d]) continue;
    if (cuts_[to].size() > 2 || (tiles_ > 1 && tiles_ * parts > devices)) continue;
    if (tiles_ == 1) leader_ = impl(x);
    is_mixed_ |= leader_ != impl(x);
    cuts_[to] = own.cuts(d);
    tiles_ *= parts;
  }
  return *this;
}

LayoutPtr Following::layout() const {
  if (!leader_) return nullptr;
  const int devices = leader_->mesh()->size();
  if (tiles_ == 1 && most_tiles_ == 1) {
    return std::make_shared<Layout>(Layout::whole(sizes_, leader_->layout()->device(0)));
  }
  std::vector<Cuts> cuts = cuts_;
  int tiles = tiles_;
  if (tiles == 1 && !sizes_.empty()) {
    const auto longest = std::max_element(sizes_.begin(), sizes_.end()) - sizes_.begin();
    cuts[longest] = even_cuts(sizes_[longest], devices);
    tiles = static_cast<int>(cuts[longest].size()) - 1;
  }
  const bool follows = tiles_ > 1 && !is_mixed_ && leader_->layout()->tiles() == tiles;
  std::vector<int> owners(tiles);
  for (int i = 0; i < tiles; ++i) owners[i] = follows ? leader_->layout()->device(i) : i % devices;
  return std::make_shared<Layout>(sizes_, std::move(cuts), std::move(owners));
}

std::string letters_of(std::int64_t dims) {
  std::string letters(dims, 'a');
  std::iota(letters.begin(), letters.end(), 'a');
  return letters;
}

std::string letters_but(const Tensor& x, std::int64_t dim) {
  std::string letters = letters_of(x.dim());
  if (x.dim() > 0) letters[at::maybe_wrap_dim(dim, x.dim())] = '*';
  return letters;
}

Tensor fetch_copy(const Tensor& tensor, const Region& region, double pad) {
  const Tensor part = fetch(tensor, region, pad);
  const bool is_own = part.use_count() == 1 && part.storage().use_count() == 1;
  return is_own ? part : part.clone(at::MemoryFormat::Contiguous);
}

}  // namespace cohort::spmd
