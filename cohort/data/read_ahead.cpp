#include "cohort/data/read_ahead.h"

#include <ATen/Parallel.h>

#include "cohort/device/intra_op_threads.h"

namespace cohort::data::detail {

void run_as_pipeline_thread(const std::function<void()>& work) {
  at::init_num_threads();
  const IntraOpThreads one(1);
  work();
}

}  // namespace cohort::data::detail
