#pragma once

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cohort/spmd/placement.h"
#include "cohort/spmd/trace.h"

/// Sharded tensors give what ordinary ones give: values, first and second derivatives.
namespace cohort::spmd {

using Tensors = std::vector<torch::Tensor>;
using Function = std::function<torch::Tensor(const Tensors&)>;

/// A number from `low` to `high`.
inline std::int64_t between(std::mt19937& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % (high - low + 1));
}
/// Random numbers from -1 to 1.
inline torch::Tensor tensor(at::IntArrayRef sizes) {
  return torch::rand(sizes, torch::kDouble) * 2 - 1;
}

/// A mesh of n devices, the same one for all tests.
const MeshPtr& test_mesh(int devices);

/// How an argument lies: parts of each dimension, a device, or (neither) nowhere special. It may be
/// a view: of a tensor that is longer in one dimension, of one with the first and the last
/// dimension exchanged, or of both.
struct Placing {
  std::vector<std::int64_t> parts;
  int device = -1;
  int longer_dim = -1;
  bool is_turned = false;

  bool is_sharded() const { return !parts.empty() || device >= 0; }
  bool is_view() const { return longer_dim >= 0 || is_turned; }

  torch::Tensor place(const torch::Tensor& tensor, const MeshPtr& mesh) const;
};

/// A random one that is no view.
Placing random_placing(std::mt19937& random, at::IntArrayRef sizes, int devices);

/// How far a number may lie from the expected one: `relative` times that, and `absolute` times the
/// largest one of its tensor, or 1.
struct Tolerance {
  double relative, absolute;
};

/// What is asked of each type of number. Whole numbers must be equal.
struct Precision {
  torch::ScalarType type;
  Tolerance values, first_derivatives, second_derivatives;
};
inline constexpr Precision kPrecisions[]{
    {torch::kDouble, {1e-9, 1e-10}, {1e-9, 1e-10}, {1e-9, 1e-10}},
    {torch::kFloat, {1e-4, 1e-5}, {1e-3, 1e-4}, {1e-3, 1e-3}},
};

/// What a comparison does beside the usual.
struct Demands {
  double slack = 1;        ///< Times the tolerances: for long functions.
  bool in_float = true;    ///< A quarter of the cases in float: not where errors grow.
  bool with_views = true;  ///< Some sharded inputs are views: not where the order in memory counts.
};

/// Compares fn of the inputs with fn of the same inputs, placed in random ways on 2 to 4 devices,
/// some of them as views: the result, and the first and second derivatives by inputs of floating
/// point. Strict mode is on.
/// `make` makes the inputs, in double, from a random source.
///
/// The environment variable COHORT_CASES multiplies the number of cases: COHORT_CASES=20 runs
/// thousands of each kind of operation, more than anybody waits for every day. A case is the same
/// in each run, however many there are.
void expect_agreement(const char* name, int cases,
                      const std::function<Tensors(std::mt19937&)>& make, const Function& fn,
                      Demands demands = {});

}  // namespace cohort::spmd
