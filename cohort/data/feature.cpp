#include "cohort/data/feature.h"

#include <c10/util/ArrayRef.h>

#include <limits>
#include <utility>

#include "cohort/base/error.h"

namespace cohort::data {
namespace {

/// The product of `first` and the sizes.
std::int64_t checked_count(std::int64_t first, const std::vector<std::int64_t>& sizes) {
  for (const std::int64_t size : sizes) {
    if (size < 0 || (size > 0 && first > std::numeric_limits<std::int64_t>::max() / size)) {
      throw ValueError("Feature", cat("expected sizes of an array, got ", c10::IntArrayRef(sizes)));
    }
    first *= size;
  }
  return first;
}

}  // namespace

Feature Feature::bytes() { return {io::FeatureKind::BYTES, at::kByte}; }
Feature Feature::int64() { return {io::FeatureKind::INT64, at::kLong}; }
Feature Feature::float32() { return {io::FeatureKind::FLOAT, at::kFloat}; }

Feature Feature::raw(at::ScalarType dtype, std::vector<std::int64_t> sizes) {
  Feature feature(io::FeatureKind::BYTES, dtype);
  feature.is_raw_ = true;
  feature.count_ = checked_count(static_cast<std::int64_t>(c10::elementSize(dtype)), sizes);
  feature.sizes_ = std::move(sizes);
  return feature;
}

Feature& Feature::shape(std::vector<std::int64_t> sizes) & {
  if (is_variable_ || is_raw_) {
    throw ValueError("Feature::shape", is_raw_ ? "a raw feature has its shape already"
                                               : "a variable feature has no fixed shape");
  }
  count_ = checked_count(1, sizes);
  sizes_ = std::move(sizes);
  return *this;
}

Feature& Feature::variable() & {
  if (is_raw_ || !sizes_.empty()) {
    throw ValueError("Feature::variable", "the feature has a shape already");
  }
  is_variable_ = true;
  return *this;
}

Feature& Feature::default_value(std::string_view value) & {
  if (kind_ != io::FeatureKind::BYTES || is_raw_) {
    throw ValueError("Feature::default_value",
                     cat("expected a number, got the string \"", value, '"'));
  }
  string_ = value;
  return *this;
}

Feature& Feature::default_number(const at::Scalar& value) {
  if (kind_ == io::FeatureKind::BYTES && !is_raw_) {
    throw ValueError("Feature::default_value",
                     cat("expected a string, got the number ", value.toDouble()));
  }
  number_ = value;
  return *this;
}

}  // namespace cohort::data
