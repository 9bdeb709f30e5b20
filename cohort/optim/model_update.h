#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/optim/once_per_copy.h"
#include "cohort/optim/replicated_module.h"

namespace cohort {

class GradientReducer;

/// `Model::update`: a change that the program makes to the parameters itself, once for each copy.
///
/// Inside of a run all replicas meet first, so that nobody uses the parameters any more; then the
/// first replica of each copy calls its function. Random numbers that the function draws are the
/// same for all copies.
///
/// Without an optimizer nobody has summed the gradients in backward. The first update that finds
/// gradients sums them, and from then on backward does.
class ModelUpdate {
 public:
  explicit ModelUpdate(ReplicatedModule& model);
  ~ModelUpdate();
  ModelUpdate(const ModelUpdate&) = delete;
  ModelUpdate& operator=(const ModelUpdate&) = delete;

  void run(ReplicatedModule::Change fn, const ReplicatedModule* other);

 private:
  class Meeting;
  struct Call;  // what a replica wants done
  struct Random {
    at::Generator generator;
    std::uint64_t serial = 0;   // of the run in which it was used last…
    std::uint64_t updates = 0;  // …and how often
  };

  bool decide_on_summing();
  const at::Generator& generator_for(int copy, const Call& call);
  void run_outside(ReplicatedModule::Change fn, const ReplicatedModule* other);
  void change_copy(int copy, ReplicatedModule::Change fn, const ReplicatedModule* other);
  void change_copy_in_run(int copy, const Call& call);

  ReplicatedModule& model_;
  OncePerCopy once_;
  std::shared_ptr<GradientReducer>
      reducer_;                 // made while all replicas wait; null with an optimizer
  std::vector<Random> random_;  // of each copy, used by one thread at a time
};

}  // namespace cohort
