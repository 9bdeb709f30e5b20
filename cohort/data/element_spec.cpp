#include "cohort/data/element_spec.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <map>
#include <ostream>

namespace cohort::data {
namespace {

template <class Change>
std::vector<LeafSpec> changed(std::vector<LeafSpec> leaves, Change change) {
  for (LeafSpec& leaf : leaves) change(leaf.shape);
  return leaves;
}

/// Unlike dimensions are unknown; shapes of unlike rank, or dtypes, have nothing in common.
std::optional<LeafSpec> common(const LeafSpec& a, const LeafSpec& b) {
  if (a.dtype != b.dtype || a.shape.size() != b.shape.size()) return std::nullopt;
  LeafSpec result = a;
  for (std::size_t i = 0; i < a.shape.size(); ++i) {
    if (a.shape[i] != b.shape[i]) result.shape[i] = LeafSpec::kUnknown;
  }
  return result;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const LeafSpec& leaf) {
  out << leaf.dtype << '[';
  for (std::size_t i = 0; i < leaf.shape.size(); ++i) {
    out << (i ? ", " : "");
    if (leaf.shape[i] == LeafSpec::kUnknown) {
      out << '?';
    } else {
      out << leaf.shape[i];
    }
  }
  return out << ']';
}

std::ostream& operator<<(std::ostream& out, const ElementSpec& spec) {
  if (!spec.known_) return out << "unknown";
  std::size_t leaf = 0;
  for (const char c : spec.pattern_) {
    if (c == '%') {
      out << spec.leaves_[leaf++];
    } else {
      out << c;
    }
  }
  return out;
}

ElementSpec ElementSpec::batched(std::int64_t rows) const {
  if (!known_) return {};
  return {changed(leaves_, [&](auto& shape) { shape.insert(shape.begin(), rows); }), pattern_};
}

ElementSpec ElementSpec::unbatched() const {
  const auto scalar = [](const LeafSpec& leaf) { return leaf.shape.empty(); };
  if (!known_ || std::any_of(leaves_.begin(), leaves_.end(), scalar)) return {};
  return {changed(leaves_, [](auto& shape) { shape.erase(shape.begin()); }), pattern_};
}

ElementSpec ElementSpec::with_rows(std::int64_t rows) const {
  if (!known_) return {};
  return {changed(leaves_,
                  [&](auto& shape) {
                    if (!shape.empty()) shape[0] = rows;
                  }),
          pattern_};
}

ElementSpec ElementSpec::common_with(const ElementSpec& other) const {
  if (!known_ || !other.known_ || pattern_ != other.pattern_) return {};
  ElementSpec result = *this;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    const auto leaf = common(leaves_[i], other.leaves_[i]);
    if (!leaf) return {};
    result.leaves_[i] = *leaf;
  }
  return result;
}

ElementSpec ElementSpec::tuple(const std::vector<ElementSpec>& parts) {
  std::vector<LeafSpec> leaves;
  std::string pattern;
  for (const ElementSpec& part : parts) {
    if (!part.known_) return {};
    leaves.insert(leaves.end(), part.leaves_.begin(), part.leaves_.end());
    pattern += (pattern.empty() ? "" : ", ") + part.pattern_;
  }
  return {std::move(leaves), "(" + pattern + ")"};
}

namespace {

const std::map<c10::ScalarType, std::string>& dtype_names() {
  static const std::map<c10::ScalarType, std::string> names = {{at::kByte, "uint8"},
                                                               {at::kChar, "int8"},
                                                               {at::kShort, "int16"},
                                                               {at::kInt, "int32"},
                                                               {at::kLong, "int64"},
                                                               {at::kHalf, "float16"},
                                                               {at::kFloat, "float32"},
                                                               {at::kDouble, "float64"},
                                                               {at::kBool, "bool"},
                                                               {at::kBFloat16, "bfloat16"},
                                                               {at::kComplexFloat, "complex64"},
                                                               {at::kComplexDouble, "complex128"}};
  return names;
}

}  // namespace

c10::ScalarType dtype_of_name(const std::string& name) {
  for (const auto& [dtype, its_name] : dtype_names()) {
    if (its_name == name) return dtype;
  }
  throw ValueError("LeafSpec", cat("no tensor has the dtype ", name));
}

std::string detail::dtype_name(c10::ScalarType dtype) {
  const auto found = dtype_names().find(dtype);
  return found == dtype_names().end() ? c10::toString(dtype) : found->second;
}

}  // namespace cohort::data
