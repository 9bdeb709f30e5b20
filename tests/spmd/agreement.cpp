#include "tests/spmd/agreement.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "cohort/base/environment.h"
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
  Tensor base = tensor;
  if (longer_dim >= 0) {
    std::vector<std::int64_t> padding(2 * tensor.dim(), 0);
    padding[2 * (tensor.dim() - 1 - longer_dim)] = 1;
    padding[2 * (tensor.dim() - 1 - longer_dim) + 1] = 2;
    base = torch::constant_pad_nd(base, padding);
  }
  std::vector<std::int64_t> own_parts = parts;
  if (is_turned) {
    base = base.transpose(0, -1).contiguous();
    if (!parts.empty()) std::swap(own_parts.front(), own_parts.back());
  }
  if (device >= 0) base = assign(base, mesh, device);
  if (!parts.empty()) base = split(base, mesh, own_parts);
  if (is_turned) base = base.transpose(0, -1);
  return longer_dim < 0 ? base : base.narrow(longer_dim, 1, tensor.size(longer_dim));
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

/// Which of the results, in the order of evaluate(), are derivatives.
Tolerance tolerance_of(const Precision& precision, const std::string& name) {
  if (name.starts_with("the gradient")) return precision.first_derivatives;
  if (name.starts_with("the second")) return precision.second_derivatives;
  return precision.values;
}

bool is_close(const Tensor& want, const Tensor& have, Tolerance tolerance) {
  if (!want.is_floating_point()) return torch::equal(want, have);
  const Tensor finite = torch::where(want.isfinite(), want.abs(), torch::zeros_like(want));
  const double largest = want.numel() > 0 ? finite.max().item<double>() : 0;
  return torch::allclose(have, want, tolerance.relative,
                         tolerance.absolute * std::max(1.0, largest), true);
}

std::string difference(const Results& expected, const Results& got, const Precision& precision,
                       double slack) {
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
    const Tolerance usual = tolerance_of(precision, name);
    if (is_close(want, have, {slack * usual.relative, slack * usual.absolute})) continue;
    const Tensor error = (want.to(torch::kDouble) - have.to(torch::kDouble)).abs();
    return cat(name, " differs by ", error.max().item<double>(), ", the largest number being ",
               want.abs().max().item<double>());
  }
  return "";
}

/// Inputs, and how they lie.
struct Case {
  int devices = 2;
  const Precision* precision = &kPrecisions[0];
  Tensors inputs;
  std::vector<Placing> placings;

  bool is_any_sharded() const {
    return std::any_of(placings.begin(), placings.end(),
                       [](const Placing& each) { return each.is_sharded(); });
  }
};

Case random_case(std::mt19937& random, const std::function<Tensors(std::mt19937&)>& make,
                 const Demands& demands) {
  Case one;
  one.devices = static_cast<int>(between(random, 2, 4));
  one.inputs = make(random);
  if (demands.in_float && random() % 4 == 0) {
    one.precision = &kPrecisions[1];
    for (Tensor& each : one.inputs) {
      if (each.is_floating_point()) each = each.to(torch::kFloat);
    }
  }
  for (const Tensor& input : one.inputs) {
    Placing placing = random_placing(random, input.sizes(), one.devices);
    if (demands.with_views && placing.is_sharded() && input.numel() > 0 && input.dim() > 0) {
      placing.is_turned = random() % 6 == 0;
      if (random() % 6 == 0) placing.longer_dim = static_cast<int>(random() % input.dim());
    }
    one.placings.push_back(placing);
  }
  return one;
}

std::ostream& operator<<(std::ostream& out, const Case& one) {
  out << one.devices << " devices, " << one.precision->type;
  for (std::size_t i = 0; i < one.inputs.size(); ++i) {
    const Placing& placing = one.placings[i];
    out << "; " << one.inputs[i].sizes();
    if (!placing.parts.empty()) out << " split " << at::IntArrayRef(placing.parts);
    if (placing.device >= 0) out << " on device " << placing.device;
    if (placing.longer_dim >= 0) out << ", a part along dimension " << placing.longer_dim;
    if (placing.is_turned) out << ", turned";
  }
  return out;
}

/// Empty if all agree, else what does not.
std::string disagreement(const Function& fn, const Case& one, double slack) {
  const Tensors plain = leaves_of(one.inputs);
  const Results expected = evaluate(fn, plain, plain);
  const Tensors leaves = leaves_of(one.inputs);
  Tensors placed;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    placed.push_back(one.placings[i].place(leaves[i], test_mesh(one.devices)));
  }
  try {
    const Strict strict;
    return difference(expected, evaluate(fn, leaves, placed), *one.precision, slack);
  } catch (const std::exception& error) {
    return std::string(error.what()).substr(0, 1500);
  }
}

int number_of_cases(int usual) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  usual = std::max(5, usual / 20);  // ten times as slow, and about threads and memory, not values
#endif
  static const int times = environment::integer("COHORT_CASES", 1, 10000).value_or(1);
  return times * usual;
}

}  // namespace

void expect_agreement(const char* name, int cases,
                      const std::function<Tensors(std::mt19937&)>& make, const Function& fn,
                      Demands demands) {
  const int count = number_of_cases(cases);
  at::set_num_threads(1);  // as tasks have: more would only get in the way of the devices' threads
  int wrong = 0;
  for (int i = 0; i < count && wrong < 3; ++i) {
    std::vector<int> seed(name, name + std::strlen(name));
    seed.push_back(i);
    std::seed_seq sequence(seed.begin(), seed.end());
    std::mt19937 random(sequence);
    torch::manual_seed(static_cast<std::uint64_t>(i));
    const Case one = random_case(random, make, demands);
    if (!one.is_any_sharded()) continue;
    const std::string what = disagreement(fn, one, demands.slack);
    if (what.empty()) continue;
    ++wrong;
    ADD_FAILURE() << name << ", case " << i << ", " << one << ": " << what;
  }
}

}  // namespace cohort::spmd
