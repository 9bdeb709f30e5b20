#include "cohort/input/step.h"

#include "cohort/base/error.h"

namespace cohort::detail {

void expect_pipelines(data::PositionReader& position, std::size_t count) {
  const std::int64_t saved = position.get();
  if (saved == static_cast<std::int64_t>(count)) return;
  throw InvalidArgument(
      "iterator.restore",
      cat("the position is of another number of pipelines: expected ", count, ", got ", saved,
          "; go on with the number of replicas that it was saved with"));
}

int get_pieces(data::PositionReader& position, int of) {
  const std::int64_t taken = position.get();
  if (taken == 0) return 0;
  const std::int64_t saved = position.get();
  if (saved == of && taken > 0 && taken < of) return static_cast<int>(taken);
  throw InvalidArgument(
      "iterator.restore",
      cat("the position is inside of a batch that was cut into ", saved, " pieces: expected ", of,
          "; go on with the number of replicas that it was saved with"));
}

}  // namespace cohort::detail
