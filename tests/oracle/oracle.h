#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/oracle/compare.h"

/// The oracle: what TensorFlow itself does, case by case, and whether Cohort does the same.
///
/// tests/data/oracle/<theme>.json holds what TensorFlow printed for each case of a script. The
/// files tests/oracle/<theme>…_test.cpp translate the script, and read as tables:
///
///     ORACLE_THEME("reductions");
///
///     CASE("all_reduce/SUM_scalar") {
///       return encode(two().run([] { return all_reduce("SUM", replica_id() + 1); }));
///     }
///
///     // Every case of the JSON with this prefix whose input is a list of arguments, unless it is
///     // named on its own.
///     TABLE("reduce/") { return encode(reduce_case(input)); }
///
///     // Where a rule of the semantics makes Cohort differ on purpose: what Cohort gives.
///     DIFFERS("all_reduce/captured", "7.10: summed like any other", encode(both(4.))) { … }
///     DIFFERS("scope/x", "2.10: …", fails("RuntimeError", "Mixing different")) { … }
///
///     NOT_EXPRESSIBLE("reduce/string_SUM", "LibTorch has no tensors of strings");
///
///     // What needs a part of Cohort that is not there yet.
///     PENDING("summary/only_replica_0", "summaries");
///
/// A body returns its outcome encoded, or throws; what it throws is its outcome then. Each runs in
/// a thread of its own, with four CPU devices. A test for each theme fails when a case of the JSON
/// is named nowhere, or a name is no case.
namespace cohort::oracle {

using Body = std::function<Json(const Json& input)>;

class Theme {
 public:
  /// The theme of this name; made, and its JSON read, by the first call.
  static Theme& named(const std::string& name);

  /// The names of all themes that some file translates.
  static std::vector<std::string> all();

  // How the macros below add their rows. The results say nothing.
  bool set_tolerance(Tolerance tolerance);
  bool add(const char* name, Body body);
  bool add_table(const char* prefix, Body body);
  bool add_difference(const char* name, const char* rule, Json expected, Body body);
  bool add_not_expressible(const char* name, const char* reason);

  /// The cases that a test can run, in TensorFlow's order.
  std::vector<std::string> runnable() const;

  /// Runs a case. Empty if the outcome is the right one, else what is wrong.
  std::string check(const std::string& name) const;

  /// TensorFlow's result, for a difference that is only a part of it.
  const Json& result_of(const std::string& name) const;

  /// What is wrong with the list of names: cases that are missing, unknown, or there twice.
  std::string check_complete() const;

 private:
  struct Row {
    Body body;      // none: not expressible
    Json expected;  // null: what TensorFlow printed
    std::string rule;
  };

  explicit Theme(const std::string& name);
  const Row* row_of(const std::string& name) const;

  std::vector<std::string> names_;     // in TensorFlow's order
  std::map<std::string, Json> lines_;  // what TensorFlow printed
  std::map<std::string, Row> rows_;
  std::map<std::string, Row> tables_;  // by prefix
  std::vector<std::string> twice_;
  Tolerance tolerance_;
};

}  // namespace cohort::oracle

// NOLINTBEGIN(cppcoreguidelines-macro-usage): a table of functions needs them
#define ORACLE_THEME(name)                                                                        \
  static ::cohort::oracle::Theme& oracle_theme() { return ::cohort::oracle::Theme::named(name); } \
  static_assert(true)

#define ORACLE_JOIN_(a, b) a##b
#define ORACLE_JOIN(a, b) ORACLE_JOIN_(a, b)
#define ORACLE_ROW(body, added, add)                                       \
  static ::cohort::oracle::Json body(const ::cohort::oracle::Json& input); \
  [[maybe_unused]] static const bool added = oracle_theme().add;           \
  static ::cohort::oracle::Json body([[maybe_unused]] const ::cohort::oracle::Json& input)
#define ORACLE_BODY ORACLE_JOIN(oracle_body_, __LINE__)
#define ORACLE_ADDED ORACLE_JOIN(oracle_added_, __LINE__)

#define CASE(name) ORACLE_ROW(ORACLE_BODY, ORACLE_ADDED, add(name, ORACLE_BODY))
#define TABLE(prefix) ORACLE_ROW(ORACLE_BODY, ORACLE_ADDED, add_table(prefix, ORACLE_BODY))
#define DIFFERS(name, rule, ...) \
  ORACLE_ROW(ORACLE_BODY, ORACLE_ADDED, add_difference(name, rule, __VA_ARGS__, ORACLE_BODY))
#define NOT_EXPRESSIBLE(name, reason) \
  [[maybe_unused]] static const bool ORACLE_ADDED = oracle_theme().add_not_expressible(name, reason)
#define PENDING(name, part) NOT_EXPRESSIBLE(name, "there is no " part " yet")
// NOLINTEND(cppcoreguidelines-macro-usage)
