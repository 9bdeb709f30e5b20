#include "cohort/data/batch.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace cohort::data {

std::int64_t batches_of(std::int64_t elements, std::int64_t size, bool drop_remainder) {
  if (elements < 0) return elements;
  return elements / size + (!drop_remainder && elements % size != 0);
}

void check_batch_size(std::int64_t size, const char* where) {
  if (size < 1) throw InvalidArgument(where, cat("the size must be positive, got ", size));
}

namespace detail {

at::Tensor pad_to(const at::Tensor& tensor, const std::vector<std::int64_t>& shape, double value) {
  if (tensor.sizes() == at::IntArrayRef(shape)) return tensor;
  at::Tensor result = at::full(shape, value, tensor.options());
  at::Tensor inside = result;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) inside = inside.narrow(d, 0, tensor.size(d));
  inside.copy_(tensor);
  return result;
}

std::vector<std::int64_t> common_shape(const std::vector<std::vector<std::int64_t>>& shapes,
                                       const std::vector<std::int64_t>* wanted) {
  if (shapes.empty()) return {};
  constexpr const char* kWhere = "dataset.padded_batch";
  std::vector<std::int64_t> longest = shapes[0];
  for (const auto& shape : shapes) {
    if (shape.size() != longest.size()) {
      throw InvalidArgument(kWhere, cat("the elements differ in rank: expected ", longest.size(),
                                        ", got ", shape.size()));
    }
    for (std::size_t d = 0; d < shape.size(); ++d) longest[d] = std::max(longest[d], shape[d]);
  }
  if (!wanted) return longest;
  if (wanted->size() != longest.size()) {
    throw InvalidArgument(kWhere, cat("a padded shape has another rank than its leaf: expected ",
                                      longest.size(), ", got ", wanted->size()));
  }
  for (std::size_t d = 0; d < longest.size(); ++d) {
    if ((*wanted)[d] < 0) continue;
    if (longest[d] > (*wanted)[d]) {
      throw InvalidArgument(kWhere,
                            cat("an element is longer than its padded shape in dimension ", d,
                                ": expected at most ", (*wanted)[d], ", got ", longest[d]));
    }
    longest[d] = (*wanted)[d];
  }
  return longest;
}

}  // namespace detail
}  // namespace cohort::data
