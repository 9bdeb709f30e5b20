#include "cohort/optim/split_table.h"

#include <fnmatch.h>

#include <algorithm>

#include "cohort/base/error.h"

namespace cohort {
namespace {

bool fits_name(const SplitEntry& entry, const std::string& name) {
  return fnmatch(entry.pattern.c_str(), name.c_str(), 0) == 0;
}

/// The first few names.
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kSome = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kSome); ++i) {
    text += (i > 0 ? ", " : "") + names[i];
  }
  return names.size() > kSome ? text + ", …" : text;
}

[[noreturn]] void refuse_entry(const SplitEntry& entry, const std::vector<std::string>& names) {
  const bool is_late = std::any_of(names.begin(), names.end(),
                                   [&](const std::string& name) { return fits_name(entry, name); });
  if (is_late) {
    throw ValueError("Model", cat("the pattern \"", entry.pattern, "\" of .split_parameters fits ",
                                  "only parameters that patterns before it have taken"));
  }
  throw ValueError("Model",
                   cat("no parameter fits the pattern \"", entry.pattern,
                       "\" of .split_parameters: expected one for some of ", some_of(names)));
}

}  // namespace

std::vector<std::pair<std::string, std::vector<std::int64_t>>> find_splits(
    const SplitTable& table, const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> found;
  std::vector<bool> is_used(table.size(), false);
  for (const std::string& name : names) {
    const auto entry = std::find_if(table.begin(), table.end(),
                                    [&](const SplitEntry& each) { return fits_name(each, name); });
    if (entry == table.end()) continue;
    found.emplace_back(name, entry->parts);
    is_used[entry - table.begin()] = true;
  }
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (!is_used[i] && !table[i].may_fit_none) refuse_entry(table[i], names);
  }
  return found;
}

}  // namespace cohort
