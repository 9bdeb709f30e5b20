#include "cohort/spmd/dispatch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>

#include "cohort/base/error.h"
#include "cohort/base/whole_tensor.h"
#include "cohort/spmd/placement.h"

namespace cohort::spmd {
namespace {

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  // In inference mode operations arrive that autograd would have taken apart.
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
    return;
  }
  gather_and_run(op, stack, "there is no rule for it");
}

/// Asked before a tensor gets another one's data, for which there is no other place to say no.
bool have_the_same_kind(const Tensor& tensor, const Tensor& from) {
  if (is_sharded(tensor) == is_sharded(from)) return true;
  throw ValueError(
      "set_data",
      cat("a tensor of sizes ", tensor.sizes(), is_sharded(tensor) ? "" : " that is not",
          " sharded over logical devices can't get the data of one that is",
          is_sharded(tensor) ? " not: use copy_()" : ": use cohort::spmd::full(tensor) of that"));
}

void register_all() {
  require_free(kShardKey, "spmd", "logical devices don't work");
  static torch::Library any(torch::Library::IMPL, "_", kShardKey, __FILE__, __LINE__);
  any.fallback(boxed<&fallback>());
  static torch::Library aten(torch::Library::IMPL, "aten", kShardKey, __FILE__, __LINE__);
  register_pointwise(aten);
  register_reductions(aten);
  register_matmul(aten);
  register_views(aten);
  register_reshaping(aten);
  register_diagonals(aten);
  register_unfolding(aten);
  register_complex_views(aten);
  register_functional_views(aten);
  register_view_derivatives(aten);
  register_softmax(aten);
  register_convolution(aten);
  register_max_pooling(aten);
  register_average_pooling(aten);
  register_joining(aten);
  register_rearranging(aten);
  register_ordering(aten);
  register_normalization(aten);
  register_indexing(aten);
  register_embedding(aten);
  register_embedding_bag(aten);
  register_scattering(aten);
  register_random(aten);
  register_attention(aten);

  require_free(kCompositeKey, "spmd", "logical devices don't work");
  static torch::Library others(torch::Library::IMPL, "_", kCompositeKey, __FILE__, __LINE__);
  others.fallback(torch::CppFunction::makeFallthrough());
  static torch::Library composites(torch::Library::IMPL, "aten", kCompositeKey, __FILE__, __LINE__);
  register_composites(composites);
  composites.impl("_has_compatible_shallow_copy_type", have_the_same_kind);
  set_whole(&full);
}

/// The whole tensor, in the order in memory that autograd knows: some results depend on that, such
/// as LU factors, and their derivatives ask for it again.
Tensor gather_in_order(const Tensor& tensor) {
  const Tensor whole = gather(tensor);
  if (!is_sharded(tensor) || whole.strides() == tensor.strides()) return whole;
  const Tensor ordered = at::empty_strided(tensor.sizes(), tensor.strides(), whole.options());
  write_once(ordered, whole);
  return ordered;
}

/// Replaces sharded tensors, in lists too, by whole ones.
void gather_in(c10::IValue& value) {
  if (value.isTensor()) {
    value = gather_in_order(value.toTensor());
  } else if (value.isTensorList()) {
    auto tensors = value.toTensorVector();
    for (Tensor& tensor : tensors) tensor = gather_in_order(tensor);
    value = std::move(tensors);
  } else if (value.isList()) {
    const auto list = value.toList().copy();  // the caller's own stays
    for (std::size_t i = 0; i < list.size(); ++i) {
      const c10::IValue each = list.get(i);
      if (each.isTensor()) list.set(i, gather_in_order(each.toTensor()));
    }
    value = list;
  }
}

void collect_tensors(const c10::IValue& value, std::vector<Tensor>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& each : value.toList().vec()) collect_tensors(each, tensors);
  }
}

}  // namespace

void require_rules() {
  static std::once_flag once;
  std::call_once(once, register_all);
}

void require_free(c10::DispatchKey key, const char* where, const char* what) {
  if (!c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(key)) return;
  throw RuntimeError(where,
                     cat("this LibTorch, or a library in this process, uses the dispatch key ",
                         c10::toString(key), " itself: ", what,
                         " beside it; unload that library, or use another version of "
                         "LibTorch"));
}

