#include "cohort/collectives/reduce_op.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "cohort/base/error.h"

namespace cohort {

ReduceOp::ReduceOp(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (upper == "SUM") {
    kind_ = SUM;
  } else if (upper == "MEAN") {
    kind_ = MEAN;
  } else {
    throw ValueError("ReduceOp", cat("unknown reduce op: expected SUM or MEAN, got \"", name, '"'));
  }
}

}  // namespace cohort
