#include "cohort/io/nearest_name.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <vector>

#include "cohort/base/error.h"

namespace cohort::io {
namespace {

/// The number of characters to insert, delete or replace to make one of the other (Levenshtein).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // the distance of a's start to each start of b
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string hint_for_missing(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int kMostEntries = 10000;  // a hint must not take long
  std::error_code error;
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : ".";
  if (!fs::is_directory(folder, error)) return cat("; there is no folder ", folder.string());

  const std::string name = fs::path(path).filename().string();
  std::string nearest;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  int entries = 0;
  for (fs::directory_iterator it(folder, error), end; it != end && !error; it.increment(error)) {
    if (++entries > kMostEntries) break;
    const std::string other = it->path().filename().string();
    const std::size_t distance = edit_distance(name, other);
    if (distance < least || (distance == least && !nearest.empty() && other < nearest)) {
      least = distance;
      nearest = other;
    }
  }
  return nearest.empty() ? "" : cat("; did you mean ", nearest, "?");
}

}  // namespace cohort::io
