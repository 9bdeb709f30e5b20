#pragma once

#include <string>
#include <vector>

namespace cohort::tpu {

/// The place of a core in a mesh: x, y and z of its chip, and the core's number on the chip.
using Coordinates = std::vector<int>;

/// The number of axes that a mesh has.
inline constexpr int kMeshRank = 4;

/// "[2, 2, 1, 2]", for the text of errors.
std::string describe(const std::vector<int>& numbers);

}  // namespace cohort::tpu