BoxedCall::BoxedCall(const c10::OperatorHandle& op, Stack* stack)
    : op_(op),
      stack_(stack),
      count_(op.schema().arguments().size()),
      base_(stack->size() - count_) {}

std::size_t BoxedCall::index_of(const char* name) const {
  for (std::size_t i = 0; i < count_; ++i) {
    if (argument(i).name() == name) return i;
  }
  throw RuntimeError(op_.schema().name(), cat("the rule expects an argument ", name));
}

bool BoxedCall::changes(std::size_t i) const {
  const auto* alias = argument(i).alias_info();
  if (!alias) return false;
  const auto& elements = alias->containedTypes();  // of a list
  return alias->isWrite() ||
         std::any_of(elements.begin(), elements.end(), [](const auto& e) { return e.isWrite(); });
}

std::vector<c10::IValue> BoxedCall::take() {
  std::vector<c10::IValue> arguments(std::make_move_iterator(stack_->begin() + base_),
                                     std::make_move_iterator(stack_->end()));
  stack_->resize(base_);
  return arguments;
}

MeshPtr common_mesh(const char* op, std::span<const Tensor> tensors) {
  const ShardedTensorImpl* first = nullptr;
  for (const Tensor& tensor : tensors) {
    if (!is_sharded(tensor)) continue;
    const ShardedTensorImpl* each = impl(tensor);
    if (!first) first = each;
    if (each->mesh() == first->mesh()) continue;
    throw ValueError(op, cat("tensors of different meshes can't meet: ", *first->layout(), " of ",
                             first->mesh()->name(), ", and ", *each->layout(), " of ",
                             each->mesh()->name(), "; take spmd::full(tensor) of one of them"));
  }
  return first ? first->mesh() : nullptr;
}

std::string describe(std::span<const Tensor> tensors) {
  std::string text;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (!text.empty()) text += "; ";
    text += is_sharded(tensor)   ? cat(layout_of(tensor))
            : tensor.is_nested() ? std::string("nested")
                                 : cat(tensor.sizes());
  }
  return text;
}

void gather_and_run(const c10::OperatorHandle& op, Stack* stack, const std::string& reason) {
  Operation operation(op.schema().name().c_str());
  const BoxedCall call(op, stack);
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < call.size(); ++i) collect_tensors(call[i], tensors);
  operation.gathers(reason, describe(tensors));
  const MeshPtr mesh = common_mesh(op.schema().name().c_str(), tensors);
  const BelowAutograd below;

  struct Change {
    std::string alias;
    Tensor sharded, whole;
  };
  std::vector<Change> changes;
  const auto to_change = [&](const Tensor& sharded, const std::string& alias) {
    Tensor whole = gather_in_order(sharded);
    if (layout_of(sharded).tiles() == 1) whole = whole.clone();
    changes.push_back({alias, sharded, whole});
    return whole;
  };
  for (std::size_t i = 0; i < call.size(); ++i) {
    c10::IValue& value = call[i];
    if (call.changes(i) && value.isTensor() && is_sharded(value.toTensor())) {
      const auto& names = call.argument(i).alias_info()->beforeSets();
      value = to_change(value.toTensor(), names.begin()->toUnqualString());
    } else if (call.changes(i) && value.isTensorList()) {
      auto tensors = value.toTensorVector();
      for (Tensor& each : tensors) {
        if (is_sharded(each)) each = to_change(each, "");
      }
      value = std::move(tensors);
    } else {
      gather_in(value);
    }
  }
  op.callBoxed(stack);
  for (const Change& change : changes) write_to(change.sharded, change.whole);

  const auto& returns = op.schema().returns();
  for (std::size_t r = 0; r < returns.size(); ++r) {
    c10::IValue& value = (*stack)[stack->size() - returns.size() + r];
    const auto* alias = returns[r].alias_info();
    if (!alias || !value.isTensor()) continue;
    if (alias->isWrite()) {
      for (const Change& change : changes) {
        if (alias->beforeSets().begin()->toUnqualString() == change.alias) value = change.sharded;
      }
    } else if (mesh) {  // a copy in place of a view
      const Tensor copy = value.toTensor();
      Tensor view = wrap(mesh, std::make_shared<Layout>(Layout::whole(copy.sizes(), 0)), {copy});
      stand_for_view(view, *std::find_if(tensors.begin(), tensors.end(), is_sharded), nullptr,
                     nullptr);
      value = view;
    }
  }
}

}  // namespace cohort::spmd
