// Operations that work element by element, with broadcasting; also in place, and those that only
// look at the sizes of a tensor, such as zeros_like.

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <unordered_set>

#include "cohort/base/error.h"
#include "cohort/spmd/partition.h"

namespace cohort::spmd {
namespace {

/// Without overloads; the forms that work in place, with an underscore, belong to them.
const std::unordered_set<std::string>& pointwise_names() {
  static const std::unordered_set<std::string> names{
      // arithmetic
      "add", "sub", "rsub", "mul", "div", "remainder", "fmod", "floor_divide", "neg", "abs", "sign",
      "sgn", "reciprocal", "pow", "float_power", "square", "sqrt", "rsqrt", "addcmul", "addcdiv",
      "lerp", "maximum", "minimum", "fmax", "fmin", "hypot", "ldexp", "copysign", "nextafter",
      "gcd", "lcm", "heaviside", "xlogy", "logaddexp", "logaddexp2", "frexp",
      // exponentials, angles, special functions
      "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
      "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sinc", "erf", "erfc",
      "erfinv", "lgamma", "digamma", "polygamma", "i0", "special_entr", "special_erfcx",
      "special_i0e", "special_i1", "special_i1e", "special_log_ndtr", "special_ndtri",
      "special_xlog1py", "special_zeta", "mvlgamma", "igamma", "igammac", "logit", "logit_backward",
      "deg2rad", "rad2deg", "special_airy_ai", "special_bessel_j0", "special_bessel_j1",
      "special_bessel_y0", "special_bessel_y1", "special_modified_bessel_i0",
      "special_modified_bessel_i1", "special_modified_bessel_k0", "special_modified_bessel_k1",
      "special_scaled_modified_bessel_k0", "special_scaled_modified_bessel_k1",
      "special_spherical_bessel_j0", "special_chebyshev_polynomial_t",
      "special_chebyshev_polynomial_u", "special_chebyshev_polynomial_v",
      "special_chebyshev_polynomial_w", "special_hermite_polynomial_h",
      "special_hermite_polynomial_he", "special_laguerre_polynomial_l",
      "special_legendre_polynomial_p", "special_shifted_chebyshev_polynomial_t",
      "special_shifted_chebyshev_polynomial_u", "special_shifted_chebyshev_polynomial_v",
      "special_shifted_chebyshev_polynomial_w",
      // rounding and limits
      "ceil", "floor", "round", "trunc", "frac", "clamp", "clamp_min", "clamp_max", "nan_to_num",
      // activations
      "relu", "relu6", "threshold", "threshold_backward", "sigmoid", "sigmoid_backward",
      "tanh_backward", "gelu", "gelu_backward", "silu", "silu_backward", "mish", "mish_backward",
      "elu", "elu_backward", "celu", "selu", "leaky_relu", "leaky_relu_backward", "hardtanh",
      "hardtanh_backward", "hardsigmoid", "hardsigmoid_backward", "hardswish", "hardswish_backward",
      "hardshrink", "hardshrink_backward", "softshrink", "softshrink_backward", "softplus",
      "softplus_backward", "log_sigmoid_forward", "log_sigmoid_backward", "_prelu_kernel",
      "_prelu_kernel_backward",
      // comparisons and logic
      "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isposinf", "isneginf", "signbit",
      "isclose", "logical_and", "logical_or", "logical_not", "logical_xor", "bitwise_and",
      "bitwise_or", "bitwise_not", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
      "__lshift__", "__rshift__", "__ilshift__", "__irshift__", "where", "masked_fill",
      // copies, and tensors of the same sizes
      "clone", "copy", "_to_copy", "zero", "fill", "alias_copy", "zeros_like", "ones_like",
      "full_like", "contiguous", "real", "imag", "conj_physical", "_conj_physical", "angle",
      "complex", "polar", "native_dropout_backward"};
  return names;
}

bool is_plain_scalar(const Tensor& tensor) { return tensor.dim() == 0 && !is_sharded(tensor); }

/// The layout that all sharded tensors have, if nothing has to be fetched or broadcast; else null.
LayoutPtr same_layout(const std::vector<c10::IValue>& arguments) {
  LayoutPtr layout;
  for (const c10::IValue& value : arguments) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const Tensor& tensor = value.toTensor();
    if (is_plain_scalar(tensor)) continue;
    if (!is_sharded(tensor)) return nullptr;
    const LayoutPtr& own = impl(tensor)->layout();
    if (layout && own != layout && !(*own == *layout)) return nullptr;
    layout = own;
  }
  return layout;
}

std::vector<Tensor> defined_tensors(const std::vector<c10::IValue>& arguments) {
  std::vector<Tensor> tensors;
  for (const c10::IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().defined()) tensors.push_back(value.toTensor());
  }
  return tensors;
}

