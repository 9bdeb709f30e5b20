#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cohort/collectives/world_lane.h"
#include "cohort/input/batch_cut.h"

namespace cohort {

/// What a worker tells the others about a step, and what all of them have in common then.
struct InputStep {
  /// Whether anybody's replica has data.
  bool has_data = false;
  /// What an element looks like, from a worker that has one: for workers that have none.
  std::optional<std::vector<LeafLook>> look = {};
  /// A number that follows from what was read so far; 0: not compared in this step.
  std::uint64_t digest = 0;
  /// Why this worker's input failed; empty: it did not.
  std::string failure = {};
};

/// What the workers' steps have in common: has_data where anybody has data, and the look of the
/// first one that has. Throws Cancelled where a worker's input has failed, and InvalidArgument
/// where digests differ from worker 0's; both name the first such worker.
InputStep common_step(std::span<const InputStep> steps, const World& world);

/// Called by every worker in every step, also by one whose input has failed, so that nobody waits
/// for it; gives all of them `common_step` of what they said. Throws as collectives do.
InputStep agree(WorldLane& lane, const InputStep& mine);

}  // namespace cohort
