#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cohort/spmd/layout.h"

namespace cohort::spmd {

/// Keeps a copy that stands for a view in step with the tensor that it is a view of.
///
/// Where elements must move from one tile to another, a view can't share memory: it is copied. What
/// changes the tensor afterwards is seen by its version, and the copy is made anew when it is next
/// read; what is written to the copy is written back. Views of the copy share its memory, and this
/// object.
///
/// Threads may read at the same time.
class CopiedView {
 public:
  /// The same view again, of the tensor as it is now.
  using Read = std::function<at::Tensor(const at::Tensor& base)>;
  /// Writes the view's elements back. Null where they have no one place to go to.
  using Write = std::function<void(const at::Tensor& base, const at::Tensor& view)>;

  /// `copy` is a sharded tensor, whose tiles are shared from now on. Without `read`, a copy that is
  /// out of date can't be used.
  CopiedView(at::Tensor base, const at::Tensor& copy, Read read, Write write);

  /// Brings the copy up to date. Throws ValueError if it can't be.
  void refresh();

  /// Throws ValueError if the copy, or what it is a view of, can't be written to.
  void require_writable() const;

  /// Writes the copy to what it is a view of.
  void write_back() const;

 private:
  std::int64_t version() const;

  const at::Tensor base_, copy_;
  const Read read_;
  const Write write_;
  std::mutex mutex_;
  std::int64_t seen_;  // the base's version when the copy was made; guarded by mutex_
};

/// While one lives, somebody writes to the tiles of a tensor, which may be an ordinary one; then,
/// those of a copy that stands for a view are written back. Throws ValueError for a copy that can't
/// be.
class Writing {
 public:
  explicit Writing(const at::Tensor& tensor);
  ~Writing() noexcept(false);
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  std::shared_ptr<CopiedView> copy_;
  const int exceptions_;
};

}  // namespace cohort::spmd