/// Letters of the last dimensions of a result: "bc" of "abc".
std::string last_letters(std::size_t dims, std::int64_t own) {
  std::string letters;
  for (std::size_t d = dims - own; d < dims; ++d) letters += static_cast<char>('a' + d);
  return letters;
}

/// Tile by tile, without looking elsewhere: most calls of most networks.
void run_on_tiles(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                  const LayoutPtr& layout, const MeshPtr& mesh, bool in_place, Stack* stack) {
  const std::size_t results = op.schema().returns().size();
  std::vector<std::vector<Tensor>> tiles(in_place ? 0 : results,
                                         std::vector<Tensor>(layout->tiles()));
  mesh->run(layout->devices(), [&](int i) {
    Stack own;
    own.reserve(arguments.size() + 2);
    for (const c10::IValue& value : arguments) {
      const bool has_tiles = value.isTensor() && is_sharded(value.toTensor());
      own.push_back(has_tiles ? c10::IValue(impl(value.toTensor())->tiles()[i]) : value);
    }
    op.callBoxed(&own);
    for (std::size_t r = 0; r < tiles.size(); ++r) {
      tiles[r][i] = own[own.size() - results + r].toTensor();
    }
  });
  if (in_place) return stack->push_back(arguments[0]);
  for (auto& each : tiles) stack->emplace_back(wrap(mesh, layout, std::move(each)));
}

/// Changes one of the arguments, sharded or not, in parts.
void run_in_place(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                  const MeshPtr& mesh, Stack* stack, std::size_t changed = 0) {
  const Tensor self = arguments[changed].toTensor();
  for (const Tensor& tensor : defined_tensors(arguments)) {
    if (at::is_expandable_to(tensor.sizes(), self.sizes())) continue;
    throw InvalidArgument(op.schema().name(),
                          cat("a tensor of sizes ", self.sizes(),
                              " can't be changed by one of sizes ", tensor.sizes()));
  }
  LayoutPtr layout;
  if (is_sharded(self)) {
    layout = impl(self)->layout();
  } else {
    for (const Tensor& tensor : defined_tensors(arguments)) {
      if (is_sharded(tensor) && tensor.sizes() == self.sizes()) layout = impl(tensor)->layout();
    }
    if (!layout) layout = std::make_shared<Layout>(Layout::whole(self.sizes(), 0));
  }
  mesh->run(layout->devices(), [&](int i) {
    const Region region = layout->region(i);
    Stack own;
    for (const c10::IValue& value : arguments) {
      if (!value.isTensor() || !value.toTensor().defined() || is_plain_scalar(value.toTensor())) {
        own.push_back(value);
        continue;
      }
      const Tensor& tensor = value.toTensor();
      Region part = Region::all_of(tensor.sizes());
      const int before = region.dim() - part.dim();
      for (int d = 0; d < part.dim(); ++d) {
        if (part.end[d] == 1 && self.size(d + before) != 1) continue;
        part.begin[d] = region.begin[d + before];
        part.end[d] = region.end[d + before];
      }
      own.emplace_back(fetch(tensor, part));
    }
    op.callBoxed(&own);
  });
  stack->push_back(self);
}

