// Pooling of split images: sharded as unsharded, the places of maxima too.

#include "tests/spmd/agreement.h"

namespace cohort::spmd {
namespace {

using torch::Tensor;

/// Random options of windows that move along `dims` dimensions.
struct PoolOptions {
  std::vector<std::int64_t> kernel, stride, padding, dilation;
  bool ceil_mode, counts_padding;
  c10::optional<std::int64_t> divisor;

  PoolOptions(std::mt19937& random, int dims, std::int64_t most_dilation)
      : ceil_mode(random() % 2 == 0), counts_padding(random() % 2 == 0) {
    if (random() % 4 == 0) divisor = between(random, 1, 5);
    for (int d = 0; d < dims; ++d) {
      kernel.push_back(between(random, 1, 4));
      stride.push_back(between(random, 1, 3));
      padding.push_back(between(random, 0, kernel[d] / 2));
      dilation.push_back(between(random, 1, most_dilation));
    }
  }

  /// An input that has room for the windows; sometimes without a batch.
  Tensors tensors(std::mt19937& random) const {
    std::vector<std::int64_t> sizes{between(random, 2, 4)};  // else one element may be left
    if (random() % 4 != 0) sizes.push_back(between(random, 1, 4));
    for (std::size_t d = 0; d < kernel.size(); ++d) {
      const auto extent = dilation[d] * (kernel[d] - 1) + 1;
      sizes.push_back(extent + between(random, 0, kernel.size() == 3 ? 4 : 9));
    }
    return {tensor(sizes)};
  }
};

/// Cases with their own options each.
void expect_same(const char* name, int cases, int dims, std::int64_t most_dilation,
                 const std::function<Tensor(const Tensor&, const PoolOptions&)>& fn) {
  std::optional<PoolOptions> options;
  expect_agreement(
      name, cases,
      [&](auto& random) {
        options.emplace(random, dims, most_dilation);
        return options->tensors(random);
      },
      [&](const Tensors& x) { return fn(x[0], *options); });
}

TEST(MaxPool, Values) {
  expect_same("max_pool1d", 150, 1, 2, [](const Tensor& x, const PoolOptions& o) {
    return torch::max_pool1d(x, o.kernel, o.stride, o.padding, o.dilation, o.ceil_mode).tanh();
  });
  expect_same("max_pool2d", 300, 2, 2, [](const Tensor& x, const PoolOptions& o) {
    return torch::max_pool2d(x, o.kernel, o.stride, o.padding, o.dilation, o.ceil_mode).tanh();
  });
  expect_same("max_pool3d", 100, 3, 2, [](const Tensor& x, const PoolOptions& o) {
    return torch::max_pool3d(x, o.kernel, o.stride, o.padding, o.dilation, o.ceil_mode).tanh();
  });
}

#if TORCH_VERSION_MAJOR >= 2  // LibTorch 1.13 pools only floating point
TEST(MaxPool, OfWholeNumbers) {
  expect_same("of int64", 80, 2, 2, [](const Tensor& x, const PoolOptions& o) {
    const Tensor numbers = (x.detach() * 100).to(torch::kLong) - 200;
    return torch::max_pool2d(numbers, o.kernel, o.stride, o.padding, o.dilation, o.ceil_mode);
  });
}
#endif

TEST(MaxPool, Places) {
  expect_same("max_pool2d", 200, 2, 2, [](const Tensor& x, const PoolOptions& o) {
    return std::get<1>(
        torch::max_pool2d_with_indices(x, o.kernel, o.stride, o.padding, o.dilation, o.ceil_mode));
  });
  expect_same("max_pool3d", 100, 3, 2, [](const Tensor& x, const PoolOptions& o) {
    return std::get<1>(
        torch::max_pool3d_with_indices(x, o.kernel, o.stride, o.padding, o.dilation, o.ceil_mode));
  });
}

/// Where all elements are the smallest number the first one counts, not one of the padding.
TEST(MaxPool, PlacesAmongInfinities) {
  for (const int dims : {2, 3}) {
    expect_same("of -inf", 100, dims, 3, [dims](const Tensor& x, const PoolOptions& o) {
      const auto pool = dims == 2 ? torch::max_pool2d_with_indices : torch::max_pool3d_with_indices;
      const Tensor mostly = torch::where(x > 0.7, x, -std::numeric_limits<double>::infinity());
      return std::get<1>(pool(mostly, o.kernel, o.stride, o.padding, o.dilation, o.ceil_mode));
    });
  }
}

TEST(MaxPool, WithoutGradients) {
  const Tensor x = tensor({2, 3, 11});
  const Tensor expected = torch::max_pool1d(x, 3, 2, 1);
  const Tensor sharded = split(x, test_mesh(2), {1, 1, 2});
  {
    const torch::NoGradGuard none;
    EXPECT_TRUE(torch::equal(torch::max_pool1d(x, 3, 2, 1), expected));
    EXPECT_TRUE(torch::equal(full(torch::max_pool1d(sharded, 3, 2, 1)), expected));
  }
  const torch::InferenceMode inference;
  EXPECT_TRUE(torch::equal(full(torch::max_pool1d(sharded, 3, 2, 1)), expected));
}

TEST(AvgPool, OfAllOptions) {
  expect_same("avg_pool1d", 150, 1, 1, [](const Tensor& x, const PoolOptions& o) {
    return torch::avg_pool1d(x, o.kernel, o.stride, o.padding, o.ceil_mode, o.counts_padding)
        .tanh();
  });
  expect_same("avg_pool2d", 300, 2, 1, [](const Tensor& x, const PoolOptions& o) {
    return torch::avg_pool2d(x, o.kernel, o.stride, o.padding, o.ceil_mode, o.counts_padding,
                             o.divisor)
        .tanh();
  });
  expect_same("avg_pool3d", 100, 3, 1, [](const Tensor& x, const PoolOptions& o) {
    return torch::avg_pool3d(x, o.kernel, o.stride, o.padding, o.ceil_mode, o.counts_padding,
                             o.divisor)
        .tanh();
  });
}

/// Random sizes of a result, some larger than the input.
std::vector<std::int64_t> outputs(std::mt19937& random, int dims) {
  std::vector<std::int64_t> sizes;
  for (int d = 0; d < dims; ++d) sizes.push_back(between(random, 1, 7));
  return sizes;
}
void expect_same_adaptive(
    const char* name, int cases, int dims,
    const std::function<Tensor(const Tensor&, const std::vector<std::int64_t>&)>& fn) {
  std::vector<std::int64_t> output;
  expect_agreement(
      name, cases,
      [&](auto& random) {
        output = outputs(random, dims);
        std::vector<std::int64_t> sizes{between(random, 2, 4)};  // else one element may be left
        if (random() % 4 != 0) sizes.push_back(between(random, 1, 4));
        for (int d = 0; d < dims; ++d) sizes.push_back(between(random, 1, 9));
        return Tensors{tensor(sizes)};
      },
      [&](const Tensors& x) { return fn(x[0], output); });
}

TEST(AdaptivePool, Averages) {
  expect_same_adaptive("1d", 100, 1, [](const Tensor& x, const auto& output) {
    return torch::adaptive_avg_pool1d(x, output).tanh();
  });
  expect_same_adaptive("2d", 250, 2, [](const Tensor& x, const auto& output) {
    return torch::adaptive_avg_pool2d(x, output).tanh();
  });
  expect_same_adaptive("3d", 80, 3, [](const Tensor& x, const auto& output) {
    return torch::adaptive_avg_pool3d(x, output).tanh();
  });
}

TEST(AdaptivePool, MaximaAndTheirPlaces) {
  expect_same_adaptive("1d", 80, 1, [](const Tensor& x, const auto& output) {
    return std::get<0>(torch::adaptive_max_pool1d(x, output)).tanh();
  });
  expect_same_adaptive("2d", 200, 2, [](const Tensor& x, const auto& output) {
    return std::get<0>(torch::adaptive_max_pool2d(x, output)).tanh();
  });
  expect_same_adaptive("2d, places", 100, 2, [](const Tensor& x, const auto& output) {
    return std::get<1>(torch::adaptive_max_pool2d(x, output));
  });
  expect_same_adaptive("3d", 80, 3, [](const Tensor& x, const auto& output) {
    return std::get<0>(torch::adaptive_max_pool3d(x, output)).tanh();
  });
  expect_same_adaptive("3d, places", 50, 3, [](const Tensor& x, const auto& output) {
    return std::get<1>(torch::adaptive_max_pool3d(x, output));
  });
}

TEST(Pooling, StaysWhereItsTensorsAre) {
  const Tensor x = split(tensor({2, 3, 12, 6}), test_mesh(3), {1, 1, 3, 1});
  EXPECT_EQ(layout_of(torch::max_pool2d(x, 2)).devices(), layout_of(x).devices());
  EXPECT_EQ(layout_of(torch::avg_pool2d(x, 3, 1, 1)).cuts(), layout_of(x).cuts());
  const Tensor there = assign(tensor({2, 3, 12, 6}), test_mesh(3), 2);
  EXPECT_EQ(layout_of(torch::max_pool2d(there, 2)).devices(), std::vector<int>{2});
}

}  // namespace
}  // namespace cohort::spmd
