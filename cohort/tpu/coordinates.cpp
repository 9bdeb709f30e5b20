#include "cohort/tpu/coordinates.h"

namespace cohort::tpu {

std::string describe(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) {
    if (!text.empty()) text += ", ";
    text += std::to_string(number);
  }
  return '[' + text + ']';
}

}  // namespace cohort::tpu
