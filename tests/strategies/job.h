#pragma once

#include <cohort/cohort.h>
#include <gmock/gmock.h>

#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/distribute/each_worker.h"

namespace cohort {

/// Jobs whose workers are threads of the test, and what is promised of them: a program gives on all
/// workers what it gives on a MirroredStrategy with as many replicas.

inline std::string name_of_job(const testing::TestParamInfo<Job>& info) {
  return name_of(info.param);
}

/// What a program makes of a strategy, as text: the same on all workers.
using Program = std::function<std::string(const Strategy&)>;

inline std::string on_one_process(int replicas, const Program& program) {
  configure({.cpu_devices = 2});
  torch::manual_seed(3);
  return program(MirroredStrategy({.replicas = replicas}));
}

inline std::vector<std::string> on_workers(const Job& job, const Program& program,
                                           const NetworkOptions& network = {}) {
  configure({.cpu_devices = 2});
  torch::manual_seed(3);
  std::vector<std::string> texts(job.workers);
  run_workers(
      job.workers,
      [&](const Worker& worker) {
        texts[worker.index()] = program(MultiWorkerMirroredStrategy(
            {.worker = worker, .replicas = job.replicas, .timeout = std::chrono::seconds(60)}));
      },
      network);
  return texts;
}

/// A tensor's type, shape and every bit of its values.
inline std::string bits_of(const at::Tensor& tensor) {
  const at::Tensor value =
      (tensor.is_sparse() ? tensor.coalesce().to_dense() : tensor).detach().contiguous();
  std::ostringstream text;
  text << c10::toString(value.scalar_type()) << value.sizes() << ' ';
  const auto* const bytes = static_cast<const unsigned char*>(value.data_ptr());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(value.nbytes()); ++i) {
    text << std::hex << static_cast<int>(bytes[i]) << '.';
  }
  text << '\n';
  return text.str();
}

inline int id() { return get_replica_context().replica_id_in_sync_group(); }

class OnJobs : public testing::TestWithParam<Job> {
 protected:
  void expect_as_one_process(const Program& program) const {
    const std::string expected = on_one_process(GetParam().replicas, program);
    for (const std::string& text : on_workers(GetParam(), program)) EXPECT_EQ(text, expected);
  }
};

#define ON_ALL_JOBS(Suite)                                                       \
  INSTANTIATE_TEST_SUITE_P(, Suite, testing::ValuesIn(all_jobs()), name_of_job); \
  INSTANTIATE_TEST_SUITE_P(Least, Suite, testing::Values(Job{2, 2}), name_of_job)

}  // namespace cohort