void run_broadcast(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                   Stack* stack) {
  std::size_t dims = 0;
  for (const Tensor& tensor : defined_tensors(arguments)) {
    dims = std::max<std::size_t>(dims, tensor.dim());
  }
  Partition parts(op.schema().name().c_str());
  for (const c10::IValue& value : arguments) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    parts.take(value.toTensor(), last_letters(dims, value.toTensor().dim()));
  }
  const std::size_t count = op.schema().returns().size();
  const auto results = parts.give_all(
      std::vector<std::string>(count, last_letters(dims, static_cast<std::int64_t>(dims))),
      [&](const Partition::Task& task) {
        Stack own;
        std::size_t next = 0;
        for (const c10::IValue& value : arguments) {
          const bool is_part = value.isTensor() && value.toTensor().defined();
          own.push_back(is_part ? c10::IValue(task[next++]) : value);
        }
        op.callBoxed(&own);
        std::vector<Tensor> own_results;
        for (std::size_t r = 0; r < count; ++r) {
          own_results.push_back(own[own.size() - count + r].toTensor());
        }
        return own_results;
      });
  for (const Tensor& result : results) stack->emplace_back(result);
}

/// A copy that shall lie elsewhere than on the CPU is an ordinary tensor. LibTorch asks for one on
/// the meta device, which has sizes and no elements, to find out what an operation will give.
bool leaves_the_cpu(const BoxedCall& call) {
  for (std::size_t i = 1; i < call.size(); ++i) {
    if (call.argument(i).name() == "device" && !call[i].isNone()) {
      return call[i].toDevice().type() != at::kCPU;
    }
  }
  return false;
}
void run_elsewhere(const c10::OperatorHandle& op, BoxedCall& call, Stack* stack) {
  const BelowAutograd below;
  const Tensor self = call[0].toTensor();
  const bool is_meta = call[call.index_of("device")].toDevice().type() == at::kMeta;
  call[0] = is_meta ? at::empty_strided(self.sizes(), self.strides(),
                                        at::TensorOptions(self.dtype()).device(at::kMeta))
                    : gather(self);
  op.callBoxed(stack);
}

void pointwise(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operation operation(op.schema().name().c_str());
  BoxedCall call(op, stack);
  if (leaves_the_cpu(call)) return run_elsewhere(op, call, stack);
  const bool in_place = call.changes(0);
  const std::vector<c10::IValue> arguments = call.take();
  const MeshPtr mesh = common_mesh(op.schema().name().c_str(), defined_tensors(arguments));
  const Writing writing(in_place ? arguments[0].toTensor() : Tensor());
  if (const LayoutPtr layout = same_layout(arguments)) {
    return run_on_tiles(op, arguments, layout, mesh, in_place, stack);
  }
  in_place ? run_in_place(op, arguments, mesh, stack) : run_broadcast(op, arguments, stack);
}

/// The forms with an argument `out`. One of other sizes has to be resized: then all is gathered.
void pointwise_out(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operation operation(op.schema().name().c_str());
  BoxedCall call(op, stack);
  const std::size_t changed = call.size() - 1;
  const Tensor out = call[changed].toTensor();
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < changed; ++i) {
    if (!call[i].isTensor() || !call[i].toTensor().defined()) continue;
    sizes = at::infer_size(sizes, call[i].toTensor().sizes());
  }
  if (out.sizes() != at::IntArrayRef(sizes)) {
    return gather_and_run(op, stack, "its result has to be resized");
  }
  const Writing writing(out);
  const std::vector<c10::IValue> arguments = call.take();
  const MeshPtr mesh = common_mesh(op.schema().name().c_str(), defined_tensors(arguments));
  run_in_place(op, arguments, mesh, stack, changed);
}

