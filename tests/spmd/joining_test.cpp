// Joined, padded, repeated, turned, summed up and sorted: sharded as unsharded.

#include "tests/spmd/agreement.h"

namespace cohort::spmd {
namespace {

using torch::Tensor;
namespace F = torch::nn::functional;

Tensors one_of_three_dims(std::mt19937& random) {
  return {tensor({between(random, 2, 7), between(random, 1, 7), between(random, 2, 6)})};
}

using Cases = std::vector<std::pair<const char*, Function>>;

/// Of tensors that differ in one dimension at most.
Tensors to_join(std::mt19937& random, std::int64_t dim) {
  std::vector<std::int64_t> sizes{between(random, 1, 6), between(random, 1, 6),
                                  between(random, 1, 6)};
  Tensors tensors;
  for (auto left = between(random, 1, 4); left > 0; --left) {
    sizes[dim] = between(random, 0, 6);
    tensors.push_back(tensor(sizes));
  }
  return tensors;
}

TEST(Joining, CatAlongAnyDimension) {
  for (const int dim : {0, 1, 2}) {
    expect_agreement(
        "cat", 180, [dim](auto& random) { return to_join(random, dim); },
        [dim](const Tensors& x) { return torch::cat(x, dim - 3).square(); });
  }
}

TEST(Joining, CatOfOtherTypesAndNothing) {
  expect_agreement(
      "cat", 100, [](auto& random) { return to_join(random, 1); },
      [](const Tensors& x) {
        Tensors more = x;
        more.push_back(x[0].to(torch::kFloat).detach());
        more.push_back(torch::ones_like(x[0], torch::kLong));
        more.push_back(torch::empty({0}));
        return torch::cat(more, 1);
      });
}

TEST(Joining, CatOfLikePartsStaysInPlace) {
  const MeshPtr mesh = test_mesh(2);
  const Tensor a = split(tensor({4, 6}), mesh, {2, 1}), b = split(tensor({4, 5}), mesh, {2, 1});
  const auto recorded = trace();
  const Tensor both = torch::cat({a, b}, 1);
  EXPECT_EQ(layout_of(both).parts(0), 2);
  EXPECT_EQ(recorded.rows().at("aten::cat").bytes_moved, 0);
}

TEST(Joining, Stack) {
  for (const int dim : {0, 1, -1}) {
    expect_agreement(
        "stack", 100,
        [](auto& random) {
          const auto sizes =
              std::vector<std::int64_t>{between(random, 1, 6), between(random, 1, 6)};
          return Tensors{tensor(sizes), tensor(sizes), tensor(sizes)};
        },
        [dim](const Tensors& x) { return torch::stack(x, dim).square(); });
  }
}

TEST(Padding, Constant) {
  for (const double value : {0.0, 0.5}) {
    expect_agreement("constant", 120, one_of_three_dims, [value](const Tensors& x) {
      return torch::constant_pad_nd(x[0], {1, 2, 3, 0}, value).exp();
    });
    expect_agreement("constant that cuts off", 120, one_of_three_dims, [value](const Tensors& x) {
      return torch::constant_pad_nd(x[0], {-1, 4, 2, -1, -1, 0}, value).exp();
    });
  }
}

TEST(Padding, ReflectedAndReplicated) {
  const auto pad = [](int dims, bool reflects, std::vector<std::int64_t> sizes) {
    sizes.resize(2 * dims);
    F::PadFuncOptions options(sizes);
    options.mode(reflects ? F::PadFuncOptions::mode_t(torch::kReflect) : torch::kReplicate);
    return [options](const Tensors& x) { return F::pad(x[0], options).square(); };
  };
  for (int dims = 1; dims <= 3; ++dims) {
    const auto make = [dims](auto& random) {
      std::vector<std::int64_t> sizes{between(random, 1, 3), between(random, 1, 4)};
      for (int d = 0; d < dims; ++d) sizes.push_back(between(random, 3, 7));
      return Tensors{tensor(sizes)};
    };
    expect_agreement("reflect", 80, make, pad(dims, true, {2, 1, 0, 2, 1, 1}));
    expect_agreement("replicate", 80, make, pad(dims, false, {2, 4, 0, 2, 1, 1}));
  }
}

TEST(Padding, Circular) {
  for (int dims = 1; dims <= 3; ++dims) {
    std::vector<std::int64_t> padding{2, 1, 0, 2, 1, 1};
    padding.resize(2 * dims);
    expect_agreement(
        "circular", 80,
        [dims](auto& random) {
          std::vector<std::int64_t> sizes{between(random, 1, 3), between(random, 1, 4)};
          for (int d = 0; d < dims; ++d) sizes.push_back(between(random, 2, 7));
          return Tensors{tensor(sizes)};
        },
        [padding](const Tensors& x) {
          return F::pad(x[0], F::PadFuncOptions(padding).mode(torch::kCircular)).square();
        });
  }
}

TEST(Turning, OfAllKinds) {
  const Cases all{
      {"repeat",
       [](const Tensors& x) {
         return x[0].repeat({2, 1, 3}).square();
       }},
      {"repeat in a new dimension",
       [](const Tensors& x) {
         return x[0].repeat({2, 1, 1, 1}).exp();
       }},
      {"repeat once",
       [](const Tensors& x) {
         return x[0].repeat({1, 1, 1}).exp();
       }},
      {"flip",
       [](const Tensors& x) {
         return x[0].flip({0, 2}).exp() * x[0];
       }},
      {"roll",
       [](const Tensors& x) {
         return x[0].roll({1, -3}, {0, 2}).exp() * x[0];
       }},
      {"roll all", [](const Tensors& x) { return x[0].roll(2).exp() * x[0]; }},
      {"tril", [](const Tensors& x) { return x[0].tril().exp() * x[0].triu(1); }},
      {"tril_",
       [](const Tensors& x) { return (x[0] * 2).tril_(-1).add_((x[0] * 1).triu_(1)).square(); }},
      {"narrow_copy", [](const Tensors& x) { return torch::narrow_copy(x[0].detach(), 0, 1, 1); }},
      {"rot90",
       [](const Tensors& x) {
         return x[0].rot90(1, {0, 2}).exp() * x[0].rot90(-3, {0, 2});
       }},
      {"rot90 backwards",
       [](const Tensors& x) {
         return x[0].rot90(3, {1, 0}).exp();
       }},
      {"rot90 by a half",
       [](const Tensors& x) {
         return x[0].rot90(2, {1, 2}).exp();
       }},
      {"rot90 by nothing",
       [](const Tensors& x) {
         return x[0].rot90(4, {0, 1}).exp();
       }},
  };
  for (const auto& [name, fn] : all) expect_agreement(name, 90, one_of_three_dims, fn);
}

TEST(Running, AlongAnyDimension) {
  for (const int dim : {0, 1, 2}) {
    const Cases all{
        {"cumsum", [dim](const Tensors& x) { return x[0].cumsum(dim).square(); }},
        {"cumsum_", [dim](const Tensors& x) { return (x[0] * 2).cumsum_(dim).square(); }},
        {"cumprod", [dim](const Tensors& x) { return x[0].cumprod(dim); }},
        {"logcumsumexp", [dim](const Tensors& x) { return x[0].logcumsumexp(dim); }},
        {"of whole numbers", [dim](const Tensors& x) { return (x[0] > 0).cumsum(dim); }},
    };
    for (const auto& [name, fn] : all) expect_agreement(name, 60, one_of_three_dims, fn);
  }
  expect_agreement(
      "one dimension", 60, [](auto& random) { return Tensors{tensor({between(random, 1, 9)})}; },
      [](const Tensors& x) { return x[0].cumsum(0).square(); });
}

TEST(Sorting, AlongAnyDimension) {
  for (const int dim : {0, 1, 2}) {
    const Cases all{
        {"sort", [dim](const Tensors& x) { return std::get<0>(x[0].sort(dim)).square(); }},
        {"descending",
         [dim](const Tensors& x) { return std::get<0>(x[0].sort(dim, true)).square(); }},
        {"stable", [dim](const Tensors& x) { return std::get<1>(x[0].sort(true, dim, false)); }},
        {"argsort", [dim](const Tensors& x) { return x[0].argsort(std::int64_t{dim}); }},
        {"stable argsort", [dim](const Tensors& x) { return x[0].argsort(true, dim, true); }},
        {"topk", [dim](const Tensors& x) { return std::get<0>(x[0].topk(2, dim)).square(); }},
        {"kthvalue", [dim](const Tensors& x) { return std::get<0>(x[0].kthvalue(2, dim)); }},
        {"median", [dim](const Tensors& x) { return std::get<0>(x[0].median(dim, true)); }},
        {"cummax", [dim](const Tensors& x) { return std::get<0>(x[0].cummax(dim)).square(); }},
    };
    for (const auto& [name, fn] : all) {
      expect_agreement(
          name, 50,
          [](auto& random) {
            return Tensors{
                tensor({between(random, 2, 6), between(random, 2, 6), between(random, 2, 6)})};
          },
          fn);
    }
  }
}

}  // namespace
}  // namespace cohort::spmd
