#include "cohort/spmd/copied_view.h"

#include <ATen/ATen.h>

#include "cohort/base/error.h"
#include "cohort/spmd/sharded_tensor.h"

namespace cohort::spmd {

CopiedView::CopiedView(Tensor base, const Tensor& copy, Read read, Write write)
    : base_(std::move(base)),
      copy_(wrap(impl(copy)->mesh(), impl(copy)->layout(), impl(copy)->tiles())),
      read_(std::move(read)),
      write_(std::move(write)),
      seen_(version()) {}

/// Autograd counts the changes of a tensor and of all its views together. Not those of tensors that
/// were made in inference mode.
std::int64_t CopiedView::version() const {
  const auto& counter = base_.unsafeGetTensorImpl()->version_counter();
  return counter.enabled() ? counter.current_version() : 0;
}

void CopiedView::refresh() {
  const std::int64_t now = version();
  {
    const std::lock_guard lock(mutex_);
    if (seen_ == now) return;
  }
  if (!read_) {
    throw ValueError("spmd",
                     cat("a view of a sharded tensor that had to be copied, ", layout_of(copy_),
                         ", is out of date, as the tensor was changed: "
                         "take the view again"));
  }
  const BelowAutograd below;
  const Tensor again = read_(base_);  // without the lock: it waits for devices
  const std::lock_guard lock(mutex_);
  if (std::exchange(seen_, now) == now) return;
  const Layout& layout = layout_of(copy_);
  for (int i = 0; i < layout.tiles(); ++i) {
    impl(copy_)->tiles()[i].copy_(fetch(again, layout.region(i)));
  }
}

void CopiedView::require_writable() const {
  if (!write_) {
    throw ValueError(
        "spmd", cat("writing to a view of a sharded tensor that had to be copied, ",
                    layout_of(copy_), ": change the tensor itself, or take spmd::full(tensor)"));
  }
  if (const auto& outer = impl(base_)->copied_view()) outer->require_writable();
}

void CopiedView::write_back() const {
  const BelowAutograd below;
  write_(base_, copy_);
}

Writing::Writing(const Tensor& tensor)
    : copy_(is_sharded(tensor) ? impl(tensor)->copied_view() : nullptr),
      exceptions_(std::uncaught_exceptions()) {
  if (!copy_) return;
  copy_->require_writable();
  copy_->refresh();
}

Writing::~Writing() noexcept(false) {
  if (copy_ && std::uncaught_exceptions() == exceptions_) copy_->write_back();
}

}  // namespace cohort::spmd
