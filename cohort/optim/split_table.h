#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cohort {

/// Where parameters lie whose names fit a pattern.
struct SplitEntry {
  /// Of names of parameters, with `*` for anything: "*.up.weight".
  std::string pattern;

  /// The parts of each dimension. Their product is the number of logical devices of a replica.
  std::vector<std::int64_t> parts;

  /// No parameter has to fit. For those that not every layer has, such as a bias.
  bool may_fit_none = false;
};

/// How parameters are spread over the logical devices of a replica. The first entry that fits a
/// parameter counts; a parameter that none fits stays whole.
///
///     {{"*.up.weight", {2, 1}}, {"*.up.bias", {2}}, {"*.down.weight", {1, 2}}}
///
/// `tensor_parallel` makes the usual ones.
using SplitTable = std::vector<SplitEntry>;

/// The parts of those of the parameters that are in the table, in the order of the names. Throws
/// ValueError for an entry that no parameter fits, or only ones that entries before it have taken.
std::vector<std::pair<std::string, std::vector<std::int64_t>>> find_splits(
    const SplitTable& table, const std::vector<std::string>& names);

}  // namespace cohort
