#include "cohort/data/ignore_errors.h"

#include <algorithm>
#include <exception>

namespace cohort::data::detail {

bool may_be_endless(const Node& node) {
  const std::int64_t cardinality = node.cardinality();
  if (cardinality >= 0) return false;
  if (cardinality == kInfinite || node.role() == Node::Role::SOURCE) return true;
  const auto inputs = node.inputs();
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const NodePtr& input) { return may_be_endless(*input); });
}

bool gives_up_after(std::int64_t errors, bool is_endless, std::string_view last_error) {
  constexpr std::int64_t kWarnAfter = 1000, kGiveUpAfter = 1'000'000;
  const bool gives_up = is_endless && errors >= kGiveUpAfter;
  std::int64_t due = kWarnAfter;
  while (due < errors) due *= 10;
  if (errors == due) {
    log::warning("dataset.ignore_errors: ", errors,
                 " errors and no element between them, the last: ", last_error,
                 gives_up ? "; the dataset ends here, as it might have no end"
                          : "; still going on: look for what fails in every element");
  }
  return gives_up;
}

void warn_of_no_beginning(std::string_view stage, std::string_view what_is_left_out) {
  std::string why = "an exception that is no std::exception";
  try {
    throw;
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {
  }
  log::warning("dataset.ignore_errors: ", stage, " can't begin, so that ", what_is_left_out, ": ",
               why, "; mend that, or do not ignore errors, and ask again");
}

}  // namespace cohort::data::detail
