#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/data/element_spec.h"

namespace cohort {

/// What a worker tells the others about a step, and what all of them have in common then.
struct InputStep {
  /// Whether anybody's replica has data.
  bool has_data = false;
  /// What an element looks like, from a worker that has one: for workers that have none.
  std::optional<std::vector<data::LeafSpec>> spec;
  /// A number that follows from what was read so far; 0: not compared in this step.
  std::uint64_t digest = 0;
};

/// The workers of a job, as far as input has to know of them.
class InputWorkers {
 public:
  virtual ~InputWorkers() = default;

  virtual int count() const = 0;
  virtual int index() const = 0;
  /// The job's seed: the chief's, the same on all workers.
  virtual std::uint64_t seed() const = 0;

  /// Called by every worker in every step, with its own; gives all of them the same: has_data
  /// where anybody has data, and the spec of the first one that has. Throws InvalidArgument, on
  /// every worker, where digests differ, and names the first worker that differs from worker 0.
  virtual InputStep agree(const InputStep& mine) = 0;
};

/// A job of this process alone.
std::shared_ptr<InputWorkers> only_worker();

/// Throws the error of `agree` where one of the workers' digests differs from the first one's.
void check_digests(const std::vector<InputStep>& steps);

}  // namespace cohort
