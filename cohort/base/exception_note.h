#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace cohort {

/// Returns the exception with ` (note)` at the end of its text, so that it says who met it. Its
/// type stays: Cohort's errors, LibTorch's and classes derived from those of <stdexcept> take the
/// note in place, and the classes of <stdexcept> themselves are made anew with the longer text. Any
/// other exception is returned as it is, and the log gets a line with the note and its text.
///
///     try { fn(element); }
///     catch (...) { std::rethrow_exception(with_note(std::current_exception(), "element 7 of
///     map")); }
///
/// No other thread may hold the exception meanwhile.
std::exception_ptr with_note(const std::exception_ptr& error, std::string_view note);

/// The exception's text; empty for none.
std::string text_of(const std::exception_ptr& error);

}  // namespace cohort
