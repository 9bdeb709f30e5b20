#include "cohort/base/exception_note.h"

#include <c10/util/Exception.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <typeinfo>

#include "cohort/base/error.h"

namespace cohort {
namespace {

/// How many std::exception_ptr and handlers have an exception. libstdc++ counts them in the first
/// word of the header that lies before each exception (`__cxa_refcounted_exception` of its
/// unwind-cxx.h), and tells nobody.
int read_holders(const std::exception_ptr& error) {
  constexpr std::ptrdiff_t kHeader = 128;
  static_assert(sizeof(std::exception_ptr) == sizeof(const char*));
  const char* object = nullptr;
  std::memcpy(&object, &error, sizeof(object));
  return __atomic_load_n(reinterpret_cast<const int*>(object - kHeader), __ATOMIC_ACQUIRE);
}

/// Whether the count is where it is expected. With another library it need not be.
bool can_read_holders() {
#if defined(__GLIBCXX__) && defined(__x86_64__)
  static const bool can = [] {
    const auto first = std::make_exception_ptr(0);
    if (read_holders(first) != 1) return false;
    const std::exception_ptr second = first, third = first;
    return read_holders(first) == 3;
  }();
  return can;
#else
  return false;
#endif
}

/// True if somebody besides the caller of `with_note` may have the exception; nobody can get it
/// from now on who does not.
bool is_shared(const std::exception_ptr& error) {
  if (!can_read_holders()) return true;
  const bool is_handled = std::current_exception() == error;
  return read_holders(error) > (is_handled ? 2 : 1);
}

void add_note(Error& error, std::string_view note) { error.add_note(note); }
void add_note(c10::Error& error, std::string_view note) { error.add_context(std::string(note)); }

/// The same for std::runtime_error and std::logic_error.
template <class Base>
void add_note(Base& error, std::string_view note) {
  const std::string text = error.Base::what(), suffix = cat(" (", note, ')');
  if (text.find(suffix) == std::string::npos) error = Base(text + suffix);
}

/// Gives what a class has inherited from `Base` the longer text. False for a class that is not
/// derived from it, or that makes its text by itself.
template <class Base>
bool is_noted_in_base(std::exception& error, std::string_view note) {
  auto* const base = dynamic_cast<Base*>(&error);
  if (!base) return false;
  add_note(*base, note);
  return std::string_view(error.what()).find(note) != std::string_view::npos;
}

bool is_noted(std::exception& error, std::string_view note) {
  return is_noted_in_base<Error>(error, note) || is_noted_in_base<c10::Error>(error, note) ||
         is_noted_in_base<std::runtime_error>(error, note) ||
         is_noted_in_base<std::logic_error>(error, note);
}

/// A copy with the note. Null unless the exception is a `Class` itself: one derived from it would
/// lose its own type.
template <class Class>
std::exception_ptr made_anew(const std::exception& error, std::string_view note) {
  if (typeid(error) != typeid(Class)) return nullptr;
  Class copy(dynamic_cast<const Class&>(error));
  return is_noted(copy, note) ? std::make_exception_ptr(std::move(copy)) : nullptr;
}

template <class... Classes>
std::exception_ptr made_anew_as_one_of(const std::exception& error, std::string_view note) {
  std::exception_ptr made;
  static_cast<void>(((made = made_anew<Classes>(error, note)) || ...));
  return made;
}

/// Null for a class that is not known here.
std::exception_ptr made_anew(const std::exception& error, std::string_view note) {
  if (auto made =
          made_anew_as_one_of<Error, RuntimeError, ValueError, TypeError, NotImplementedError,
                              KeyError, OutOfRange, InvalidArgument, NotFound, Unavailable,
                              Cancelled, DeadlineExceeded>(error, note)) {
    return made;
  }
  if (auto made = made_anew_as_one_of<c10::Error, c10::IndexError, c10::ValueError, c10::TypeError,
                                      c10::NotImplementedError, c10::EnforceFiniteError,
                                      c10::LinAlgError, c10::OutOfMemoryError>(error, note)) {
    return made;
  }
  return made_anew_as_one_of<std::runtime_error, std::logic_error, std::invalid_argument,
                             std::out_of_range, std::domain_error, std::length_error,
                             std::range_error, std::overflow_error, std::underflow_error,
                             std::system_error>(error, note);
}

void log_note(log::Level level, std::string_view note, std::string_view text) {
  log::write(level, cat("an exception was thrown (", note, "): ", text));
}

}  // namespace

std::exception_ptr with_note(const std::exception_ptr& error, std::string_view note,
                             log::Level level) {
  const bool may_change = !is_shared(error);
  try {
    std::rethrow_exception(error);
  } catch (std::exception& e) {
    if (auto made = made_anew(e, note)) return made;
    if (!may_change || !is_noted(e, note)) log_note(level, note, e.what());
  } catch (...) {
    log_note(log::Level::ERROR, note, "not a std::exception");
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
