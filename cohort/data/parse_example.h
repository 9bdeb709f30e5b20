#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <string_view>

#include "cohort/data/feature.h"
#include "cohort/data/strings.h"

namespace cohort::data {

/// What to take out of a tf.train.Example.
struct ParseOptions {
  std::map<std::string, Feature> features = {};  ///< By name; others in a record are skipped.
};

/// What was taken out, by the names of the features.
struct ParsedExample {
  std::map<std::string, at::Tensor> tensors;  ///< Of numbers, and of raw features.
  std::map<std::string, Strings> strings;     ///< Of bytes.
  std::map<std::string, at::Tensor> lengths;  ///< Of variable features: the number of values.

  /// One of them. Throws KeyError, with the names that there are, if there is none.
  const at::Tensor& tensor(std::string_view name) const&;
  const Strings& string(std::string_view name) const&;
  const at::Tensor& length(std::string_view name) const&;
  at::Tensor tensor(std::string_view name) const&& { return tensor(name); }
  Strings string(std::string_view name) const&& { return string(name); }
  at::Tensor length(std::string_view name) const&& { return length(name); }
};

/// Parses one record: a feature has the shape that was said, a variable one has one dimension.
///
///     auto parsed = data::parse_example(bytes, {.features = {{"image", data::Feature::bytes()},
///                                                            {"label", data::Feature::int64()}}});
///     parsed.tensor("label");
///
/// Throws InvalidArgument, with the number of the record in the batch, the name of the feature, and
/// what was expected, for a record that lacks a feature without a default, that has another kind or
/// number of values, or that is no Example.
ParsedExample parse_example(std::string_view record, const ParseOptions& options);

/// Parses a batch of records at once, an array with one dimension, which is much faster than one
/// after the other: every result has the records as a new dimension 0. A variable feature has two
/// dimensions, with rows as long as the longest, filled up with the default (0 or "" if there is
/// none). Strings share the block of the records. An array with no dimensions is one record, as
/// above.
ParsedExample parse_example(const Strings& records, const ParseOptions& options);

}  // namespace cohort::data
