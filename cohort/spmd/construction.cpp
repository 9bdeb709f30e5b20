// A dispatch key above autograd sees every operation of the thread. The one that makes all tensors,
// aten::empty, makes tiles there; torch::zeros and its like come to it in the end.

#include "cohort/spmd/construction.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>

#include "cohort/base/error.h"
#include "cohort/spmd/dispatch.h"

namespace cohort::spmd {
namespace {

/// Above autograd. LibTorch keeps it for libraries that look after the construction of modules.
constexpr auto kConstructionKey = c10::DispatchKey::DeferredInit;

thread_local const MakeInParts* construction = nullptr;

bool is_tensor(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined();
  if (value.isTensorList()) return !value.toTensorVector().empty();
  if (!value.isList()) return false;
  const auto list = value.toList().vec();
  return std::any_of(list.begin(), list.end(), is_tensor);
}

/// Any other operation. One that makes a tensor out of nothing may call aten::empty for it, which
/// comes here again; one that has tensors may do so for itself, and finds what it expects.
void pass_on(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const BoxedCall call(op, stack);
  bool has_tensors = false;
  for (std::size_t i = 0; i < call.size() && !has_tensors; ++i) has_tensors = is_tensor(call[i]);
  c10::optional<c10::impl::ExcludeDispatchKeyGuard> unseen;
  if (has_tensors) unseen.emplace(kConstructionKey);
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kConstructionKey),
                     stack);
}

bool goes_in_parts(at::IntArrayRef sizes, const at::TensorOptions& options,
                   c10::optional<at::MemoryFormat> format) {
  return construction && construction->mesh() && !Operation::current() &&
         c10::multiply_integers(sizes) >= construction->least_elements() && !sizes.empty() &&
         at::isFloatingType(c10::typeMetaToScalarType(options.dtype())) &&
         options.layout() == at::kStrided && options.device().is_cpu() &&
         !options.pinned_memory() &&
         format.value_or(at::MemoryFormat::Contiguous) == at::MemoryFormat::Contiguous;
}

Tensor make_empty(at::IntArrayRef sizes, c10::optional<at::ScalarType> type,
                  c10::optional<at::Layout> layout, c10::optional<at::Device> device,
                  c10::optional<bool> pins, c10::optional<at::MemoryFormat> format) {
  const c10::impl::ExcludeDispatchKeyGuard unseen(kConstructionKey);
  const auto options =
      at::TensorOptions().dtype(type).layout(layout).device(device).pinned_memory(pins);
  if (!goes_in_parts(sizes, options, format)) return at::empty(sizes, options, format);
  const MeshPtr& mesh = construction->mesh();
  Dims parts(sizes.size(), 1);
  parts[std::max_element(sizes.begin(), sizes.end()) - sizes.begin()] = mesh->size();
  const auto cut = std::make_shared<Layout>(Layout::split(sizes, parts));
  const Operation operation("aten::empty");
  return wrap(mesh, cut, make_tiles(*mesh, *cut, [&](int i) {
                return at::empty(cut->region(i).sizes(), options);
              }));
}

void register_construction() {
  require_free(kConstructionKey, "spmd::MakeInParts", "tensors can't be made in parts");
  static torch::Library any(torch::Library::IMPL, "_", kConstructionKey, __FILE__, __LINE__);
  any.fallback(boxed<&pass_on>());
  static torch::Library aten(torch::Library::IMPL, "aten", kConstructionKey, __FILE__, __LINE__);
  aten.impl("empty.memory_format", make_empty);
}

c10::DispatchKey construction_key() {
  require_rules();
  static std::once_flag once;
  std::call_once(once, register_construction);
  return kConstructionKey;
}

}  // namespace

MakeInParts::MakeInParts(MeshPtr mesh, std::int64_t least_elements)
    : mesh_(std::move(mesh)),
      least_elements_(std::max<std::int64_t>(least_elements, 1)),
      outer_(construction),
      watches_(construction_key()) {
  construction = this;
}

MakeInParts::~MakeInParts() { construction = outer_; }

}  // namespace cohort::spmd
