#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "cohort/spmd/sharded_tensor.h"
#include "cohort/spmd/trace.h"

/// How operations on sharded tensors find their rules.
namespace cohort::spmd {

using Stack = torch::jit::Stack;

/// Puts the rules into LibTorch's dispatcher, once; before the first sharded tensor is made. Throws
/// RuntimeError if LibTorch itself, or another library, has taken the dispatch key.
void require_rules();

/// Throws RuntimeError if LibTorch itself, or another library, uses a dispatch key. `what` says
/// what does not work then: "logical devices don't work".
void require_free(c10::DispatchKey key, const char* where, const char* what);

/// Runs an operation without a rule, or in a case that its rule does not cover: on whole tensors,
/// in this thread. Arguments that it changes are changed tile by tile. A result that stands for a
/// view can't be changed, nor used after its tensor was.
void gather_and_run(const c10::OperatorHandle& op, Stack* stack, const std::string& reason);

/// The arguments and results of a boxed call: the last ones on the stack.
class BoxedCall {
 public:
  BoxedCall(const c10::OperatorHandle& op, Stack* stack);

  std::size_t size() const { return count_; }
  c10::IValue& operator[](std::size_t i) const { return (*stack_)[base_ + i]; }
  const c10::Argument& argument(std::size_t i) const { return op_.schema().arguments()[i]; }
  /// The number of an argument. The schema must have it.
  std::size_t index_of(const char* name) const;
  /// Whether the operation changes an argument.
  bool changes(std::size_t i) const;

  /// Takes the arguments off the stack, to put results there.
  std::vector<c10::IValue> take();

 private:
  const c10::OperatorHandle& op_;
  Stack* const stack_;
  const std::size_t count_, base_;
};

/// The mesh of the sharded ones; null if there is none. Throws ValueError for two meshes.
MeshPtr common_mesh(const char* op, std::span<const Tensor> tensors);

/// "[8, 3] split {2, 1} over devices {0, 1}; [3, 4]".
std::string describe(std::span<const Tensor> tensors);

/// A kernel that gets its arguments as IValues.
template <auto kernel>
torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<kernel>();
}

// The rules, a file of rules/ each.
void register_pointwise(torch::Library& library);
void register_reductions(torch::Library& library);
void register_matmul(torch::Library& library);
void register_views(torch::Library& library);
void register_reshaping(torch::Library& library);
void register_diagonals(torch::Library& library);
void register_unfolding(torch::Library& library);
void register_complex_views(torch::Library& library);
void register_functional_views(torch::Library& library);
void register_view_derivatives(torch::Library& library);
void register_softmax(torch::Library& library);
void register_convolution(torch::Library& library);
void register_max_pooling(torch::Library& library);
void register_average_pooling(torch::Library& library);
void register_normalization(torch::Library& library);
void register_joining(torch::Library& library);
void register_rearranging(torch::Library& library);
void register_ordering(torch::Library& library);
void register_indexing(torch::Library& library);
void register_embedding(torch::Library& library);
void register_embedding_bag(torch::Library& library);
void register_scattering(torch::Library& library);
void register_random(torch::Library& library);
void register_attention(torch::Library& library);
void register_composites(torch::Library& library);  // above autograd

}  // namespace cohort::spmd
