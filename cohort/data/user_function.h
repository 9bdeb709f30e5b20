#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace cohort::data {

struct Iteration;

/// Calls functions of the user's, for the elements of one stage in one pass:
///
///     made = call_(7, [&] { return fn(element); });
///
/// What they throw keeps its type, and its text ends with `(element 7 of map)`. Costs nothing where
/// nothing is thrown. Thread-safe.
class UserCalls {
 public:
  UserCalls(std::string_view stage, const Iteration& iteration);

  template <class Call>
  decltype(auto) operator()(std::int64_t element, Call&& call) const {
    try {
      return std::forward<Call>(call)();
    } catch (...) {
      rethrow(element);
    }
  }

 private:
  /// Throws the exception that is being handled, with a note of where it came from.
  [[noreturn]] void rethrow(std::int64_t element) const;

  const std::string stage_;
  const bool errors_are_ignored_;
};

}  // namespace cohort::data
