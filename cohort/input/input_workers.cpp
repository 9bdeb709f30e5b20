#include "cohort/input/input_workers.h"

#include "cohort/base/error.h"
#include "cohort/base/random.h"

namespace cohort {
namespace {

class OnlyWorker : public InputWorkers {
 public:
  int count() const override { return 1; }
  int index() const override { return 0; }
  std::uint64_t seed() const override { return cohort::seed(); }
  InputStep agree(const InputStep& mine) override { return mine; }
};

}  // namespace

std::shared_ptr<InputWorkers> only_worker() { return std::make_shared<OnlyWorker>(); }

InputStep common_step(const std::vector<InputStep>& steps) {
  InputStep all;
  for (std::size_t w = 0; w < steps.size(); ++w) {
    const InputStep& step = steps[w];
    if (!step.failure.empty()) {
      throw Cancelled("distribute_dataset",
                      cat("the input of worker ", w, " has failed: ", step.failure));
    }
    all.has_data = all.has_data || step.has_data;
    if (!all.spec) all.spec = step.spec;
  }
  for (std::size_t w = 1; w < steps.size(); ++w) {
    if (steps[w].digest == steps[0].digest) continue;
    throw InvalidArgument(
        "distribute_dataset",
        cat("worker ", w,
            " cuts other batches than worker 0: under the policy DATA every worker "
            "must read the same elements in the same order; look for what differs between them "
            "(files, a random number without a seed), or use the policy FILE"));
  }
  return all;
}

}  // namespace cohort
