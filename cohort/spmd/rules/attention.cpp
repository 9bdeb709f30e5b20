// Attention in one operation, as LibTorch 2 runs it on the CPU: over batches and heads. LibTorch
// 1.13 has none; there, and where a module writes attention out, other rules do it.

#include <ATen/ATen.h>

#include "cohort/spmd/partition.h"

namespace cohort::spmd {
namespace {

using Task = Partition::Task;

/// Letters of [batch, heads, length, features] and of what has fewer dimensions: a mask of [length,
/// length], or [batch, heads, length].
std::string letters_of_argument(const Tensor& tensor, const std::string& name) {
  if (!tensor.defined()) return "";
  if (tensor.dim() == 2) return "**";
  return name == "logsumexp" ? "bh*" : "bh**";
}

/// The operation itself, on the batches and heads of each device. Its results have the letters that
/// are given for them.
void over_batch_and_heads(const c10::OperatorHandle& op, Stack* stack,
                          const std::vector<std::string>& results) {
  Partition parts(op.schema().name().c_str());
  BoxedCall call(op, stack);
  const auto arguments = call.take();
  std::vector<std::size_t> tensors;  // their numbers
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor()) continue;
    tensors.push_back(i);
    const Tensor& each = arguments[i].toTensor();
    parts.take(each, letters_of_argument(each, op.schema().arguments()[i].name()));
  }
  const auto given = parts.give_all(results, [&](const Task& t) {
    Stack own(arguments.begin(), arguments.end());
    for (std::size_t k = 0; k < tensors.size(); ++k) own[tensors[k]] = t[k];
    op.callBoxed(&own);
    std::vector<Tensor> all;
    for (const c10::IValue& each : own) all.push_back(each.toTensor());
    return all;
  });
  for (const Tensor& each : given) stack->emplace_back(each);
}

void flash_attention(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  over_batch_and_heads(op, stack, {"bh**", "bh*"});
}
void flash_attention_backward(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  over_batch_and_heads(op, stack, {"bh**", "bh**", "bh**"});
}

/// Which of its implementations LibTorch takes follows from sizes and strides.
void attention_choice(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const BelowAutograd below;
  const BoxedCall call(op, stack);
  for (std::size_t i = 0; i < call.size(); ++i) {
    if (!call[i].isTensor() || !is_sharded(call[i].toTensor())) continue;
    const Tensor x = call[i].toTensor();
    call[i] = at::empty_strided(x.sizes(), x.strides(), x.options());
  }
  op.callBoxed(stack);
}

}  // namespace

void register_attention(torch::Library& library) {
  library.impl("_scaled_dot_product_flash_attention_for_cpu", boxed<&flash_attention>());
  library.impl("_scaled_dot_product_flash_attention_for_cpu_backward",
               boxed<&flash_attention_backward>());
  library.impl("_fused_sdp_choice", boxed<&attention_choice>());
}

}  // namespace cohort::spmd
