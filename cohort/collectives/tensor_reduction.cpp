#include "cohort/collectives/tensor_reduction.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "cohort/base/error.h"
#include "cohort/base/whole_tensor.h"
#include "cohort/collectives/ordered_sum.h"

namespace cohort::collectives {
namespace {

/// The tree of ordered_sum.h with LibTorch's own addition: for devices and layouts that the kernel
/// does not read.
at::Tensor add_in_order(std::span<const at::Tensor> values, Node node) {
  const auto value_of = [&](Node part) {
    return part.is_leaf() ? std::optional(values[part.lo - node.lo]) : std::nullopt;
  };
  return add_up(node, value_of, [](const at::Tensor& left, const at::Tensor& right) {
    return left + right.to(left.device());
  });
}

/// In one pass over memory, with the division.
at::Tensor add_with_kernel(std::span<const at::Tensor> values, Node node, double divisor) {
  std::vector<at::Tensor> contiguous;
  std::vector<const void*> leaves;
  std::vector<Node> replicas;
  for (const at::Tensor& value : values) {
    contiguous.push_back(as_read(value));
    leaves.push_back(contiguous.back().data_ptr());
    const int id = node.lo + static_cast<int>(replicas.size());
    replicas.push_back({id, id + 1});
  }
  at::Tensor result = at::empty(values[0].sizes(), values[0].options());
  void* const output = result.data_ptr();
  ordered_sum(values[0].scalar_type(), SumPlan(replicas), leaves, {&output, 1}, {0, result.numel()},
              divisor);
  return result;
}

/// The sum or mean of dense tensors that are alike.
at::Tensor reduce_dense(ReduceOp op, std::span<const at::Tensor> values) {
  const Division division(op, values[0], values.size());
  const Node all{0, static_cast<int>(values.size())};
  return division.finish(sum_in_tree(values, all, division.in_kernel));
}

at::Tensor concatenate_sparse(ReduceOp op, std::span<const at::Tensor> values) {
  std::vector<at::Tensor> indices, entries;
  for (const at::Tensor& value : values) {
    indices.push_back(value._indices());
    entries.push_back(value._values());
  }
  const at::Tensor all = at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), at::cat(entries),
                                                       values[0].sizes(), values[0].options());
  return op == ReduceOp::MEAN ? quotient(all, values.size()) : all;
}

bool is_sparse(const at::Tensor& value) { return value.defined() && value.is_sparse(); }

/// True if some replicas have sparse rows and others the whole.
bool differ_in_layout(std::span<const at::Tensor> values) {
  const auto sparse = std::count_if(values.begin(), values.end(), is_sparse);
  return sparse != 0 && sparse != static_cast<std::ptrdiff_t>(values.size());
}

std::vector<at::Tensor> all_dense(std::span<const at::Tensor> values) {
  std::vector<at::Tensor> dense;
  for (const at::Tensor& value : values) {
    dense.push_back(is_sparse(value) ? value.to_dense() : value);
  }
  return dense;
}

/// Throws if there are several values, and one has no sizes to compare.
void check_sized(const char* where, std::span<const at::Tensor> values, int first_replica) {
  for (std::size_t r = 0; values.size() > 1 && r < values.size(); ++r) {
    if (!values[r].is_nested()) continue;
    throw InvalidArgument(where, cat("replica ", first_replica + r, " gave ", describe(values[r]),
                                     ": expected a tensor of one size, ", kPadIt));
  }
}

std::int64_t checked_axis(const char* where, std::int64_t axis, std::int64_t rank) {
  if (rank == 0) throw ValueError(where, "scalars can't be gathered: expected rank >= 1, got 0");
  if (axis < -rank || axis >= rank) {
    throw ValueError(where, cat("axis out of range: expected ", -rank, " to ", rank - 1,
                                " for rank ", rank, ", got ", axis));
  }
  return axis < 0 ? axis + rank : axis;
}

void check_gatherable(const char* where, std::span<const at::Tensor> values, std::int64_t axis) {
  check_sized(where, values, 0);
  for (std::size_t r = 1; r < values.size(); ++r) {
    if (values[r].dtype() != values[0].dtype()) {
      throw InvalidArgument(
          where,
          cat("the replicas' dtypes differ: expected ", c10::toString(values[0].scalar_type()),
              " as on replica 0, got ", c10::toString(values[r].scalar_type()), " on replica ", r,
              "; convert them to one with .to()"));
    }
    auto expected = values[0].sizes().vec();
    auto got = values[r].sizes().vec();
    const bool fits = expected.size() == got.size();
    if (fits) expected[axis] = got[axis] = 0;
    if (fits && expected == got) continue;
    throw InvalidArgument(where, cat("Shape mismatch: replica ", r, " has ", describe(values[r]),
                                     " where replica 0 has ", describe(values[0]),
                                     ": Dimension sizes must be equal "
                                     "except along axis ",
                                     axis));
  }
}

