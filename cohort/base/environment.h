#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

/// Reads settings from environment variables, and refuses bad ones by name.
///
/// A variable that is unset or empty gives no value. One that is set to something else than what
/// is expected is an error, never a silent default:
///
///     const int slots = environment::integer("COHORT_CPU_DEVICES", 1, 4096).value_or(2);
///
/// The functions may be called from any thread, as long as nobody calls `setenv` meanwhile.
namespace cohort::environment {

/// The variable's text, as it is.
std::optional<std::string> text(const char* name);

/// Throws ValueError unless the whole text is a decimal number from `lowest` to `highest`.
std::optional<int> integer(const char* name, int lowest, int highest);

/// Throws ValueError unless the text is one of `words`. Upper and lower case are different.
std::optional<std::string> choice(const char* name, std::initializer_list<std::string_view> words);

}  // namespace cohort::environment
