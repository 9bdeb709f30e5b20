// Random numbers: drawn for the whole tensor at once, by the thread that asks for them, and then
// dealt out. So they are those that an unsharded tensor would get from the same generator, on any
// number of devices.

#include <ATen/ATen.h>

#include "cohort/spmd/dispatch.h"
#include "cohort/spmd/rules/relayout.h"

namespace cohort::spmd {
namespace {

/// An ordinary tensor of the same sizes, in the same order in memory, which decides in which order
/// numbers are drawn. Its elements have no values.
Tensor stand_in(const Tensor& x) {
  return is_sharded(x) ? at::empty_strided(x.sizes(), x.strides(), x.options()) : x;
}

/// The parameters of a distribution, such as a tensor of probabilities, as ordinary tensors.
void gather_parameters(const BoxedCall& call) {
  for (std::size_t i = 1; i < call.size(); ++i) {
    if (call[i].isTensor() && call[i].toTensor().defined()) call[i] = gather(call[i].toTensor());
  }
}

/// uniform_ and its like, which replace all elements.
void fill_randomly(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operation operation(op.schema().name().c_str());
  const BelowAutograd below;
  const BoxedCall call(op, stack);
  const Tensor self = call[0].toTensor();
  require_writable(self);
  const Tensor drawn = stand_in(self);
  call[0] = drawn;
  gather_parameters(call);
  op.callBoxed(stack);
  if (is_sharded(self)) write_to(self, drawn);
  stack->back() = self;
}

/// rand_like and its like, which look only at the sizes.
void draw_alike(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operation operation(op.schema().name().c_str());
  const BelowAutograd below;
  const BoxedCall call(op, stack);
  const Tensor self = call[0].toTensor();
  call[0] = stand_in(self);
  op.callBoxed(stack);
  stack->back() = reshard(stack->back().toTensor(), impl(self)->mesh(), impl(self)->layout());
}

/// bernoulli and its like, whose first argument is a parameter of the distribution.
void draw_with_parameters(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operation operation(op.schema().name().c_str());
  const BelowAutograd below;
  const BoxedCall call(op, stack);
  const Tensor self = call[0].toTensor();
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < call.size(); ++i) {
    if (call[i].isTensor()) tensors.push_back(call[i].toTensor());
  }
  const Tensor& leader = leader_of(tensors);
  call[0] = gather(self);
  gather_parameters(call);
  op.callBoxed(stack);
  const Tensor drawn = stack->back().toTensor();
  const LayoutPtr layout = drawn.sizes() == leader.sizes() ? impl(leader)->layout()
                                                           : layout_along(0, drawn.sizes(), leader);
  stack->back() = reshard(drawn, impl(leader)->mesh(), layout);
}

std::tuple<Tensor, Tensor> native_dropout_tiles(const Tensor& x, double p,
                                                c10::optional<bool> train) {
  const Operation operation("aten::native_dropout");
  const BelowAutograd below;
  if (!train.value_or(true)) return {x.clone(), at::ones_like(x, at::TensorOptions(at::kBool))};
  const double kept = 1 - p;
  const Tensor mask = at::empty_like(x, at::TensorOptions(at::kBool)).bernoulli_(kept);
  return {at::mul(x, mask).mul_(kept == 0 ? 0 : 1 / kept), mask};
}

}  // namespace

void register_random(torch::Library& library) {
  for (const char* name :
       {"uniform_", "normal_", "random_", "random_.from", "random_.to", "exponential_", "cauchy_",
        "log_normal_", "geometric_", "bernoulli_.float", "bernoulli_.Tensor"}) {
    library.impl(name, boxed<&fill_randomly>());
  }
  for (const char* name : {"rand_like", "randn_like", "randint_like", "randint_like.low_dtype"}) {
    library.impl(name, boxed<&draw_alike>());
  }
  for (const char* name : {"bernoulli", "bernoulli.p", "poisson", "binomial", "normal.Tensor_float",
                           "normal.float_Tensor", "normal.Tensor_Tensor"}) {
    library.impl(name, boxed<&draw_with_parameters>());
  }
  library.impl("native_dropout", native_dropout_tiles);
}

}  // namespace cohort::spmd
