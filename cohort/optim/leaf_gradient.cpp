#include "cohort/optim/leaf_gradient.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <memory>
#include <utility>

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

}  // namespace

/// Takes over what the parameter's record holds: hooks, the accumulator, the gradient.
LeafGradient::LeafGradient(torch::autograd::AutogradMeta* before)
    : known_(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()) {
  if (!before) return;
  name_ = std::move(before->name_);
  grad_ = std::move(before->grad_);
  grad_accumulator_ = std::move(before->grad_accumulator_);
  hooks_ = std::move(before->hooks_);
  cpp_hooks_list_ = std::move(before->cpp_hooks_list_);
  requires_grad_ = before->requires_grad_;
  move_newer_members<torch::autograd::AutogradMeta>(*before, *this);
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
  if (!is_shared) remember();
}

at::Tensor LeafGradient::take() {
  at::Tensor gradient = shared_.defined() ? std::move(shared_) : std::move(grad_);
  shared_ = grad_ = at::Tensor();
  return gradient;
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
  return !shared_.defined() && grad_.defined() &&
         known_.lock().get() != grad_.unsafeGetTensorImpl();
}

void LeafGradient::remember() { known_ = WeakTensor(grad_.getIntrusivePtr()); }

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
  return grad_;
}

const at::Tensor& LeafGradient::grad() const {
  make_own();
  return grad_;
}

}  // namespace cohort
