#include "cohort/base/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "cohort/base/error.h"

namespace cohort::environment {
namespace {

[[noreturn]] void refuse(const char* name, const std::string& got, const std::string& expected) {
  throw ValueError(cat("environment variable ", name),
                   cat("expected ", expected, ", got \"", got, "\"; correct or unset ", name));
}

}  // namespace

std::optional<std::string> text(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<int> integer(const char* name, int lowest, int highest) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  int number = 0;
  const char* const end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, number);
  if (error != std::errc() || stop != end || number < lowest || number > highest) {
    refuse(name, *value, cat("a whole number from ", lowest, " to ", highest));
  }
  return number;
}

std::optional<std::string> choice(const char* name, std::initializer_list<std::string_view> words) {
  auto value = text(name);
  if (!value || std::ranges::find(words, *value) != words.end()) return value;
  std::string expected;
  for (const auto word : words) expected += cat(expected.empty() ? "" : " or ", '"', word, '"');
  refuse(name, *value, expected);
}

}  // namespace cohort::environment
