#pragma once

#include <cstdint>
#include <string_view>

/// Functions of the user's that stages call.
namespace cohort::data {
namespace detail {
/// Throws the exception that is being handled, with a note of where it came from.
[[noreturn]] void rethrow_from_stage(std::string_view stage, std::int64_t element);
}  // namespace detail

/// call(), which calls a function of the user's for an element. What it throws keeps its type, and
/// its text ends with `(element 7 of map)`. Costs nothing where nothing is thrown.
template <class Call>
decltype(auto) call_for_element(std::string_view stage, std::int64_t element, Call&& call) {
  try {
    return call();
  } catch (...) {
    detail::rethrow_from_stage(stage, element);
  }
}

}  // namespace cohort::data
