#include "cohort/compat/deprecated.h"

#include "cohort/base/log.h"

namespace cohort::compat {

void warn_deprecated(const char* name, const char* advice) {
  if (!log::first(cat("compat.", name))) return;
  log::warning("compat::", name, " is deprecated: ", advice);
}

}  // namespace cohort::compat
