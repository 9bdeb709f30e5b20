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

/// How an argument lies: parts of each dimension, a device, or (neither) nowhere special.
struct Placing {
  std::vector<std::int64_t> parts;
  int device = -1;

  torch::Tensor place(const torch::Tensor& tensor, const MeshPtr& mesh) const;
};

/// A random one; never more parts of a dimension than it has elements, unless `may_be_short`.
Placing random_placing(std::mt19937& random, at::IntArrayRef sizes, int devices);

struct Tolerance {
  double relative = 1e-9, absolute = 1e-10;  // of double
};

/// Compares fn of the inputs, placed like this, with fn of the inputs. Those of floating point get
/// derivatives, twice. Strict mode is on. Empty if all agree, else what does not.
std::string disagreement(const Function& fn, const Tensors& inputs,
                         const std::vector<Placing>& placings, int devices,
                         Tolerance tolerance = {}, bool strict = true);

/// Many random placings of the inputs that `make` makes from a random source, on 2 to 4 devices.
void expect_agreement(const char* name, int cases,
                      const std::function<Tensors(std::mt19937&)>& make, const Function& fn,
                      Tolerance tolerance = {}, bool strict = true);

}  // namespace cohort::spmd
