#include "cohort/data/user_function.h"

#include <exception>

#include "cohort/base/error.h"
#include "cohort/base/exception_note.h"

namespace cohort::data::detail {

void rethrow_from_stage(std::string_view stage, std::int64_t element) {
  std::rethrow_exception(
      with_note(std::current_exception(), cat("element ", element, " of ", stage)));
}

}  // namespace cohort::data::detail
