#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace cohort {

/// Joins its arguments as `<<` prints them. For the text of errors and logs.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

/// The base of every error that Cohort throws.
///
/// The text reads `[where] what is wrong: expected …, got …; what to do next`. One class for each
/// error kind of tf.distribute, so that a program can tell them apart:
///
///     try { strategy.run(step); }
///     catch (const cohort::InvalidArgument& e) { … }      // this kind
///     catch (const cohort::Error& e) { … e.kind() … }     // any of them
class Error : public std::exception {
 public:
  /// `where` is the call that noticed, as the user wrote it: `strategy.reduce`.
  Error(std::string_view kind, std::string_view where, std::string_view what);

  const char* what() const noexcept override { return text_.c_str(); }

  /// The kind's name as TensorFlow spells it: "ValueError".
  const std::string& kind() const noexcept { return kind_; }

  /// Adds ` (note)` to the text, once for each distinct note: who met the error, and when.
  void add_note(std::string_view note);

 private:
  std::string kind_;
  std::string text_;
};

#define COHORT_ERROR_KIND(Name)                                                        \
  class Name : public Error {                                                          \
   public:                                                                             \
    Name(std::string_view where, std::string_view what) : Error(#Name, where, what) {} \
  }

COHORT_ERROR_KIND(RuntimeError);         ///< A call in the wrong context.
COHORT_ERROR_KIND(ValueError);           ///< A bad argument or configuration.
COHORT_ERROR_KIND(TypeError);            ///< The wrong kind of object.
COHORT_ERROR_KIND(NotImplementedError);  ///< A combination that has no meaning here.
COHORT_ERROR_KIND(KeyError);             ///< A name that is missing, or there twice.
COHORT_ERROR_KIND(OutOfRange);           ///< The end of an iteration.
COHORT_ERROR_KIND(InvalidArgument);      ///< Data whose shapes or types do not fit together.
COHORT_ERROR_KIND(NotFound);             ///< Something that was looked for and is not there.
COHORT_ERROR_KIND(Unavailable);          ///< A peer that is gone.
COHORT_ERROR_KIND(Cancelled);            ///< Work that was given up because other work failed.
COHORT_ERROR_KIND(DeadlineExceeded);     ///< A wait that took longer than its timeout.

#undef COHORT_ERROR_KIND

}  // namespace cohort
