// Random numbers: drawn for the whole tensor, in its order in memory, by the thread that asks for
// them, and dealt out. So they are those that an unsharded tensor would get from the same
// generator, on any number of devices.
//
// Where LibTorch takes them from the generator one after the other, they are drawn a chunk at a
// time, and the whole tensor never exists. Chunks are multiples of 16, and the last one has no less
// than that, as normal_ makes 16 numbers of 16 draws, and once more the last 16 of a tensor that
// has some left. (With MKL, bernoulli_ and exponential_ take one number from the generator, as the
// seed of another: these need all at once.)

#include <ATen/ATen.h>

#include <algorithm>

#include "cohort/base/error.h"
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

/// bernoulli_ and its like, which replace all elements.
void fill_at_once(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operation operation(op.schema().name().c_str());
  const BelowAutograd below;
  const BoxedCall call(op, stack);
  const Tensor self = call[0].toTensor();
  const Writing writing(self);
  const Tensor drawn = stand_in(self);
  call[0] = drawn;
  gather_parameters(call);
  op.callBoxed(stack);
  if (is_sharded(self)) write_to(self, drawn);
  stack->back() = self;
}

/// Values for the elements from `begin` on, in the order of memory, as boxes of a tensor.
std::vector<Piece> boxes_of(const Tensor& values, std::int64_t begin, const Dims& sizes) {
  std::vector<Piece> boxes;
  const std::int64_t end = begin + values.numel();
  for (std::int64_t at = begin; at < end;) {
    // In the first dimension in which whole rows begin here, as many as there are.
    Region box = Region::all_of(sizes);
    std::int64_t row = c10::multiply_integers(sizes), rest = at;
    for (std::size_t d = 0;; ++d) {
      row /= sizes[d];
      box.begin[d] = rest / row;
      box.end[d] = box.begin[d] + 1;
      rest %= row;
      if (rest != 0 || at + row > end) continue;
      box.end[d] = std::min(sizes[d], box.begin[d] + (end - at) / row);
      break;
    }
    const std::int64_t count = c10::multiply_integers(box.sizes());
    boxes.push_back({box, values.narrow(0, at - begin, count).view(box.sizes())});
    at += count;
  }
  return boxes;
}

/// uniform_ and its like, which replace all elements by numbers that are drawn in order.
void fill_in_order(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  constexpr std::int64_t kChunk = 128 * 1024;
  BoxedCall call(op, stack);
  const Tensor self = call[0].toTensor();
  if (self.numel() < 2 * kChunk || !self.is_contiguous()) return fill_at_once(op, keys, stack);
  const Operation operation(op.schema().name().c_str());
  const BelowAutograd below;
  const Writing writing(self);
  const std::vector<c10::IValue> arguments = call.take();
  const Tensor buffer = at::empty({2 * kChunk}, self.options());
  for (std::int64_t begin = 0, end = 0; begin < self.numel(); begin = end) {
    end = self.numel() - begin < 2 * kChunk ? self.numel() : begin + kChunk;
    const Tensor chunk = buffer.narrow(0, 0, end - begin);
    Stack own(arguments.begin(), arguments.end());
    own[0] = chunk;
    op.callBoxed(&own);
    write_pieces(self, boxes_of(chunk, begin, layout_of(self).sizes()));
  }
  stack->emplace_back(self);
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

/// Without replacement LibTorch divides by random numbers and takes the largest: that goes tile by
/// tile. Else each draw goes through all probabilities of its row.
void multinomial_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operation operation("aten::multinomial");
  const BoxedCall call(op, stack);
  const Tensor x = call[0].toTensor();
  const std::int64_t count = call[1].toInt();
  const bool is_checked = x.is_floating_point() && (x.dim() == 1 || x.dim() == 2) && count > 0 &&
                          count <= x.size(-1) && x.numel() > 0;
  if (!is_checked || call[2].toBool()) {
    return gather_and_run(op, stack, "draws with replacement go through whole rows, in order");
  }
  const BelowAutograd below;
  const auto arguments = BoxedCall(op, stack).take();
  if (!at::logical_and(at::isfinite(x), at::ge(x, 0)).all().item<bool>()) {
    throw ValueError("multinomial", "probabilities must be finite and not negative");
  }
  if (!at::gt(at::sum(x, -1), 0).all().item<bool>()) {
    throw ValueError("multinomial", "the probabilities of a row must not all be zero");
  }
  const Tensor shares =
      at::div(x, at::empty_like(x).exponential_(1, arguments[3].toOptional<at::Generator>()));
  stack->emplace_back(count == 1 ? at::argmax(shares, -1, true)
                                 : std::get<1>(at::topk(shares, count, -1)));
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
  for (const char* name : {"uniform_", "normal_", "random_", "random_.from", "random_.to",
                           "cauchy_", "log_normal_", "geometric_"}) {
    library.impl(name, boxed<&fill_in_order>());
  }
  for (const char* name : {"exponential_", "bernoulli_.float", "bernoulli_.Tensor"}) {
    library.impl(name, boxed<&fill_at_once>());
  }
  for (const char* name : {"rand_like", "randn_like", "randint_like", "randint_like.low_dtype"}) {
    library.impl(name, boxed<&draw_alike>());
  }
  for (const char* name : {"bernoulli", "bernoulli.p", "poisson", "binomial", "normal.Tensor_float",
                           "normal.float_Tensor", "normal.Tensor_Tensor"}) {
    library.impl(name, boxed<&draw_with_parameters>());
  }
  library.impl("multinomial", boxed<&multinomial_boxed>());
  library.impl("native_dropout", native_dropout_tiles);
}

}  // namespace cohort::spmd
