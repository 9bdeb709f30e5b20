#include "cohort/base/log.h"

#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <utility>

namespace cohort::log {
namespace {

Level level_from_environment() {
  const char* text = std::getenv("COHORT_LOG");
  const std::string_view name = text ? text : "warning";
  if (name == "info") return Level::INFO;
  if (name == "error") return Level::ERROR;
  if (name == "off") return Level::OFF;
  return Level::WARNING;
}

struct State {
  std::mutex mutex;
  Sink sink;
  Level level = level_from_environment();
  std::map<std::string, int, std::less<>> seen;
};

State& state() {
  static State* const state = new State;  // outlives static destructors that log
  return *state;
}

void write_to_stderr(Level level, std::string_view message) {
  constexpr const char* kNames[] = {"INFO", "WARNING", "ERROR"};
  std::cerr << "cohort " << kNames[static_cast<int>(level)] << ": " << message << std::endl;
}

}  // namespace

Sink set_sink(Sink sink) {
  const std::lock_guard lock(state().mutex);
  return std::exchange(state().sink, std::move(sink));
}

Level set_level(Level level) {
  const std::lock_guard lock(state().mutex);
  return std::exchange(state().level, level);
}

void write(Level level, std::string_view message) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (level < s.level) return;
  s.sink ? s.sink(level, message) : write_to_stderr(level, message);
}

bool first(std::string_view key, int times) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  auto entry = s.seen.find(key);
  if (entry == s.seen.end()) entry = s.seen.emplace(std::string(key), 0).first;
  return entry->second++ < times;
}

}  // namespace cohort::log
