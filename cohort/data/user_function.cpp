#include "cohort/data/user_function.h"

#include <exception>

#include "cohort/base/error.h"
#include "cohort/base/exception_note.h"
#include "cohort/data/node.h"

namespace cohort::data {

UserCalls::UserCalls(std::string_view stage, const Iteration& iteration)
    : stage_(stage), errors_are_ignored_(iteration.errors_are_ignored) {}

/// An exception that has no text to take the note leaves it in the log: for all to see, unless it
/// is going to be ignored.
void UserCalls::rethrow(std::int64_t element) const {
  const log::Level level = errors_are_ignored_ ? log::Level::INFO : log::Level::ERROR;
  std::rethrow_exception(
      with_note(std::current_exception(), cat("element ", element, " of ", stage_), level));
}

}  // namespace cohort::data
