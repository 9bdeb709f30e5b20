#include "cohort/optim/replica_gradients.h"

#include <ATen/ATen.h>

#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/whole_tensor.h"
#include "cohort/optim/write_count.h"
#include "cohort/spmd/placement.h"
#include "cohort/spmd/sharded_tensor.h"

namespace cohort {

using Sharing = LeafGradient::Sharing;

ReplicaGradients::ReplicaGradients(const std::vector<at::Tensor>& parameters,
                                   const std::vector<std::string>& names)
    : names_(names) {
  for (const at::Tensor& parameter : parameters) entries_.push_back({&LeafGradient::of(parameter)});
}

namespace {

/// Without a graph, and without conjugation or negation that is yet to be done.
at::Tensor plain(at::Tensor gradient) {
  if (!gradient.defined()) return gradient;
  if (gradient.requires_grad()) gradient = gradient.detach();
  return resolved(gradient);
}

/// In memory that no other tensor sees, but for `holders` that will let go of it. Autograd may hand
/// over a gradient that shares its memory with another parameter's: those of `a` and `b` in
/// `a.view(-1) + b`.
at::Tensor of_its_own(at::Tensor gradient, std::size_t holders = 0) {
  gradient = plain(std::move(gradient));
  if (!gradient.defined() || gradient.is_sparse() || spmd::is_sharded(gradient)) return gradient;
  const bool is_shared = gradient.use_count() > 1 || gradient.storage().use_count() > 1 + holders;
  return is_shared ? gradient.clone() : gradient;
}

/// How many tensors that nobody else has hold the gradient's memory in what autograd handed over:
/// `incoming` itself, and the tensor that it is a view of.
std::size_t holders_in(const at::Tensor& incoming, const at::Tensor& gradient) {
  const bool is_same_memory = incoming.defined() && incoming.has_storage() &&
                              gradient.has_storage() &&
                              incoming.storage().is_alias_of(gradient.storage());
  if (!is_same_memory) return 0;
  return incoming.is_view() && incoming._base().use_count() == 1 ? 2 : 1;
}

}  // namespace

void ReplicaGradients::before_accumulation(int parameter, bool is_summed) {
  Entry& entry = entries_[parameter];
  if (entry.is_in_pass) return;
  forget_if_cleared(parameter);
  if (entry.content == Content::MIXED) {
    entry.leaf->set(take_from_mixed(entry, parameter), Sharing::OWN);
  } else if (entry.content != Content::GATHERED && is_summed) {
    entry.base = plain(entry.leaf->take());
  } else if (entry.content != Content::GATHERED) {
    begin_gathering(entry, parameter);
  }
  entry.is_in_pass = is_summed;
}

/// Gradients gather on top of what is there, unless that is nothing.
void ReplicaGradients::begin_gathering(Entry& entry, int parameter) {
  at::Tensor there = entry.leaf->take();
  entry.content = Content::GATHERED;
  const at::NoGradGuard no_grad;
  if (!there.defined() || is_zero_gradient(there)) return;
  entry.content = Content::MIXED;
  mixed_[parameter].base = std::move(there);
}

at::Tensor ReplicaGradients::after_accumulation(int parameter, bool is_summed,
                                                const at::Tensor& incoming) {
  Entry& entry = entries_[parameter];
  if (is_summed) {
    at::Tensor gradient = entry.leaf->take();
    const std::size_t holders = holders_in(incoming, gradient);
    return of_its_own(std::move(gradient), holders);
  }
  if (entry.content == Content::MIXED) {
    show_mixed(entry, parameter);
  } else {
    entry.leaf->remember();
  }
  return {};
}

void ReplicaGradients::show_mixed(Entry& entry, int parameter) {
  const at::NoGradGuard no_grad;
  Mixed& mixed = mixed_[parameter];
  mixed.gathered = entry.leaf->take();
  mixed.shown = mixed.base + mixed.gathered;
  mixed.writes = write_count(mixed.shown);
  entry.leaf->set(mixed.shown, Sharing::OWN);
}

bool ReplicaGradients::forget_if_cleared(int parameter) {
  Entry& entry = entries_[parameter];
  if (entry.content == Content::PUT || entry.is_in_pass) return false;
  const bool is_cleared =
      entry.content == Content::MIXED ? is_mixed_cleared(parameter) : entry.leaf->is_cleared();
  if (!is_cleared) return false;
  mixed_.erase(parameter);
  entry.content = Content::PUT;
  return true;
}

/// Any other change is refused here, so that zeros can mean nothing else.
bool ReplicaGradients::is_mixed_cleared(int parameter) {
  const LeafGradient& leaf = *entries_[parameter].leaf;
  const Mixed& mixed = mixed_[parameter];
  if (!mixed.shown.defined()) return false;  // a pass inside `no_sync` has thrown in the middle
  if (leaf.is_cleared()) return true;
  const at::Tensor& there = leaf.peek();
  const bool is_changed = !there.is_same(mixed.shown) || write_count(there) != mixed.writes;
  return is_changed && is_zero_gradient(there);
}

void ReplicaGradients::put_back(int parameter) {
  Entry& entry = entries_[parameter];
  entry.leaf->set(std::exchange(entry.base, at::Tensor()), Sharing::SHARED);
  entry.is_in_pass = false;
}

at::Tensor ReplicaGradients::take_gathered(int parameter) {
  Entry& entry = entries_[parameter];
  if (entry.is_in_pass) return {};
  forget_if_cleared(parameter);
  if (entry.content != Content::GATHERED && entry.content != Content::MIXED) return {};
  before_accumulation(parameter, /*is_summed=*/true);
  at::Tensor gathered = of_its_own(entry.leaf->take());
  if (gathered.defined()) return gathered;
  put_back(parameter);  // the program has cleared it
  entry.content = Content::PUT;
  return {};
}

/// What has gathered on top of something else, which becomes the base again.
at::Tensor ReplicaGradients::take_from_mixed(Entry& entry, int parameter) {
  Mixed& mixed = mixed_[parameter];
  const at::Tensor& there = entry.leaf->peek();
  const bool is_changed =
      mixed.shown.defined() && (!there.is_same(mixed.shown) || write_count(there) != mixed.writes);
  if (is_changed) {
    throw RuntimeError("backward",
                       cat("the gradient of ", name(parameter),
                           " was changed by hand between passes inside no_sync, on top of a sum "
                           "over replicas: what is the replica's own in it can't be told any more; "
                           "call zero_grad() or step() before no_sync, or change it afterwards"));
  }
  mixed.shown = at::Tensor();
  entry.base = mixed.base;
  return std::move(mixed.gathered);
}

at::Tensor ReplicaGradients::take_unsummed(int parameter) {
  Entry& entry = entries_[parameter];
  forget_if_cleared(parameter);
  switch (entry.content) {
    case Content::SUM:
      return {};
    case Content::APPLIED:
      return entry.leaf->is_replaced() ? of_its_own(entry.leaf->take()) : at::Tensor();
    case Content::MIXED: {
      at::Tensor gathered = take_from_mixed(entry, parameter);
      entry.leaf->take();
      return gathered;
    }
    default:
      return entry.leaf->peek().defined() ? of_its_own(entry.leaf->take()) : at::Tensor();
  }
}

void ReplicaGradients::set_sum(int parameter, const at::Tensor& sum, Sharing sharing) {
  Entry& entry = entries_[parameter];
  entry.leaf->set(sum, sharing);
  entry.base = at::Tensor();
  entry.is_in_pass = false;
  if (entry.content == Content::MIXED) mixed_.erase(parameter);
  entry.content = Content::SUM;
}

void ReplicaGradients::forget_pass() {
  for (Entry& entry : entries_) {
    if (!entry.is_in_pass) continue;
    const bool had_gathered = entry.content == Content::GATHERED || entry.content == Content::MIXED;
    if (had_gathered) entry.content = entry.base.defined() ? Content::SUM : Content::PUT;
    entry.leaf->set(std::exchange(entry.base, at::Tensor()), Sharing::SHARED);
    entry.is_in_pass = false;
  }
}

void ReplicaGradients::drop_sums() {
  for (int p = 0; p < size(); ++p) {
    Entry& entry = entries_[p];
    forget_if_cleared(p);
    const bool is_sum = entry.content == Content::SUM ||
                        (entry.content == Content::APPLIED && !entry.leaf->is_replaced());
    if (is_sum) entry.leaf->take();
  }
}

void ReplicaGradients::note_step() {
  for (Entry& entry : entries_) {
    if (!entry.leaf->peek().defined()) continue;
    entry.content = Content::APPLIED;
    entry.leaf->remember();
  }
}

void ReplicaGradients::zero(bool set_to_none) {
  mixed_.clear();
  for (Entry& entry : entries_) {
    entry.content = Content::PUT;
    entry.base = at::Tensor();
    entry.leaf->zero(set_to_none);
  }
}

void ReplicaGradients::clear(int parameter, bool set_to_none) {
  Entry& entry = entries_[parameter];
  forget_if_cleared(parameter);
  if (entry.content == Content::PUT) return;
  mixed_.erase(parameter);
  entry.content = Content::PUT;
  entry.base = at::Tensor();
  entry.leaf->zero(set_to_none);
}

}  // namespace cohort
