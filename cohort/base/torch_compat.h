#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

/// What LibTorch 1.13 and LibTorch 2 spell differently, and only that.
///
/// Code that needs one of these things takes it from here; no other file asks for LibTorch's
/// version. Things that have one spelling on both are not here: `c10::optional`, `data_ptr<T>()`,
/// `add_post_hook`, `<ATen/Parallel.h>` (which LibTorch 2 does not include by itself).
namespace cohort::torch_compat {

/// A counted pointer to a node of the autograd graph: `std::shared_ptr` in 1.13,
/// `c10::intrusive_ptr` in 2. Whoever hooks on to a gradient accumulator must keep it alive, as the
/// variable does not:
///
///     NodePtr accumulator = torch::autograd::impl::grad_accumulator(parameter);
///     accumulator->add_post_hook(…);
using NodePtr = decltype(torch::autograd::impl::grad_accumulator(at::Tensor()));

/// Whether somebody wants to know when a node of the autograd graph is run. LibTorch 2 keeps the
/// hooks of tensors apart.
template <class Node>
bool has_hooks(Node& node) {
  if constexpr (requires { node.tensor_pre_hooks(); }) {
    if (!node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty()) return true;
  }
  return !node.pre_hooks().empty() || !node.post_hooks().empty();
}

/// The key under which `optimizer` keeps a parameter's state: the address of its implementation,
/// in 1.13 printed as text.
template <class Optimizer>
auto state_key(Optimizer& optimizer, const at::Tensor& parameter) {
  using Key = typename std::decay_t<decltype(optimizer.state())>::key_type;
  if constexpr (std::is_same_v<Key, std::string>) {
    std::ostringstream text;
    text << parameter.unsafeGetTensorImpl();
    return std::move(text).str();
  } else {
    return static_cast<Key>(parameter.unsafeGetTensorImpl());
  }
}

/// A parameter's state (its momentum, its step count) in a `torch::optim` optimizer, owned by the
/// optimizer; nullptr before the first step. The caller knows its type:
///
///     if (auto* state = find_state(adam, p)) static_cast<torch::optim::AdamParamState&>(*state) …
template <class Optimizer>
auto find_state(Optimizer& optimizer, const at::Tensor& parameter) {
  const auto entry = optimizer.state().find(state_key(optimizer, parameter));
  return entry == optimizer.state().end() ? nullptr : entry->second.get();
}

/// Puts a parameter's state in place of the one it had, if any. It must be of the type that the
/// optimizer itself makes.
template <class Optimizer, class State>
void set_state(Optimizer& optimizer, const at::Tensor& parameter, std::unique_ptr<State> state) {
  optimizer.state()[state_key(optimizer, parameter)] = std::move(state);
}

/// Whether operations on the CPU run in a lower precision, and in which. Belongs to the thread.
struct CpuAutocast {
  bool is_enabled = false;
  at::ScalarType type = at::kBFloat16;
};

/// What holds in the calling thread.
CpuAutocast cpu_autocast();

/// Sets the calling thread. The caller restores what was before, and clears the autocast cache
/// (`at::autocast::clear_cache`) when the outermost region ends.
void set_cpu_autocast(CpuAutocast autocast);

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)

inline CpuAutocast cpu_autocast() {
  return {at::autocast::is_autocast_enabled(at::kCPU), at::autocast::get_autocast_dtype(at::kCPU)};
}

inline void set_cpu_autocast(CpuAutocast autocast) {
  at::autocast::set_autocast_enabled(at::kCPU, autocast.is_enabled);
  at::autocast::set_autocast_dtype(at::kCPU, autocast.type);
}

/// The base of an allocator of one's own, which defines `take`, for several threads at a time:
/// `allocate` is const in 1.13, and 2 also asks how bytes are copied.
template <class Base = c10::Allocator>
class Allocator : public Base {
 public:
  virtual c10::DataPtr take(std::size_t bytes) const = 0;

  c10::DataPtr allocate(std::size_t bytes) final { return take(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const final {
    this->default_copy_data(to, from, bytes);
  }
};

#else

inline CpuAutocast cpu_autocast() {
  return {at::autocast::is_cpu_enabled(), at::autocast::get_autocast_cpu_dtype()};
}

inline void set_cpu_autocast(CpuAutocast autocast) {
  at::autocast::set_cpu_enabled(autocast.is_enabled);
  at::autocast::set_autocast_cpu_dtype(autocast.type);
}

template <class Base = c10::Allocator>
class Allocator : public Base {
 public:
  virtual c10::DataPtr take(std::size_t bytes) const = 0;

  c10::DataPtr allocate(std::size_t bytes) const final { return take(bytes); }
};

#endif

/// Whether LibTorch lets a tensor without memory say itself what is wrong with asking for it. 1.13
/// says only that there is no storage.
template <class Impl = c10::TensorImpl>
inline constexpr bool explains_missing_memory = requires(Impl& impl) {
  impl.release_storage_and_set_meta_custom_data_ptr_error_msg_(std::string());
};

/// Takes a tensor's memory away; who asks for it is told `why`, where LibTorch can.
template <class Impl>
void forbid_memory(Impl& impl, [[maybe_unused]] const char* why) {
  if constexpr (explains_missing_memory<Impl>) {
    impl.release_storage_and_set_meta_custom_data_ptr_error_msg_(why);
  }
}

/// The sizes as LibTorch takes them; 1.13 does not convert a span. Valid as long as the span's
/// data.
inline at::IntArrayRef sizes(std::span<const std::int64_t> values) {
  return {values.data(), values.size()};
}

}  // namespace cohort::torch_compat
