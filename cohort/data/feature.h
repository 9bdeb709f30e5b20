#pragma once

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/io/example.h"

namespace cohort::data {

/// What `parse_example` makes of one feature: of which kind it must be, and of which shape. What
/// changes or reads it gives a value, not a reference, when the feature is a temporary.
///
///     Feature::int64()                              // one number
///     Feature::float32().shape({3}).default_value(0)   // three, or zeros where it is missing
///     Feature::bytes().variable()                   // any number of strings
///     Feature::raw(torch::kByte, {28, 28})          // an image as its bytes
class Feature {
 public:
  /// A list of byte strings, which become Strings.
  static Feature bytes();

  /// A list of numbers, which become a tensor of type kLong.
  static Feature int64();

  /// A list of numbers, which become a tensor of type kFloat.
  static Feature float32();

  /// One byte string that is the memory of a tensor, little-endian.
  static Feature raw(at::ScalarType dtype, std::vector<std::int64_t> sizes);

  /// The shape that the values of each record have; one value without dimensions if not said.
  /// Throws ValueError for a negative size, and after `variable` or `raw`.
  Feature& shape(std::vector<std::int64_t> sizes) &;
  Feature shape(std::vector<std::int64_t> sizes) && { return shape(std::move(sizes)); }

  /// Each record may have another number of values, none too. Throws ValueError after `raw`.
  Feature& variable() &;
  Feature variable() && { return variable(); }

  /// What a record without this feature gets, in every place. A variable one gets no values then,
  /// and the default fills up the rows of a batch that are shorter than others. Throws ValueError
  /// for a number where strings are expected, or the other way round.
  Feature& default_value(std::string_view value) &;
  Feature default_value(std::string_view value) && { return default_value(value); }
  template <class Number>
    requires std::is_arithmetic_v<Number>
  Feature& default_value(Number value) & {
    using Widest = std::conditional_t<std::is_floating_point_v<Number>, double, std::int64_t>;
    return default_number(static_cast<Widest>(value));
  }
  template <class Number>
    requires std::is_arithmetic_v<Number>
  Feature default_value(Number value) && {
    return default_value(value);
  }

  io::FeatureKind kind() const { return kind_; }
  at::ScalarType dtype() const { return dtype_; }
  const std::vector<std::int64_t>& sizes() const& { return sizes_; }
  std::vector<std::int64_t> sizes() const&& { return sizes_; }
  bool is_variable() const { return is_variable_; }
  bool is_raw() const { return is_raw_; }

  /// The default, if there is one.
  const std::optional<at::Scalar>& number() const& { return number_; }
  const std::optional<std::string>& string() const& { return string_; }
  std::optional<at::Scalar> number() const&& { return number_; }
  std::optional<std::string> string() const&& { return string_; }

  /// The number of values of a record; of bytes, if it is raw.
  std::int64_t count() const { return count_; }

 private:
  Feature(io::FeatureKind kind, at::ScalarType dtype) : kind_(kind), dtype_(dtype) {}
  Feature& default_number(const at::Scalar& value);

  io::FeatureKind kind_;
  at::ScalarType dtype_;
  std::vector<std::int64_t> sizes_;
  std::int64_t count_ = 1;
  bool is_variable_ = false;
  bool is_raw_ = false;
  std::optional<at::Scalar> number_;
  std::optional<std::string> string_;
};

}  // namespace cohort::data
