#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>

namespace cohort {

/// What `.grad` of one replica's parameter is.
///
/// The replicas of a device share one tensor with the summed gradient, and yet each may read and
/// change its `.grad` as if it were its own. So a shared gradient is copied when `.grad` is first
/// asked for; a training loop that only calls backward and step never asks, and pays nothing.
///
/// It takes the place of LibTorch's own record of the parameter, whose `grad` and `mutable_grad`
/// are virtual; everything else of that record stays as it is. Lives as long as the parameter. One
/// thread at a time: that of the replica, or any while the replica waits.
class LeafGradient final : public torch::autograd::AutogradMeta {
 public:
  /// The one of this parameter, which is made on the first call.
  static LeafGradient& of(const at::Tensor& parameter);

  enum class Sharing {
    OWN,     ///< The tensor is this replica's alone.
    SHARED,  ///< Others hold it too: copied when `.grad` is asked for.
  };

  /// Makes the tensor this parameter's `.grad`.
  void set(at::Tensor gradient, Sharing sharing);

  /// The gradient without a copy, to look at; undefined if there is none.
  const at::Tensor& peek() const { return shared_.defined() ? shared_ : grad_; }

  /// Takes the gradient out without a copy: `.grad` is undefined then.
  at::Tensor take();

  /// Forgets the gradient: `.grad` is undefined then, or zeros.
  void zero(bool set_to_none);

  /// Makes a shared gradient the parameter's own without a copy. The caller knows that nobody else
  /// looks at it until it is set again.
  void borrow();

  /// True if the program has put another tensor there since `set` or `remember`. A change in place
  /// does not count.
  bool is_replaced() const;

  /// True if the program has cleared the gradient since, so that what is there now, if anything,
  /// was put there afterwards. That is so if `.grad` was undefined, as the module's
  /// `zero_grad(/*set_to_none=*/true)` leaves it; or if it was another tensor in the same memory,
  /// written to and zero, as `zero_grad(false)` leaves it, which detaches the gradient before it
  /// fills it. A gradient that is zeroed in place (`p.grad().zero_()`), or replaced by a new tensor
  /// of zeros (`p.mutable_grad() = p.grad() * 0`), was changed and not cleared.
  ///
  /// It is seen when `.grad` is next asked for, or this is: before whoever puts something there,
  /// who has to ask. Not seen is what is written through a reference or a tensor that is kept from
  /// before the gradient was cleared.
  bool is_cleared() const;
  void remember();

  // What LibTorch calls for `.grad`.
  at::Tensor& mutable_grad() override;
  const at::Tensor& grad() const override;

 private:
  explicit LeafGradient(torch::autograd::AutogradMeta* before);
  void make_own() const;
  void look() const;

  /// A gradient as it was when somebody looked.
  struct Seen {
    explicit Seen(const at::Tensor& gradient);
    bool is(const at::Tensor& gradient) const;
    bool is_zeroed_as(const at::Tensor& gradient) const;

    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    c10::weak_intrusive_ptr<c10::StorageImpl> memory;
    std::int64_t writes;
  };

  mutable at::Tensor shared_;  // in place of grad_, until somebody asks
  mutable Seen seen_;          // what was in grad_
  // Since `set` or `remember`:
  mutable bool is_replaced_ = false;
  mutable bool is_cleared_ = false;
};

/// True if it is zeros, or has no entries.
bool is_zero_gradient(const at::Tensor& gradient);

/// What `zero_grad` does to a gradient that is not shared.
void zero_gradient(at::Tensor& gradient, bool set_to_none);

/// Zeros of the same kind. A sparse gradient gets one without entries: LibTorch 1.13's zeros_like
/// makes another kind.
at::Tensor zeros_like_gradient(const at::Tensor& gradient);

}  // namespace cohort
