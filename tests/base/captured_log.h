#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/base/log.h"

namespace cohort {

/// Takes every line of the log, INFO too, for as long as it lives. Lines may come from any thread.
class CapturedLog {
 public:
  CapturedLog()
      : level_before_(log::set_level(log::Level::INFO)),
        sink_before_(log::set_sink([this](log::Level level, std::string_view message) {
          const std::lock_guard lock(mutex_);
          lines_.emplace_back(level, message);
        })) {}

  ~CapturedLog() {
    log::set_sink(std::move(sink_before_));
    log::set_level(level_before_);
  }

  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  /// Every line so far.
  std::vector<std::pair<log::Level, std::string>> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

  /// The lines of one level whose text contains `part`.
  int count(log::Level level, std::string_view part) const {
    const std::lock_guard lock(mutex_);
    int found = 0;
    for (const auto& [line_level, text] : lines_) {
      found += line_level == level && text.find(part) != std::string::npos;
    }
    return found;
  }

 private:
  const log::Level level_before_;
  log::Sink sink_before_;

  mutable std::mutex mutex_;
  std::vector<std::pair<log::Level, std::string>> lines_;
};

}  // namespace cohort
