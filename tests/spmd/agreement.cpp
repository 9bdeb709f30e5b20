#include "tests/spmd/agreement.h"

#include <map>

#include "cohort/base/error.h"

namespace cohort::spmd {

using torch::Tensor;

const MeshPtr& test_mesh(int devices) {
  static std::map<int, MeshPtr> meshes;
  MeshPtr& mesh = meshes[devices];
  if (!mesh) {
    mesh = std::make_shared<Mesh>(cat("a mesh of ", devices),
                                  std::vector<Device>(devices, Device("cpu:0")));
  }
  return mesh;
}

Tensor Placing::place(const Tensor& tensor, const MeshPtr& mesh) const {
  if (device >= 0) return assign(tensor, mesh, device);
  return parts.empty() ? tensor : split(tensor, mesh, parts);
}

Placing random_placing(std::mt19937& random, at::IntArrayRef sizes, int devices) {
  const auto choice = random() % 8;
  if (choice == 0) return {};
  if (choice == 1) return {{}, static_cast<int>(random() % devices)};
  std::vector<std::int64_t> parts(sizes.size(), 1);
  if (sizes.empty()) return {};
  for (int rest = devices; rest > 1;) {  // deal the prime factors to dimensions
    int factor = 2;
    while (rest % factor != 0) ++factor;
    rest /= factor;
    parts[random() % parts.size()] *= factor;
  }
  return {parts};
}

namespace {

/// The values and derivatives that are compared, with their names.
using Results = std::vector<std::pair<std::string, Tensor>>;

Tensor weights_for(const Tensor& tensor, int seed) {
  torch::manual_seed(seed);
  return torch::rand(tensor.sizes(), tensor.options().requires_grad(false)) + 0.5;
}

Results evaluate(const Function& fn, const Tensors& leaves, const Tensors& placed) {
  Results results;
  const Tensor output = fn(placed);
  results.emplace_back("the result", full(output));
  Tensors inputs;
  for (const Tensor& leaf : leaves) {
    if (leaf.requires_grad()) inputs.push_back(leaf);
  }
  if (inputs.empty() || !output.requires_grad()) return results;
  const Tensor whole = full(output);
  const auto first =
      torch::autograd::grad({(whole * weights_for(whole, 1)).sum()}, inputs, {}, true, true, true);
  Tensor again = torch::zeros({}, whole.options().requires_grad(false));
  for (std::size_t i = 0; i < first.size(); ++i) {
    results.emplace_back(cat("the gradient of input ", i), first[i]);
    if (first[i].defined() && first[i].requires_grad()) {
      again = again + (first[i] * weights_for(first[i], static_cast<int>(i) + 2)).sum();
    }
  }
  if (!again.requires_grad()) return results;
  const auto second = torch::autograd::grad({again}, inputs, {}, false, false, true);
  for (std::size_t i = 0; i < second.size(); ++i) {
    results.emplace_back(cat("the second derivative of input ", i), second[i]);
  }
  return results;
}

Tensors leaves_of(const Tensors& inputs) {
  Tensors leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.detach().clone().set_requires_grad(input.is_floating_point()));
  }
  return leaves;
}

std::string difference(const Results& expected, const Results& got, Tolerance tolerance) {
  if (expected.size() != got.size()) return "other derivatives exist";
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto& [name, want] = expected[i];
    const Tensor have = got[i].second.defined() ? full(got[i].second) : Tensor();
    if (want.defined() != have.defined()) {
      const Tensor& there = want.defined() ? want : have;
      if (there.abs().max().item<double>() == 0) continue;  // zeros are as good as nothing
      return cat(name, " is defined on one side only");
    }
    if (!want.defined()) continue;
    if (want.sizes() != have.sizes()) {
      return cat(name, ": expected sizes ", want.sizes(), ", got ", have.sizes());
    }
    if (want.scalar_type() != have.scalar_type()) return cat(name, " has another type");
    if (torch::allclose(want, have, tolerance.relative, tolerance.absolute, true)) continue;
    const Tensor error = (want.to(torch::kDouble) - have.to(torch::kDouble)).abs();
    return cat(name, " differs by ", error.max().item<double>());
  }
  return "";
}

}  // namespace

std::string disagreement(const Function& fn, const Tensors& inputs,
                         const std::vector<Placing>& placings, int devices, Tolerance tolerance,
                         bool strict) {
  const Tensors plain = leaves_of(inputs);
  const Results expected = evaluate(fn, plain, plain);
  const Tensors leaves = leaves_of(inputs);
  Tensors placed;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    placed.push_back(placings[i].place(leaves[i], test_mesh(devices)));
  }
  try {
    std::optional<Strict> guard;
    if (strict) guard.emplace();
    return difference(expected, evaluate(fn, leaves, placed), tolerance);
  } catch (const std::exception& error) {
    return std::string(error.what()).substr(0, 1500);
  }
}

void expect_agreement(const char* name, int cases,
                      const std::function<Tensors(std::mt19937&)>& make, const Function& fn,
                      Tolerance tolerance, bool strict) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  cases = std::max(5, cases / 20);  // ten times as slow, and about threads and memory, not values
#endif
  std::mt19937 random(1234);
  int wrong = 0;
  for (int i = 0; i < cases && wrong < 3; ++i) {
    const int devices = 2 + static_cast<int>(random() % 3);
    torch::manual_seed(static_cast<std::uint64_t>(i));
    const Tensors inputs = make(random);
    std::vector<Placing> placings;
    bool is_any_sharded = false;
    std::string text;
    for (const Tensor& input : inputs) {
      placings.push_back(random_placing(random, input.sizes(), devices));
      const Placing& own = placings.back();
      is_any_sharded |= !own.parts.empty() || own.device >= 0;
      text += cat(text.empty() ? "" : "; ", input.sizes());
      if (!own.parts.empty()) text += cat(" split ", at::IntArrayRef(own.parts));
      if (own.device >= 0) text += cat(" on device ", own.device);
    }
    if (!is_any_sharded) continue;
    const std::string what = disagreement(fn, inputs, placings, devices, tolerance, strict);
    if (what.empty()) continue;
    ++wrong;
    ADD_FAILURE() << name << ", case " << i << ", " << devices << " devices, " << text << ": "
                  << what;
  }
}

}  // namespace cohort::spmd
