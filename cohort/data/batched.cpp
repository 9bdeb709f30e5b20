#include "cohort/data/batched.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "cohort/base/error.h"

namespace cohort::data {
namespace detail {
namespace {

/// Rows that lie in memory as one block each can be copied without LibTorch's help.
bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.is_contiguous() &&
         !tensor.is_conj() && !tensor.is_neg() && !tensor.requires_grad();
}

void check_alike(const at::Tensor& first, const at::Tensor& other, std::size_t index) {
  if (!other.defined()) {
    throw InvalidArgument("dataset.batch", cat("element ", index, " has an undefined tensor"));
  }
  if (other.scalar_type() != first.scalar_type()) {
    throw InvalidArgument("dataset.batch", cat("element ", index, " has another dtype: expected ",
                                               c10::toString(first.scalar_type()), ", got ",
                                               c10::toString(other.scalar_type())));
  }
  if (other.sizes() == first.sizes()) return;
  throw InvalidArgument("dataset.batch", cat("element ", index, " has another shape: expected ",
                                             first.sizes(), ", got ", other.sizes(),
                                             "; padded_batch takes elements of different lengths"));
}

}  // namespace

at::Tensor stack_tensors(std::span<const at::Tensor* const> tensors) {
  const at::Tensor& first = *tensors[0];
  bool plain = true;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_alike(first, *tensors[i], i);
    plain = plain && is_plain(*tensors[i]);
  }
  if (!plain) {
    std::vector<at::Tensor> all;
    for (const at::Tensor* tensor : tensors) all.push_back(*tensor);
    return at::stack(all);
  }
  auto sizes = first.sizes().vec();
  sizes.insert(sizes.begin(), static_cast<std::int64_t>(tensors.size()));
  at::Tensor result = at::empty(sizes, first.options());
  auto* out = static_cast<char*>(result.data_ptr());
  const std::size_t bytes = first.nbytes();
  for (std::size_t i = 0; bytes && i < tensors.size(); ++i) {
    std::memcpy(out + i * bytes, tensors[i]->data_ptr(), bytes);
  }
  return result;
}

at::Tensor stack_numbers(const void* numbers, std::int64_t count, c10::ScalarType dtype) {
  at::Tensor result = at::empty({count}, dtype);
  if (count) std::memcpy(result.data_ptr(), numbers, result.nbytes());
  return result;
}

at::Tensor stack_bools(const std::vector<bool>& bools) {
  at::Tensor result = at::empty({static_cast<std::int64_t>(bools.size())}, at::kBool);
  std::copy(bools.begin(), bools.end(), result.data_ptr<bool>());
  return result;
}

std::vector<at::Tensor> stack_bools(std::span<const std::vector<bool>* const> vectors) {
  const std::size_t length = vectors[0]->size();
  std::vector<std::vector<bool>> places(length);
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    if (vectors[i]->size() != length) {
      throw ValueError("dataset.batch", cat("element ", i, " has another length: expected ", length,
                                            ", got ", vectors[i]->size()));
    }
    for (std::size_t p = 0; p < length; ++p) places[p].push_back((*vectors[i])[p]);
  }
  std::vector<at::Tensor> stacks;
  for (const std::vector<bool>& place : places) stacks.push_back(stack_bools(place));
  return stacks;
}

Strings stack_strings(std::span<const std::string* const> strings) {
  std::vector<std::string_view> views;
  views.reserve(strings.size());
  for (const std::string* string : strings) views.emplace_back(*string);
  return Strings(std::span<const std::string_view>(views));
}

Strings stack_strings(std::span<const Strings* const> strings) {
  std::vector<Strings> all;
  all.reserve(strings.size());
  for (const Strings* each : strings) all.push_back(*each);
  return Strings::stack(std::span<const Strings>(all));
}

void check_same_leaves(std::size_t got, std::size_t expected) {
  if (got == expected) return;
  throw InvalidArgument("dataset.batch", cat("the elements differ in their number of tensors: "
                                             "expected ",
                                             expected, ", got ", got));
}

at::Tensor join_tensors(std::span<const at::Tensor* const> tensors) {
  std::vector<at::Tensor> all;
  all.reserve(tensors.size());
  for (const at::Tensor* tensor : tensors) all.push_back(*tensor);
  return at::cat(all);
}

Strings join_strings(std::span<const Strings* const> strings) {
  std::vector<Strings> all;
  all.reserve(strings.size());
  for (const Strings* each : strings) all.push_back(*each);
  return Strings::cat(std::span<const Strings>(all));
}

at::Tensor select_row(const at::Tensor& batch, std::int64_t row) { return batch.select(0, row); }

}  // namespace detail

std::int64_t count_rows(const at::Tensor& batch) { return batch.dim() ? batch.size(0) : -1; }
std::int64_t count_rows(const Strings& batch) { return batch.dim() ? batch.size(0) : -1; }

at::Tensor slice_rows(const at::Tensor& batch, std::int64_t from, std::int64_t to) {
  const std::int64_t rows = batch.size(0);
  from = std::min(from, rows);
  to = std::clamp(to, from, rows);
  if (batch.is_sparse()) return at::narrow_copy(batch, 0, from, to - from);
  return batch.narrow(0, from, to - from);
}

Strings slice_rows(const Strings& batch, std::int64_t from, std::int64_t to) {
  const std::int64_t rows = batch.size(0);
  from = std::min(from, rows);
  return batch.slice(from, std::clamp(to, from, rows));
}

}  // namespace cohort::data