/// In the order in memory of the other tensor, unless another one is asked for: random numbers are
/// drawn in that order.
void empty_like_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const BoxedCall call(op, stack);
  const Tensor self = call[0].toTensor();
  const c10::IValue& format = call[call.index_of("memory_format")];
  const bool preserves = format.isNone() || format.toMemoryFormat() == at::MemoryFormat::Preserve;
  pointwise(op, keys, stack);
  const Tensor& result = stack->back().toTensor();
  if (preserves && is_sharded(result)) {
    result.unsafeGetTensorImpl()->set_sizes_and_strides(
        self.sizes(), self.is_non_overlapping_and_dense()
                          ? self.strides().vec()
                          : at::infer_dense_strides(self.sizes(), self.strides()));
  }
}

/// A number out of a tensor of one element.
void local_scalar(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const BelowAutograd below;
  BoxedCall call(op, stack);
  call[0] = gather(call[0].toTensor());
  op.callBoxed(stack);
}

std::vector<std::int64_t> contiguous_strides(const Dims& sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * std::max<std::int64_t>(sizes[d], 1);
  }
  return strides;
}

/// new_zeros and its like: tile by tile if the sizes are the same, else an ordinary tensor.
void new_tensor(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operation operation(op.schema().name().c_str());
  const BelowAutograd below;
  BoxedCall call(op, stack);
  const Tensor self = call[0].toTensor();
  const ShardedTensorImpl& sharded = *impl(self);
  const auto size = call[1].toIntVector();
  if (at::IntArrayRef(size) != self.sizes()) {
    call[0] = sharded.tiles()[0];
    op.callBoxed(stack);
    return;
  }
  const bool is_strided = op.schema().name() == "aten::new_empty_strided";
  const auto arguments = call.take();
  auto tiles = make_tiles(*sharded.mesh(), *sharded.layout(), [&](int i) {
    Stack own(arguments.begin(), arguments.end());
    const Dims sizes = sharded.layout()->region(i).sizes();
    own[0] = sharded.tiles()[i];
    own[1] = std::vector<std::int64_t>(sizes.begin(), sizes.end());
    if (is_strided) own[2] = contiguous_strides(sizes);
    op.callBoxed(&own);
    return own.back().toTensor();
  });
  Dims strides(self.strides().begin(), self.strides().end());
  if (is_strided) {
    const auto wanted = arguments[2].toIntVector();
    strides.assign(wanted.begin(), wanted.end());
    stack->emplace_back(wrap_view(sharded.mesh(), sharded.layout(), std::move(tiles), strides, 0));
  } else {
    stack->emplace_back(wrap(sharded.mesh(), sharded.layout(), std::move(tiles)));
  }
}

/// Of one of the names, or the form of one that works in place.
bool is_pointwise(std::string name) {
  if (pointwise_names().contains(name)) return true;
  if (!name.ends_with('_')) return false;
  name.pop_back();
  return pointwise_names().contains(name);
}

/// The only argument that is changed is the last one.
bool gives_one_out(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  const auto count = std::count_if(arguments.begin(), arguments.end(),
                                   [](const c10::Argument& each) { return each.is_out(); });
  return count == 1 && arguments.back().is_out();
}

}  // namespace

void register_pointwise(torch::Library& library) {
  library.impl("_local_scalar_dense", boxed<&local_scalar>());
  for (const char* name : {"empty_like", "clone"}) library.impl(name, boxed<&empty_like_boxed>());
  for (const char* name : {"new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided"}) {
    library.impl(name, boxed<&new_tensor>());
  }
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("aten::") || !is_pointwise(name.name.substr(6))) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) continue;
    const auto full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    if (full == "aten::clone") continue;  // above
    const bool has_out = name.overload_name.starts_with("out") ||
                         name.overload_name.find("_out") != std::string::npos;
    if (!has_out) {
      library.impl(full.c_str(), boxed<&pointwise>());
    } else if (gives_one_out(op->schema())) {
      library.impl(full.c_str(), boxed<&pointwise_out>());
    }
  }
}

}  // namespace cohort::spmd
