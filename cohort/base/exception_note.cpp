#include "cohort/base/exception_note.h"

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>
#include <typeinfo>

#include "cohort/base/error.h"
#include "cohort/base/log.h"

namespace cohort {
namespace {

/// Null unless the exception is a `Class` itself: one derived from it would lose its own type.
template <class Class>
std::exception_ptr made_anew(const std::exception& error, std::string_view note) {
  if (typeid(error) != typeid(Class)) return nullptr;
  return std::make_exception_ptr(Class(cat(error.what(), " (", note, ')')));
}

template <class... Classes>
std::exception_ptr made_anew_as_one_of(const std::exception& error, std::string_view note) {
  std::exception_ptr made;
  static_cast<void>(((made = made_anew<Classes>(error, note)) || ...));
  return made;
}

void log_note(std::string_view note, std::string_view text) {
  log::error("an exception was thrown (", note, "): ", text);
}

}  // namespace

std::exception_ptr with_note(const std::exception_ptr& error, std::string_view note) {
  try {
    std::rethrow_exception(error);
  } catch (Error& e) {
    e.add_note(note);
  } catch (c10::Error& e) {
    e.add_context(std::string(note));
  } catch (const std::exception& e) {
    const auto made =
        made_anew_as_one_of<std::runtime_error, std::logic_error, std::invalid_argument,
                            std::out_of_range, std::domain_error, std::length_error,
                            std::range_error, std::overflow_error, std::underflow_error>(e, note);
    if (made) return made;
    log_note(note, e.what());
  } catch (...) {
    log_note(note, "not a std::exception");
  }
  return error;
}

}  // namespace cohort
