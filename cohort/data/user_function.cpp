#include "cohort/data/user_function.h"

#include <exception>

#include "cohort/base/error.h"
#include "cohort/base/exception_note.h"

namespace cohort::data {

/// An exception that has no text to take the note leaves it in the log: for all to see, unless it
/// is going to be ignored.
void UserCalls::rethrow(std::int64_t element) const {
  const log::Level level = errors_are_ignored_ ? log::Level::INFO : log::Level::ERROR;
  std::rethrow_exception(
      with_note(std::current_exception(), cat("element ", element, " of ", stage_), level));
}

}  // namespace cohort::data