/// Throws unless all tensors have the dtype and the shape of the first, and its layout if asked.
void check_alike(const char* where, std::span<const at::Tensor> values, int first_replica,
                 bool layouts_too) {
  check_defined(where, values, first_replica);
  check_sized(where, values, first_replica);
  const at::Tensor& first = values[0];
  for (std::size_t r = 1; r < values.size(); ++r) {
    const at::Tensor& value = values[r];
    const bool same = value.dtype() == first.dtype() && value.sizes() == first.sizes() &&
                      (!layouts_too || value.layout() == first.layout());
    if (same) continue;
    throw InvalidArgument(
        where, cat("the replicas' tensors differ: expected ", describe(first), " as on replica ",
                   first_replica, ", got ", describe(value), " on replica ", first_replica + r,
                   value.dtype() == first.dtype()
                       ? "; give an axis to reduce over batches of different sizes"
                       : "; convert them to one dtype with .to()"));
  }
}

}  // namespace

namespace {

/// Those of a nested tensor are its components', a row for each.
std::string sizes_of(const at::Tensor& tensor) {
  if (!tensor.is_nested()) return cat(tensor.sizes());
  constexpr std::int64_t kShown = 4;
  const at::Tensor sizes = tensor._nested_tensor_size();
  const std::int64_t count = sizes.dim() > 0 ? sizes.size(0) : 0;
  std::string text;
  for (std::int64_t i = 0; i < count && i < kShown; ++i) {
    const at::Tensor row = sizes[i].contiguous();
    text += cat(i ? ", " : "[", at::IntArrayRef(row.data_ptr<std::int64_t>(), row.numel()));
  }
  if (count > kShown) text += cat(" and ", count - kShown, " more");
  return text.empty() ? "[]" : text + "]";
}

}  // namespace

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  const char* const kind = tensor.is_nested() ? "nested " : tensor.is_sparse() ? "sparse " : "";
  const std::string text = cat(kind, c10::toString(tensor.scalar_type()), ' ');
  try {
    return text + sizes_of(tensor);
  } catch (const std::exception&) {  // a kind of tensor that keeps its sizes to itself
    return text + "of unknown sizes";
  }
}

void check_defined(const char* where, std::span<const at::Tensor> values, int first_replica) {
  for (std::size_t r = 0; r < values.size(); ++r) {
    if (values[r].defined()) continue;
    throw ValueError(where, cat("replica ", first_replica + r,
                                " gave an undefined tensor: expected one with values on every "
                                "replica; give zeros where there is nothing to add"));
  }
}

void check_same(const char* where, std::span<const at::Tensor> values, int first_replica) {
  check_alike(where, values, first_replica, /*layouts_too=*/true);
}

void check_reducible(const char* where, std::span<const at::Tensor> values, int first_replica) {
  check_alike(where, values, first_replica, /*layouts_too=*/false);
  if (values.size() > 1 && !values[0].is_sparse()) check_addable(where, values[0].scalar_type());
}

void check_addable(const char* where, c10::ScalarType dtype) {
  if (has_ordered_sum(dtype)) return;
  throw InvalidArgument(where, cat("values of type ", c10::toString(dtype),
                                   " cannot be added: cast them to a number type"));
}

bool kernel_reads(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && !tensor.is_nested();
}

c10::ScalarType quotient_dtype(c10::ScalarType dtype) {
  if (!c10::isIntegralType(dtype, /*includeBool=*/true)) return dtype;
  return c10::elementSize(dtype) <= 2 ? at::kFloat : at::kDouble;
}

at::Tensor quotient(const at::Tensor& sum, std::size_t count) {
  const auto dtype = quotient_dtype(sum.scalar_type());
  if (!sum.is_sparse()) return sum.to(dtype).div(static_cast<double>(count));
  return at::_sparse_coo_tensor_unsafe(sum._indices(), quotient(sum._values(), count), sum.sizes(),
                                       sum.options().dtype(dtype));
}

Division::Division(ReduceOp op, const at::Tensor& like, std::size_t count) {
  if (op != ReduceOp::MEAN) return;
  const bool by_kernel =
      kernel_reads(like) && quotient_dtype(like.scalar_type()) == like.scalar_type();
  if (by_kernel) {
    in_kernel = static_cast<double>(count);
  } else {
    afterwards = count;
  }
}

at::Tensor sum_in_tree(std::span<const at::Tensor> values, Node node, double divisor) {
  if (node.is_leaf()) return values[0];
  return kernel_reads(values[0]) ? add_with_kernel(values, node, divisor)
                                 : add_in_order(values, node);
}

at::Tensor reduce_tensors(ReduceOp op, std::span<const at::Tensor> values) {
  if (differ_in_layout(values)) return reduce_tensors(op, all_dense(values));
  check_same("reduce", values);
  if (values.size() == 1) return values[0].clone();
  if (values[0].is_sparse()) return concatenate_sparse(op, values);
  return reduce_dense(op, values);
}

at::Tensor reduce_tensors(ReduceOp op, std::span<const at::Tensor> values,
                          const Accumulation& accumulation) {
  if (!accumulation) return reduce_tensors(op, values);
  const at::Tensor result = accumulation(values);
  return op == ReduceOp::MEAN ? quotient(result, values.size()) : result;
}

at::Tensor gather_tensors(const char* where, std::span<const at::Tensor> values,
                          std::int64_t axis) {
  check_defined(where, values);
  if (values.size() == 1) return values[0].is_sparse() ? values[0].to_dense() : values[0];
  axis = checked_axis(where, axis, values[0].dim());
  check_gatherable(where, values, axis);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& value : values) {
    const at::Tensor dense = value.is_sparse() ? value.to_dense() : value;
    parts.push_back(dense.to(values[0].device()));
  }
  return at::cat(parts, axis);
}

}  // namespace cohort::collectives
