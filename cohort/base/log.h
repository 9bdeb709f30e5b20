#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cohort/base/error.h"

/// Cohort's log: a line to standard error, or to where the program wants it.
///
/// The level comes from `COHORT_LOG` (`info`, `warning`, `error`, `off`), else `warning`.
/// All functions may be called from any thread.
namespace cohort::log {

enum class Level { INFO = 0, WARNING = 1, ERROR = 2, OFF = 3 };

/// Receives every line at or above the level. Called with an internal lock held: must not log.
using Sink = std::function<void(Level, std::string_view)>;

/// Replaces the sink and returns the one before; an empty function means standard error.
Sink set_sink(Sink sink);

/// Sets the lowest level that is written and returns the one before.
Level set_level(Level level);

void write(Level level, std::string_view message);

template <class... Parts>
void info(const Parts&... parts) {
  write(Level::INFO, cat(parts...));
}
template <class... Parts>
void warning(const Parts&... parts) {
  write(Level::WARNING, cat(parts...));
}
template <class... Parts>
void error(const Parts&... parts) {
  write(Level::ERROR, cat(parts...));
}

/// True for the first `times` calls with this key in the process. For "warn once":
///
///     if (log::first("reference-blas")) log::warning("…");
bool first(std::string_view key, int times = 1);

}  // namespace cohort::log
