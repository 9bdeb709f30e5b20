#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "cohort/base/log.h"

namespace cohort {

/// Returns the exception with ` (note)` at the end of its text, so that it says who met it. Its
/// type stays: Cohort's errors, LibTorch's and the classes of <stdexcept> are made anew with the
/// longer text. A class derived from one of these takes the note in place if nobody but the caller
/// holds the exception: one that a `std::shared_future` keeps, say, may be read by other threads,
/// and is never changed. That one, and any other exception, is returned as it is, and the log gets
/// a line with the note and its text, at `level` for a std::exception.
///
///     try { fn(element); }
///     catch (...) { std::rethrow_exception(with_note(std::current_exception(), "element 7 of
///     map")); }
///
/// `error` counts as the caller's only std::exception_ptr to it, besides a handler that it may be
/// called in. May be called by several threads with one exception.
std::exception_ptr with_note(const std::exception_ptr& error, std::string_view note,
                             log::Level level = log::Level::ERROR);

/// The exception's text; empty for none.
std::string text_of(const std::exception_ptr& error);

}  // namespace cohort
