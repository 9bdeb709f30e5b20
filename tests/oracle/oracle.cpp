#include "tests/oracle/oracle.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/device/configuration.h"

namespace cohort::oracle {
namespace {

std::map<std::string, std::unique_ptr<Theme>>& themes() {
  static auto* const all = new std::map<std::string, std::unique_ptr<Theme>>();
  return *all;
}

/// What TensorFlow did: its result, or {"error": …, "accidental": …}.
Json outcome_of(const Json& line) {
  if (!line.contains("error")) return line["result"];
  return {{"error", line["error"]}, {"accidental", line.value("accidental", false)}};
}

/// In a thread of its own, so that a scope left open cannot reach the next case.
Json run(const Body& body, const Json& input) {
  Json outcome;
  std::thread([&] { outcome = attempt([&] { return body(input); }); }).join();
  return outcome;
}

}  // namespace

Theme& Theme::named(const std::string& name) {
  auto& theme = themes()[name];
  if (!theme) theme.reset(new Theme(name));
  return *theme;
}

std::vector<std::string> Theme::all() {
  std::vector<std::string> names;
  for (const auto& [name, theme] : themes()) names.push_back(name);
  return names;
}

Theme::Theme(const std::string& name) {
  std::ifstream file(cat(COHORT_TEST_DATA, "/oracle/", name, ".json"));
  for (std::string text; std::getline(file, text);) {
    Json line = Json::parse(text);
    names_.push_back(line["case"]);
    lines_[names_.back()] = std::move(line);
  }
}

bool Theme::set_tolerance(Tolerance tolerance) {
  tolerance_ = tolerance;
  return true;
}

bool Theme::add(const char* name, Body body) {
  if (!rows_.insert({name, Row{std::move(body), nullptr, {}}}).second) twice_.emplace_back(name);
  return true;
}

bool Theme::add_table(const char* prefix, Body body) {
  tables_[prefix] = {std::move(body), nullptr, {}};
  return true;
}

bool Theme::add_difference(const char* name, const char* rule, Json expected, Body body) {
  Row row{std::move(body), {{"is", std::move(expected)}}, rule};
  if (!rows_.insert({name, std::move(row)}).second) twice_.emplace_back(name);
  return true;
}

bool Theme::add_not_expressible(const char* name, const char* reason) {
  if (!rows_.insert({name, Row{nullptr, nullptr, reason}}).second) twice_.emplace_back(name);
  return true;
}

const Theme::Row* Theme::row_of(const std::string& name) const {
  if (const auto found = rows_.find(name); found != rows_.end()) return &found->second;
  const auto line = lines_.find(name);
  if (line == lines_.end() || !line->second["input"].is_array()) return nullptr;
  for (const auto& [prefix, row] : tables_) {
    if (name.starts_with(prefix)) return &row;
  }
  return nullptr;
}

std::vector<std::string> Theme::runnable() const {
  std::vector<std::string> names;
  for (const std::string& name : names_) {
    const Row* row = row_of(name);
    if (row && row->body) names.push_back(name);
  }
  return names;
}

std::string Theme::check(const std::string& name) const {
  const Json& line = lines_.at(name);
  const Row& row = *row_of(name);
  const Json got = run(row.body, line["input"]);
  const auto from_tensorflow = difference(outcome_of(line), got, tolerance_);
  if (row.expected.is_null()) return from_tensorflow.value_or("");
  if (!from_tensorflow) return "DIFFERS, but agrees with TensorFlow: make it a CASE";
  const auto wrong = difference(row.expected["is"], got, tolerance_);
  return wrong ? cat(*wrong, "\n  by rule ", row.rule) : "";
}

const Json& Theme::result_of(const std::string& name) const { return lines_.at(name).at("result"); }

std::string Theme::check_complete() const {
  std::string problems;
  if (names_.empty()) problems = "no cases: is tests/data/oracle complete?\n";
  for (const std::string& name : names_) {
    if (!row_of(name)) problems += cat("nothing is said about ", name, '\n');
  }
  for (const auto& [name, row] : rows_) {
    if (!lines_.contains(name)) problems += cat("no such case: ", name, '\n');
  }
  for (const std::string& name : twice_) problems += cat("there twice: ", name, '\n');
  return problems;
}

// The tests. Parameters are evaluated after all static rows are added.

struct Named {
  std::string theme, name;
};

void PrintTo(const Named& named, std::ostream* out) { *out << named.theme << ' ' << named.name; }

std::string word(std::string text) {
  for (char& c : text) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return text;
}

std::vector<Named> all_cases() {
  std::vector<Named> all;
  for (const std::string& theme : Theme::all()) {
    for (const std::string& name : Theme::named(theme).runnable()) all.push_back({theme, name});
  }
  return all;
}

class OracleCase : public testing::TestWithParam<Named> {};

TEST_P(OracleCase, GivesWhatTensorFlowGives) {
  configure({.cpu_devices = 4});
  const auto& [theme, name] = GetParam();
  EXPECT_EQ(Theme::named(theme).check(name), "") << theme << ": " << name;
}

INSTANTIATE_TEST_SUITE_P(, OracleCase, testing::ValuesIn(all_cases()), [](const auto& info) {
  return word(info.param.theme + "__" + info.param.name);
});

class OracleTheme : public testing::TestWithParam<std::string> {};

TEST_P(OracleTheme, NamesEveryCase) { EXPECT_EQ(Theme::named(GetParam()).check_complete(), ""); }

INSTANTIATE_TEST_SUITE_P(, OracleTheme, testing::ValuesIn(Theme::all()),
                         [](const auto& info) { return info.param; });

}  // namespace cohort::oracle
