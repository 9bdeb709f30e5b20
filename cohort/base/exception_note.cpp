#include "cohort/base/exception_note.h"

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>
#include <string_view>
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

bool has_note(const std::exception& error, std::string_view note) {
  return std::string_view(error.what()).find(note) != std::string_view::npos;
}

/// Gives what a class of the user's own has inherited the longer text. False for a class that is
/// not derived from `Base`, or that makes its text by itself.
template <class Base>
bool is_noted_in_base(std::exception& error, std::string_view note) {
  auto* const base = dynamic_cast<Base*>(&error);
  if (!base) return false;
  if (!has_note(error, note)) *base = Base(cat(base->Base::what(), " (", note, ')'));
  return has_note(error, note);
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
  } catch (std::exception& e) {
    const auto made =
        made_anew_as_one_of<std::runtime_error, std::logic_error, std::invalid_argument,
                            std::out_of_range, std::domain_error, std::length_error,
                            std::range_error, std::overflow_error, std::underflow_error>(e, note);
    if (made) return made;
    const bool is_noted = is_noted_in_base<std::runtime_error>(e, note) ||
                          is_noted_in_base<std::logic_error>(e, note);
    if (!is_noted) log_note(note, e.what());
  } catch (...) {
    log_note(note, "not a std::exception");
  }
  return error;
}

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace cohort
