#include "cohort/optim/leaf_gradient.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "cohort/optim/write_count.h"
#include "cohort/spmd/sharded_tensor.h"

namespace cohort {

namespace {

/// What newer LibTorches keep in the record too.
template <class Meta>
void move_newer_members(Meta& from, Meta& to) {
  if constexpr (requires { from.post_acc_grad_hooks_; }) {
    to.post_acc_grad_hooks_ = std::move(from.post_acc_grad_hooks_);
  }
  if constexpr (requires { from.grad_dtype_; }) to.grad_dtype_ = from.grad_dtype_;
  if constexpr (requires { from.allow_grad_dtype_mismatch_; }) {
    to.allow_grad_dtype_mismatch_ = from.allow_grad_dtype_mismatch_;
  }
}

/// Null for sparse tensors. One that is spread over devices is known by its first tile.
c10::intrusive_ptr<c10::StorageImpl> memory_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  if (spmd::is_sharded(tensor)) return memory_of(spmd::impl(tensor)->tiles()[0]);
  if (!tensor.has_storage()) return {};
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
      tensor.storage().unsafeGetStorageImpl());
}

}  // namespace

LeafGradient::Seen::Seen(const at::Tensor& gradient)
    : tensor(gradient.getIntrusivePtr()),
      memory(memory_of(gradient)),
      writes(write_count(gradient)) {}

bool LeafGradient::Seen::is(const at::Tensor& gradient) const {
  return tensor._unsafe_get_target() == gradient.unsafeGetTensorImpl();
}

/// Whether the gradient is what LibTorch's zero_grad makes of what was seen. Of a sparse one it
/// leaves nothing but the count of writes.
bool LeafGradient::Seen::is_zeroed_as(const at::Tensor& gradient) const {
  if (is(gradient) || write_count(gradient) <= writes) return false;
  if (!gradient.is_sparse()) {
    const auto now = memory_of(gradient);
    if (!now || now.get() != memory._unsafe_get_target()) return false;
  }
  return is_zero_gradient(gradient);
}

/// Takes over what the parameter's record holds: hooks, the accumulator, the gradient.
LeafGradient::LeafGradient(torch::autograd::AutogradMeta* before) : seen_(at::Tensor()) {
  if (!before) return;
  name_ = std::move(before->name_);
  grad_ = std::move(before->grad_);
  grad_accumulator_ = std::move(before->grad_accumulator_);
  hooks_ = std::move(before->hooks_);
  cpp_hooks_list_ = std::move(before->cpp_hooks_list_);
  requires_grad_ = before->requires_grad_;
  move_newer_members<torch::autograd::AutogradMeta>(*before, *this);
  remember();
}

LeafGradient& LeafGradient::of(const at::Tensor& parameter) {
  auto* const before = torch::autograd::impl::get_autograd_meta(parameter);
  if (auto* const own = dynamic_cast<LeafGradient*>(before)) return *own;
  auto own = std::unique_ptr<LeafGradient>(new LeafGradient(before));
  LeafGradient& result = *own;
  parameter.unsafeGetTensorImpl()->set_autograd_meta(std::move(own));
  return result;
}

void LeafGradient::set(at::Tensor gradient, Sharing sharing) {
  const bool is_shared = sharing == Sharing::SHARED;
  shared_ = is_shared ? std::move(gradient) : at::Tensor();
  grad_ = is_shared ? at::Tensor() : std::move(gradient);
  remember();
}

at::Tensor LeafGradient::take() {
  at::Tensor gradient = shared_.defined() ? std::move(shared_) : std::move(grad_);
  shared_ = grad_ = at::Tensor();
  return gradient;
}

bool is_zero_gradient(const at::Tensor& gradient) {
  if (gradient.is_sparse()) return gradient._nnz() == 0;
  if (!spmd::is_sharded(gradient)) return !gradient.any().item<bool>();
  const auto& tiles = spmd::impl(gradient)->tiles();
  return std::all_of(tiles.begin(), tiles.end(), is_zero_gradient);
}

at::Tensor zeros_like_gradient(const at::Tensor& gradient) {
  if (!gradient.is_sparse()) return at::zeros_like(gradient);
  return at::_sparse_coo_tensor_unsafe(gradient._indices().slice(1, 0, 0).clone(),
                                       gradient._values().slice(0, 0, 0).clone(), gradient.sizes(),
                                       gradient.options());
}

void zero_gradient(at::Tensor& gradient, bool set_to_none) {
  if (!gradient.defined()) return;
  const at::NoGradGuard no_grad;
  if (set_to_none) {
    gradient = at::Tensor();
  } else if (gradient.is_sparse()) {
    gradient = zeros_like_gradient(gradient);
  } else {
    gradient = gradient.detach();
    gradient.zero_();
  }
}

void LeafGradient::zero(bool set_to_none) {
  if (!shared_.defined()) return zero_gradient(grad_, set_to_none);
  const at::Tensor shared = take();
  if (!set_to_none) set(zeros_like_gradient(shared), Sharing::OWN);
}

void LeafGradient::borrow() {
  if (shared_.defined()) set(std::exchange(shared_, at::Tensor()), Sharing::OWN);
}

bool LeafGradient::is_replaced() const {
  look();
  return is_replaced_ && grad_.defined();
}

bool LeafGradient::is_cleared() const {
  look();
  return is_cleared_;
}

void LeafGradient::remember() {
  seen_ = Seen(grad_);
  is_replaced_ = is_cleared_ = false;
}

/// A gradient that is shared is as it was set.
void LeafGradient::look() const {
  if (shared_.defined()) return;
  if (seen_.is(grad_)) {
    seen_.writes = write_count(grad_);
    is_cleared_ = is_cleared_ || !grad_.defined();
    return;
  }
  is_replaced_ = true;
  is_cleared_ = is_cleared_ || !grad_.defined() || seen_.is_zeroed_as(grad_);
  seen_ = Seen(grad_);
}

/// An ordinary copy, whatever mode the thread that asks is in.
void LeafGradient::make_own() const {
  if (!shared_.defined()) return;
  const c10::InferenceMode ordinary(false);
  const at::NoGradGuard no_grad;
  auto& self = const_cast<LeafGradient&>(*this);
  self.set(std::exchange(shared_, at::Tensor()).clone(), Sharing::OWN);
}

at::Tensor& LeafGradient::mutable_grad() {
  make_own();
  look();
  return grad_;
}

const at::Tensor& LeafGradient::grad() const {
  make_own();
  look();
  return grad_;
}

}  // namespace cohort
