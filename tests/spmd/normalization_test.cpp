// Normalization of batches, layers, groups and instances: sharded as unsharded.

#include "tests/spmd/agreement.h"

namespace cohort::spmd {
namespace {

using torch::Tensor;

/// With an eps as small as usual, errors grow where a few elements lie close together.
constexpr Demands kHard{.in_float = false};

/// [n, channels, …] with up to three more dimensions, a weight and a bias.
Tensors images(std::mt19937& random, std::int64_t channels) {
  std::vector<std::int64_t> sizes{between(random, 2, 5), channels};
  for (auto rest = between(random, 0, 3); rest > 0; --rest) sizes.push_back(between(random, 1, 5));
  return {tensor(sizes) * 3 + 5, tensor({channels}) + 2, tensor({channels})};
}

TEST(BatchNorm, InTraining) {
  const auto make = [](auto& random) { return images(random, between(random, 1, 5)); };
  expect_agreement(
      "with weights", 200, make,
      [](const Tensors& x) {
        return torch::batch_norm(x[0], x[1], x[2], {}, {}, true, 0.1, 1e-5, false).tanh();
      },
      kHard);
  expect_agreement(
      "without weights", 80, make,
      [](const Tensors& x) {
        return torch::batch_norm(x[0], {}, {}, {}, {}, true, 0.1, 1e-5, false).tanh();
      },
      kHard);
}

TEST(BatchNorm, InEvaluation) {
  expect_agreement(
      "with weights", 200,
      [](auto& random) {
        Tensors all = images(random, between(random, 1, 5));
        all.push_back(tensor(all[1].sizes()) + 4);  // variances
        return all;
      },
      [](const Tensors& x) {
        return torch::batch_norm(x[0], x[1], x[2], x[2].detach(), x[3].detach(), false, 0.1, 1e-5,
                                 false)
            .tanh();
      });
}

/// The running statistics themselves, which are ordinary tensors or sharded ones.
TEST(BatchNorm, UpdatesRunningStatistics) {
  for (const bool is_mean : {true, false}) {
    expect_agreement(
        "running", 100, [](auto& random) { return images(random, between(random, 1, 5)); },
        [is_mean](const Tensors& x) {
          const Tensor mean = x[2].detach() * 1, var = x[1].detach() * 1;
          for (int step = 0; step < 2; ++step) {
            torch::batch_norm(x[0].detach() * (step + 1), {}, {}, mean, var, true, 0.3, 1e-5,
                              false);
          }
          return is_mean ? mean : var;
        });
  }
}

TEST(BatchNorm, AsAModule) {
  torch::nn::BatchNorm2d plain(torch::nn::BatchNorm2dOptions(4)), sharded(plain->options);
  const Tensor x = torch::rand({6, 4, 9, 5}) * 3 + 1;
  for (int step = 0; step < 3; ++step) {
    plain(x * (step + 1));
    sharded(split(x * (step + 1), test_mesh(4), {2, 1, 2, 1}));
  }
  EXPECT_TRUE(torch::allclose(plain->running_mean, full(sharded->running_mean)));
  EXPECT_TRUE(torch::allclose(plain->running_var, full(sharded->running_var)));
  plain->eval();
  sharded->eval();
  EXPECT_TRUE(
      torch::allclose(plain(x), full(sharded(split(x, test_mesh(2), {1, 2, 1, 1}))), 1e-4, 1e-5));
}

TEST(BatchNorm, OfNumbersFarFromZero) {
  const Tensor x = torch::rand({8, 3, 16, 16}) + 1000;
  const Tensor expected = torch::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false);
  const Tensor got = torch::batch_norm(split(x, test_mesh(4), {2, 1, 2, 1}), {}, {}, {}, {}, true,
                                       0.1, 1e-5, false);
  EXPECT_LT((expected - full(got)).abs().max().item<double>(), 5e-3);
}

TEST(InstanceNorm, OfImages) {
  expect_agreement(
      "instance_norm", 100,
      [](auto& random) {
        return Tensors{tensor({between(random, 1, 4), between(random, 1, 4), between(random, 2, 6),
                               between(random, 2, 5)})};
      },
      [](const Tensors& x) {
        return torch::instance_norm(x[0], {}, {}, {}, {}, true, 0.1, 1e-5, false).tanh();
      },
      kHard);
}

TEST(LayerNorm, OverAnyLastDimensions) {
  for (const int dims : {1, 2, 3}) {
    expect_agreement(
        "layer_norm", 120,
        [dims](auto& random) {
          std::vector<std::int64_t> sizes;
          for (int d = 0; d < 3; ++d) sizes.push_back(between(random, 1, 6));
          sizes.back() += 1;
          const auto shape = at::IntArrayRef(sizes).slice(3 - dims);
          return Tensors{tensor(sizes), tensor(shape), tensor(shape)};
        },
        [](const Tensors& x) {
          return torch::layer_norm(x[0], x[1].sizes(), x[1], x[2], 0.1).tanh();
        });
  }
  expect_agreement(
      "without weights", 80,
      [](auto& random) {
        return Tensors{tensor({between(random, 1, 6), between(random, 2, 6)})};
      },
      [](const Tensors& x) { return torch::layer_norm(x[0], {x[0].size(1)}, {}, {}, 0.1).tanh(); });
  expect_agreement(
      "of a vector", 40, [](auto& random) { return Tensors{tensor({between(random, 2, 9)})}; },
      [](const Tensors& x) { return torch::layer_norm(x[0], {x[0].size(0)}, {}, {}, 0.1).tanh(); });
}

TEST(GroupNorm, OfAnyGroups) {
  for (const int groups : {1, 2, 4}) {
    expect_agreement(
        "group_norm", 120,
        [groups](auto& random) { return images(random, groups * between(random, 2, 3)); },
        [groups](const Tensors& x) {
          return torch::group_norm(x[0], groups, x[1], x[2], 0.1).tanh();
        });
  }
  expect_agreement(
      "without weights", 80, [](auto& random) { return images(random, 2 * between(random, 2, 3)); },
      [](const Tensors& x) { return torch::group_norm(x[0], 2, {}, {}, 0.1).tanh(); });
}

/// LibTorch computes derivatives in another way if these shall have derivatives themselves.
TEST(Normalization, FirstDerivativesAlone) {
  const std::vector<std::pair<const char*, Function>> all{
      {"batch",
       [](const Tensors& x) {
         return torch::batch_norm(x[0], x[1], x[2], {}, {}, true, 0.1, 0.1, false);
       }},
      {"layer",
       [](const Tensors& x) {
         return torch::layer_norm(x[0], x[0].sizes().slice(1), {}, {}, 0.1);
       }},
      {"one group", [](const Tensors& x) { return torch::group_norm(x[0], 1, x[1], x[2], 0.1); }},
      {"groups", [](const Tensors& x) { return torch::group_norm(x[0], 2, x[1], x[2], 0.1); }},
      {"groups without weights", [](const Tensors& x) { return torch::group_norm(x[0], 2); }},
  };
  for (const auto& [name, fn] : all) {
    for (const int input : {0, 1, 2}) {
      expect_agreement(
          name, 80, [](auto& random) { return images(random, 2 * between(random, 1, 3)); },
          [&fn = fn, input](const Tensors& x) {
            const Tensor y = fn(x).square();
            const auto gradient = torch::autograd::grad({(y * y.detach()).sum()}, {x[input]}, {},
                                                        c10::nullopt, false, true)[0];
            return gradient.defined() ? gradient : torch::zeros({});
          });
    }
  }
}

}  // namespace
}  // namespace cohort::spmd
