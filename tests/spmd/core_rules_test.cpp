// Element by element, reductions, products of matrices, views, softmax: sharded as unsharded.

#include "tests/base/failing.h"
#include "tests/spmd/agreement.h"

namespace cohort::spmd {
namespace {

using torch::Tensor;

/// One of up to four dimensions of sizes 1 to 7.
Tensor any_tensor(std::mt19937& random, int dims) {
  std::vector<std::int64_t> sizes;
  for (int d = 0; d < dims; ++d) sizes.push_back(between(random, 1, 7));
  return tensor(sizes);
}

TEST(Pointwise, OneArgument) {
  const std::vector<std::pair<const char*, Function>> all{
      {"exp", [](const Tensors& x) { return x[0].exp(); }},
      {"tanh", [](const Tensors& x) { return x[0].tanh(); }},
      {"sigmoid", [](const Tensors& x) { return x[0].sigmoid(); }},
      {"gelu", [](const Tensors& x) { return torch::gelu(x[0]); }},
      {"silu", [](const Tensors& x) { return torch::silu(x[0]); }},
      {"relu", [](const Tensors& x) { return torch::relu(x[0]); }},
      {"leaky_relu", [](const Tensors& x) { return torch::leaky_relu(x[0], 0.1); }},
      {"elu", [](const Tensors& x) { return torch::elu(x[0]); }},
      {"softplus", [](const Tensors& x) { return torch::softplus(x[0]); }},
      {"hardswish", [](const Tensors& x) { return torch::hardswish(x[0]); }},
      {"sin", [](const Tensors& x) { return x[0].sin() + x[0].cos() * 3; }},
      {"pow", [](const Tensors& x) { return x[0].pow(3); }},
      {"sqrt", [](const Tensors& x) { return (x[0].square() + 1).sqrt(); }},
      {"log", [](const Tensors& x) { return (x[0] + 2).log(); }},
      {"clamp", [](const Tensors& x) { return x[0].clamp(-0.3, 0.4); }},
      {"abs", [](const Tensors& x) { return x[0].abs(); }},
      {"erf", [](const Tensors& x) { return x[0].erf(); }},
      {"where", [](const Tensors& x) { return torch::where(x[0] > 0, x[0], -x[0] * 2); }},
      {"masked_fill", [](const Tensors& x) { return x[0].masked_fill(x[0] > 0, 0.5); }},
      {"float",
       [](const Tensors& x) { return x[0].to(torch::kFloat).to(torch::kDouble) * 0 + x[0]; }},
  };
  for (const auto& [name, fn] : all) {
    expect_agreement(
        name, 40,
        [](auto& random) {
          return Tensors{any_tensor(random, static_cast<int>(between(random, 1, 4)))};
        },
        fn);
  }
}

TEST(Pointwise, WithBroadcasting) {
  const std::vector<std::pair<const char*, Function>> all{
      {"add", [](const Tensors& x) { return x[0] + x[1] * 2; }},
      {"mul", [](const Tensors& x) { return x[0] * x[1]; }},
      {"div", [](const Tensors& x) { return x[0] / (x[1].abs() + 1); }},
      {"maximum", [](const Tensors& x) { return torch::maximum(x[0], x[1]); }},
      {"addcmul", [](const Tensors& x) { return torch::addcmul(x[0], x[1], x[1], 0.5); }},
      {"lerp", [](const Tensors& x) { return torch::lerp(x[0], x[1], 0.3); }},
      {"atan2", [](const Tensors& x) { return torch::atan2(x[0] + 3, x[1]); }},
      {"where", [](const Tensors& x) { return torch::where(x[0] > x[1], x[0], x[1]); }},
  };
  for (const auto& [name, fn] : all) {
    expect_agreement(
        name, 90,
        [](auto& random) {
          const Tensor a = any_tensor(random, 3);
          std::vector<std::int64_t> sizes = a.sizes().vec();
          for (auto& size : sizes) {
            if (random() % 3 == 0) size = 1;
          }
          sizes.erase(sizes.begin(), sizes.begin() + random() % 3);
          const Tensor b = tensor(sizes);
          return random() % 2 ? Tensors{a, b} : Tensors{b, a};
        },
        fn);
  }
}

TEST(Pointwise, InPlace) {
  const std::vector<std::pair<const char*, Function>> all{
      {"add_", [](const Tensors& x) { return (x[0] * 1).add_(x[1]).mul_(2); }},
      {"mul_", [](const Tensors& x) { return (x[0] * 1).mul_(x[1]).exp_(); }},
      {"zero_", [](const Tensors& x) { return (x[0] * 1).zero_().add_(x[1]); }},
      {"copy_", [](const Tensors& x) { return (x[0] * 1).copy_(x[1]); }},
      {"of a slice",
       [](const Tensors& x) {
         Tensor y = x[0] * 1;
         y.select(0, 0).mul_(3);
         y.slice(1, 0, 2).add_(1);
         return y * x[1];
       }},
      {"of a transposed",
       [](const Tensors& x) {
         Tensor y = x[0] * 2;
         y.t().mul_(x[1].t());
         return y;
       }},
  };
  for (const auto& [name, fn] : all) {
    expect_agreement(
        name, 80,
        [](auto& random) {
          const Tensor a = tensor({between(random, 2, 7), between(random, 2, 7)});
          return Tensors{a, tensor(a.sizes())};
        },
        fn);
  }
}

TEST(Reductions, OverAnyDimensions) {
  const std::vector<std::pair<const char*, Function>> all{
      {"sum", [](const Tensors& x) { return x[0].sum(); }},
      {"sum 1", [](const Tensors& x) { return x[0].sum(1).square(); }},
      {"sum 0 2",
       [](const Tensors& x) {
         return x[0].sum(at::IntArrayRef({0, 2}), true).square();
       }},
      {"mean", [](const Tensors& x) { return x[0].mean(-1).square(); }},
      {"means over two",
       [](const Tensors& x) {
         return x[0].mean(at::IntArrayRef({0, -1}), true).square();
       }},
      {"mean all", [](const Tensors& x) { return x[0].mean().square(); }},
      {"amax", [](const Tensors& x) { return x[0].amax({1}); }},
      {"max", [](const Tensors& x) { return std::get<0>(x[0].max(1)) * 2; }},
      {"argmax", [](const Tensors& x) { return x[0].argmax(1); }},
      {"argmin all", [](const Tensors& x) { return x[0].argmin(); }},
      {"min", [](const Tensors& x) { return x[0].min() * x[0].max(); }},
      {"var", [](const Tensors& x) { return x[0].var(1, false); }},
      {"std", [](const Tensors& x) { return (x[0] * 3).std(0, false).square(); }},
      {"norm", [](const Tensors& x) { return x[0].norm(); }},
      {"norm 3", [](const Tensors& x) { return (x[0] + 2).norm(3, {1}); }},
      {"logsumexp", [](const Tensors& x) { return x[0].logsumexp(1); }},
      {"any", [](const Tensors& x) { return (x[0] > 0.9).any(1); }},
      {"median", [](const Tensors& x) { return x[0].median() + (x[0] * 4).round().median(); }},
      {"nanmedian", [](const Tensors& x) { return x[0].sqrt().nanmedian().detach(); }},
      {"median of NaN", [](const Tensors& x) { return x[0].sqrt().median().detach(); }},
      {"nansum", [](const Tensors& x) { return x[0].log().nansum(1); }},
      {"dist", [](const Tensors& x) { return torch::dist(x[0], x[0].exp(), 3); }},
      {"norm, typed", [](const Tensors& x) { return x[0].norm(2, 1, true, x[0].scalar_type()); }},
      {"aminmax", [](const Tensors& x) { return std::get<1>(x[0].detach().aminmax(1)); }},
      {"count",
       [](const Tensors& x) {
         return (x[0] > 0).count_nonzero(at::IntArrayRef({0, 2}));
       }},
      {"all", [](const Tensors& x) { return (x[0] > -0.9).all(); }},
      {"prod", [](const Tensors& x) { return x[0].prod(1).detach(); }},
  };
  for (const auto& [name, fn] : all) {
    expect_agreement(
        name, 60,
        [](auto& random) {
          return Tensors{
              tensor({between(random, 2, 7), between(random, 1, 7), between(random, 2, 6)})};
        },
        fn);
  }
}

TEST(Reductions, MeansOfWholeNumbersNameAType) {
  const Tensor x = split(torch::arange(6), test_mesh(2), {2});
  EXPECT_FAILS(x.mean(), ValueError, "got Long; name one: mean(..., torch::kFloat)");
  EXPECT_EQ(x.mean(torch::kFloat).item<float>(), 2.5F);
  EXPECT_EQ(x.mean(0, false, torch::kDouble).item<double>(), 2.5);
}

TEST(Matmul, AllKinds) {
  expect_agreement(
      "mm", 200,
      [](auto& random) {
        const auto k = between(random, 1, 8);
        return Tensors{tensor({between(random, 1, 8), k}), tensor({k, between(random, 1, 8)})};
      },
      [](const Tensors& x) { return x[0].mm(x[1]); });
  expect_agreement(
      "linear", 200,
      [](auto& random) {
        const auto in = between(random, 1, 8), out = between(random, 1, 8);
        return Tensors{tensor({between(random, 1, 5), between(random, 1, 4), in}),
                       tensor({out, in}), tensor({out})};
      },
      [](const Tensors& x) { return torch::linear(x[0], x[1], x[2]).tanh(); });
  expect_agreement(
      "bmm", 200,
      [](auto& random) {
        const auto b = between(random, 1, 5), k = between(random, 1, 8);
        return Tensors{tensor({b, between(random, 1, 8), k}),
                       tensor({b, k, between(random, 1, 8)})};
      },
      [](const Tensors& x) { return x[0].bmm(x[1]); });
  expect_agreement(
      "baddbmm", 100,
      [](auto& random) {
        const auto b = between(random, 1, 5), k = between(random, 1, 8), m = between(random, 1, 5);
        return Tensors{tensor({b, 1, 3}), tensor({b, m, k}), tensor({b, k, 3})};
      },
      [](const Tensors& x) { return torch::baddbmm(x[0], x[1], x[2], 0.5, 2); });
  expect_agreement(
      "matmul", 200,
      [](auto& random) {
        const auto k = between(random, 1, 6);
        return Tensors{tensor({2, between(random, 1, 4), between(random, 1, 5), k}),
                       tensor({between(random, 1, 2) == 1 ? 1 : 2, 1, k, between(random, 1, 5)})};
      },
      [](const Tensors& x) { return x[0].matmul(x[1]); });
  expect_agreement(
      "matmul of a vector", 100,
      [](auto& random) {
        const auto k = between(random, 1, 6);
        return Tensors{tensor({between(random, 1, 5), k}), tensor({k})};
      },
      [](const Tensors& x) { return x[0].matmul(x[1]) * x[1].dot(x[1]); });
  expect_agreement(
      "einsum", 200,
      [](auto& random) {
        const auto b = between(random, 1, 3), i = between(random, 1, 4), d = between(random, 1, 4);
        return Tensors{tensor({b, i, 2, d}), tensor({b, between(random, 1, 4), 2, d})};
      },
      [](const Tensors& x) {
        return torch::einsum("bihd,bjhd->bhij", {x[0], x[1]});
      });
}

TEST(Matmul, InPlace) {
  expect_agreement(
      "all", 100,
      [](auto& random) {
        const auto k = between(random, 1, 6);
        return Tensors{tensor({3, between(random, 1, 5), k}), tensor({3, k, 4}), tensor({4})};
      },
      [](const Tensors& x) {
        Tensor y = x[0][0].mm(x[1][0]).addmm_(x[0][1], x[1][1], 0.5, 2).addbmm_(x[0], x[1]);
        Tensor z = x[0].bmm(x[1]).baddbmm_(x[0], x[1], 2, 0.5);
        Tensor plain = torch::zeros_like(full(y));
        plain.addmm_(x[0][0], x[1][0]).addr_(x[0][0].sum(1), x[2]);
        return torch::addbmm(y, x[0], x[1]) + z + plain;
      });
}

TEST(Matmul, AddsLargePartsInTheirOrder) {
  const Tensor a = torch::rand({160, 9}), b = torch::rand({9, 130});
  const Tensor got = split(a, test_mesh(3), {1, 3}).mm(b);
  EXPECT_FALSE(is_sharded(got));
  Tensor expected = a.narrow(1, 0, 3).mm(b.narrow(0, 0, 3));
  for (const int k : {3, 6}) expected += a.narrow(1, k, 3).mm(b.narrow(0, k, 3));
  EXPECT_TRUE(torch::equal(got, expected));
}

TEST(Views, OfAllKinds) {
  const std::vector<std::pair<const char*, Function>> all{
      {"permute",
       [](const Tensors& x) {
         return x[0].permute({2, 0, 1}).exp();
       }},
      {"transpose", [](const Tensors& x) { return x[0].transpose(0, 2) * x[0].transpose(0, 2); }},
      {"slice", [](const Tensors& x) { return x[0].slice(1, 1, 5, 2).exp(); }},
      {"select", [](const Tensors& x) { return x[0].select(1, 2).exp() * x[0].select(1, -1); }},
      {"narrow", [](const Tensors& x) { return x[0].narrow(0, 1, 2).square(); }},
      {"unsqueeze",
       [](const Tensors& x) { return x[0].unsqueeze(1).squeeze(1).exp().unsqueeze(-1); }},
      {"in place",
       [](const Tensors& x) {
         const Tensor y = (x[0] * 2).unsqueeze_(1).transpose_(0, 2).mul_(3);
         return y * y.detach().squeeze_().unsqueeze_(1);
       }},
      {"expand",
       [](const Tensors& x) {
         return x[0].unsqueeze(0).expand({3, -1, -1, -1}).square();
       }},
      {"view",
       [](const Tensors& x) {
         return x[0].contiguous().view({x[0].size(0), -1}).exp();
       }},
      {"flatten", [](const Tensors& x) { return x[0].flatten().square(); }},
      {"unflatten",
       [](const Tensors& x) {
         return x[0].contiguous().view({2, -1, x[0].size(1), x[0].size(2)}).exp();
       }},
      {"reshape of permuted",
       [](const Tensors& x) {
         return x[0].permute({1, 0, 2}).reshape({-1, x[0].size(2)}).exp();
       }},
      {"split", [](const Tensors& x) { return x[0].split(2, 1)[1].exp() * x[0].split(2, 1)[0]; }},
      {"chunk", [](const Tensors& x) { return x[0].chunk(2, 0)[1].exp(); }},
      {"unbind", [](const Tensors& x) { return x[0].unbind(0)[1].exp(); }},
      {"in place on a view",
       [](const Tensors& x) {
         Tensor y = x[0] * 2;
         y.slice(1, 0, 3).select(2, 1).mul_(3);
         y.permute({2, 1, 0}).select(1, 0).add_(1);
         return y.square();
       }},
  };
  for (const auto& [name, fn] : all) {
    expect_agreement(
        name, 60,
        [](auto& random) {
          return Tensors{
              tensor({2 * between(random, 2, 4), between(random, 4, 7), between(random, 2, 6)})};
        },
        fn);
  }
}

TEST(Views, InInferenceMode) {
  const Tensor x = tensor({4, 6}), weight = tensor({5, 6});
  const Tensor expected = torch::linear(x, weight).flatten();
  const Tensor before = split(weight, test_mesh(2), {2, 1});
  const torch::InferenceMode inference;
  const Tensor inside = split(weight, test_mesh(2), {1, 2});
  for (const Tensor& sharded : {before, inside}) {
    EXPECT_TRUE(torch::allclose(full(torch::linear(x, sharded).flatten()), expected));
    EXPECT_TRUE(torch::equal(full(sharded.t().unsqueeze(0).select(2, 1)),
                             weight.t().unsqueeze(0).select(2, 1)));
  }
}

TEST(Softmax, AlongAnyDimension) {
  for (const int dim : {0, 1, 2}) {
    expect_agreement(
        "softmax", 100, [](auto& random) { return Tensors{any_tensor(random, 3)}; },
        [dim](const Tensors& x) { return x[0].softmax(dim); });
    expect_agreement(
        "log_softmax", 100, [](auto& random) { return Tensors{any_tensor(random, 3)}; },
        [dim](const Tensors& x) { return x[0].log_softmax(dim); });
  }
  expect_agreement(
      "of one dimension", 50, [](auto& random) { return Tensors{any_tensor(random, 1)}; },
      [](const Tensors& x) { return x[0].softmax(0); });
}

TEST(CrossEntropy, AlsoOverSplitClasses) {
  using Options = torch::nn::functional::CrossEntropyFuncOptions;
  const auto make = [](auto& random) {
    const auto n = between(random, 1, 8), classes = between(random, 2, 8);
    return Tensors{tensor({n, classes}), torch::randint(classes, {n}),
                   torch::rand({classes}, torch::kDouble) + 0.5};
  };
  expect_agreement("mean", 200, make, [](const Tensors& x) {
    return torch::nn::functional::cross_entropy(x[0], x[1]);
  });
  expect_agreement("none", 200, make, [](const Tensors& x) {
    return torch::nn::functional::cross_entropy(x[0], x[1], Options().reduction(torch::kNone));
  });
  expect_agreement("sum, weights, an ignored class", 200, make, [](const Tensors& x) {
    return torch::nn::functional::cross_entropy(
        x[0], x[1], Options().reduction(torch::kSum).ignore_index(1).weight(full(x[2]).detach()));
  });
  expect_agreement(
      "of images", 100,
      [](auto& random) {
        const auto n = between(random, 1, 4), h = between(random, 1, 5);
        return Tensors{tensor({n, 3, h, 4}), torch::randint(3, {n, h, 4})};
      },
      [](const Tensors& x) { return torch::nn::functional::cross_entropy(x[0], x[1]); });
}

}  // namespace
}  // namespace cohort::spmd
