#pragma once

#include <ATen/core/Tensor.h>

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "cohort/data/strings.h"
#include "cohort/values/nest.h"

namespace cohort::data {

/// What is known of a leaf of all elements: its dtype and shape.
struct LeafSpec {
  static constexpr std::int64_t kUnknown = -1;

  std::string dtype;                ///< "float32", "string"; as TensorFlow and NumPy spell them.
  std::vector<std::int64_t> shape;  ///< kUnknown for a dimension that differs or is not known.

  friend bool operator==(const LeafSpec&, const LeafSpec&) = default;
};

std::ostream& operator<<(std::ostream& out, const LeafSpec& leaf);

/// The dtype of such a name. Throws ValueError for one that no tensor has.
c10::ScalarType dtype_of_name(const std::string& name);

/// What is known of the elements of a dataset before they are made. Prints as
/// `(float32[?, 28, 28], int64[?])`, or as `unknown`.
class ElementSpec {
 public:
  ElementSpec() = default;
  ElementSpec(std::vector<LeafSpec> leaves, std::string pattern)
      : known_(true), leaves_(std::move(leaves)), pattern_(std::move(pattern)) {}

  bool known() const { return known_; }
  const std::vector<LeafSpec>& leaves() const& { return leaves_; }
  std::vector<LeafSpec> leaves() const&& { return leaves_; }

  /// The spec of batches of such elements, of `rows` rows or of kUnknown.
  ElementSpec batched(std::int64_t rows) const;
  /// The spec of the rows of such batches.
  ElementSpec unbatched() const;
  /// With another first dimension in every leaf that has one.
  ElementSpec with_rows(std::int64_t rows) const;
  /// What holds for elements of both.
  ElementSpec common_with(const ElementSpec& other) const;
  /// A tuple of specs, as `zip` and `enumerate` make elements.
  static ElementSpec tuple(const std::vector<ElementSpec>& parts);

  friend bool operator==(const ElementSpec&, const ElementSpec&) = default;
  friend std::ostream& operator<<(std::ostream& out, const ElementSpec& spec);

 private:
  bool known_ = false;
  std::vector<LeafSpec> leaves_;
  std::string pattern_;  // with a '%' for each leaf
};

namespace detail {

std::string dtype_name(c10::ScalarType dtype);

/// Sees a nest's structure through nest::visit.
struct SpecVisitor {
  std::vector<LeafSpec> leaves;
  std::string pattern;
  bool first = true;

  void open(const char* bracket) {
    separate();
    pattern += bracket;
    first = true;
  }
  void close(const char* bracket) {
    pattern += bracket;
    first = false;
  }
  template <class Key>
  void key(const Key& key) {
    separate();
    pattern += cat(key, ": ");
    first = true;
  }
  template <class T>
  void operator()(const T& leaf) {
    separate();
    pattern += '%';
    leaves.push_back(spec_of_leaf(leaf));
  }

 private:
  void separate() {
    if (!first) pattern += ", ";
    first = false;
  }
  static LeafSpec spec_of_leaf(const at::Tensor& leaf) {
    if (!leaf.defined()) return {"undefined", {}};
    return {dtype_name(leaf.scalar_type()), leaf.sizes().vec()};
  }
  static LeafSpec spec_of_leaf(const Strings& leaf) { return {"string", leaf.sizes().vec()}; }
  static LeafSpec spec_of_leaf(const std::string&) { return {"string", {}}; }
  template <class T>
  static LeafSpec spec_of_leaf(const T&) {
    if constexpr (std::is_same_v<T, bool>) {
      return {"bool", {}};
    } else if constexpr (std::is_integral_v<T>) {
      return {(std::is_unsigned_v<T> ? "uint" : "int") + std::to_string(8 * sizeof(T)), {}};
    } else if constexpr (std::is_floating_point_v<T>) {
      return {"float" + std::to_string(8 * sizeof(T)), {}};
    } else {
      return {"object", {}};
    }
  }
};

}  // namespace detail

/// The spec of exactly this element.
template <class T>
ElementSpec spec_of(const T& element) {
  detail::SpecVisitor visitor;
  nest::visit(visitor, element);
  return ElementSpec(std::move(visitor.leaves), std::move(visitor.pattern));
}

}  // namespace cohort::data
