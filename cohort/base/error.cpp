#include "cohort/base/error.h"

namespace cohort {

Error::Error(std::string_view kind, std::string_view where, std::string_view what)
    : kind_(kind), text_(cat('[', where, "] ", what)) {}

void Error::add_note(std::string_view note) {
  const std::string suffix = cat(" (", note, ')');
  if (text_.find(suffix) == std::string::npos) text_ += suffix;
}

}  // namespace cohort
