#include "cohort/data/sources.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "cohort/base/whole_tensor.h"

namespace cohort::data {
namespace detail {

at::Tensor as_rows(const at::Tensor& tensor) {
  const bool is_dense = tensor.defined() && tensor.layout() == at::kStrided;
  return is_dense ? as_read(tensor.detach()) : tensor;
}

at::Tensor gather_rows(const at::Tensor& tensor, std::span<const std::int64_t> rows) {
  if (!tensor.is_cpu() || tensor.layout() != at::kStrided) {
    const at::Tensor numbers = at::tensor(at::ArrayRef<std::int64_t>(rows.data(), rows.size()));
    return tensor.index_select(0, numbers.to(tensor.device()));
  }
  auto sizes = tensor.sizes().vec();
  const std::size_t bytes = sizes[0] ? tensor.nbytes() / sizes[0] : 0;
  sizes[0] = static_cast<std::int64_t>(rows.size());
  at::Tensor result = at::empty(sizes, tensor.options());
  const auto* from = static_cast<const char*>(tensor.data_ptr());
  auto* to = static_cast<char*>(result.data_ptr());
  for (const std::int64_t row : rows) {
    std::memcpy(to, from + row * bytes, bytes);
    to += bytes;
  }
  return result;
}

Strings gather_rows(const Strings& strings, std::span<const std::int64_t> rows) {
  std::vector<Strings> all;
  all.reserve(rows.size());
  for (const std::int64_t row : rows) all.push_back(strings.select(row));
  if (all.empty()) return strings.slice(0, 0);
  return Strings::stack(std::span<const Strings>(all));
}

std::int64_t common_rows(std::span<const std::int64_t> rows) {
  if (rows.empty()) throw ValueError("from_tensor_slices", "the nest has no tensors");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0) {
      throw ValueError("from_tensor_slices",
                       cat("leaf ", i, " has no dimensions: expected a first one to slice along"));
    }
    if (rows[i] == rows[0]) continue;
    throw ValueError("from_tensor_slices",
                     cat("the leaves differ in their first dimension: ", "expected ", rows[0],
                         ", got ", rows[i], " in leaf ", i));
  }
  return rows[0];
}

}  // namespace detail

RangeRows::RangeRows(std::int64_t start, std::int64_t stop, std::int64_t step)
    : start_(start), step_(step) {
  if (step == 0) throw ValueError("data::range", "the step must not be 0");
  const std::int64_t way = step > 0 ? stop - start : start - stop;
  const std::int64_t stride = std::abs(step);
  size_ = std::max<std::int64_t>(0, way / stride + (way % stride > 0));
}

at::Tensor RangeRows::gather(std::span<const std::int64_t> rows) const {
  at::Tensor result = at::empty({static_cast<std::int64_t>(rows.size())}, at::kLong);
  auto* out = result.data_ptr<std::int64_t>();
  for (const std::int64_t row : rows) *out++ = at(row);
  return result;
}

}  // namespace cohort::data
