// Convolutions over split batches, channels and images: sharded as unsharded.

#include "tests/base/failing.h"
#include "tests/spmd/agreement.h"

namespace cohort::spmd {
namespace {

using torch::Tensor;

/// Random options of a convolution with `dims` dimensions beside batch and channels.
struct ConvolutionOptions {
  std::vector<std::int64_t> kernel, stride, padding, dilation, output_padding;
  std::int64_t groups;
  bool transposed;

  ConvolutionOptions(std::mt19937& random, int dims, bool is_transposed, bool has_groups)
      : groups(has_groups ? between(random, 2, 4) : 1), transposed(is_transposed) {
    for (int d = 0; d < dims; ++d) {
      kernel.push_back(between(random, 1, dims == 3 ? 3 : 5));
      stride.push_back(between(random, 1, 3));
      dilation.push_back(between(random, 1, 2));
      padding.push_back(between(random, 0, 2));
      const auto most = std::max(stride[d], dilation[d]) - 1;
      output_padding.push_back(transposed ? between(random, 0, most) : 0);
    }
  }

  /// Input, weight and bias; inputs a little longer than the windows.
  Tensors tensors(std::mt19937& random) {
    const auto in = between(random, 1, groups > 1 ? 2 : 5);
    const auto out = between(random, 1, groups > 1 ? 2 : 5);
    // Of one image, a group or a channel may give one number: nothing is left to split.
    std::vector<std::int64_t> x{between(random, groups > 1 || in * out == 1 ? 2 : 1, 4),
                                groups * in};
    std::vector<std::int64_t> weight{transposed ? groups * in : groups * out,
                                     transposed ? out : in};
    for (std::size_t d = 0; d < kernel.size(); ++d) {
      const auto extent = dilation[d] * (kernel[d] - 1) + 1 - 2 * padding[d];
      const auto least =
          transposed ? 2 + 2 * padding[d] / stride[d] : std::max<std::int64_t>(extent, 1);
      x.push_back(least + between(random, 0, kernel.size() == 3 ? 4 : 9));
      weight.push_back(kernel[d]);
    }
    return {tensor(x), tensor(weight), tensor({groups * out})};
  }
};

struct Kind {
  int dims;
  bool transposed = false;
  bool has_groups = false;
  bool has_bias = true;
};
/// Cases with their own options each.
void expect_same(const char* name, int cases, Kind kind) {
  std::optional<ConvolutionOptions> options;
  expect_agreement(
      name, cases,
      [&](auto& random) {
        options.emplace(random, kind.dims, kind.transposed, kind.has_groups);
        Tensors all = options->tensors(random);
        if (!kind.has_bias) all.pop_back();
        return all;
      },
      [&](const Tensors& x) {
        return torch::convolution(x[0], x[1], kind.has_bias ? x[2] : Tensor(), options->stride,
                                  options->padding, options->dilation, kind.transposed,
                                  options->output_padding, options->groups)
            .tanh();
      });
}

TEST(Convolution, OfOneDimension) { expect_same("conv1d", 200, {.dims = 1}); }
TEST(Convolution, OfTwoDimensions) { expect_same("conv2d", 300, {.dims = 2}); }
TEST(Convolution, OfThreeDimensions) { expect_same("conv3d", 100, {.dims = 3}); }
TEST(Convolution, WithoutBias) { expect_same("conv2d", 100, {.dims = 2, .has_bias = false}); }
TEST(Convolution, OfGroups) {
  expect_same("conv1d", 100, {.dims = 1, .has_groups = true});
  expect_same("conv2d", 200, {.dims = 2, .has_groups = true});
}
TEST(Convolution, Transposed) {
  expect_same("transposed1d", 200, {.dims = 1, .transposed = true});
  expect_same("transposed2d", 250, {.dims = 2, .transposed = true});
  expect_same("transposed3d", 80, {.dims = 3, .transposed = true, .has_bias = false});
}
TEST(Convolution, TransposedOfGroups) {
  expect_same("transposed2d", 150, {.dims = 2, .transposed = true, .has_groups = true});
}

TEST(Convolution, OfOneImageWithoutABatch) {
  expect_agreement(
      "unbatched", 50,
      [](auto& random) {
        return Tensors{tensor({3, between(random, 5, 9), 6}), tensor({4, 3, 3, 3}), tensor({4})};
      },
      [](const Tensors& x) { return torch::conv2d(x[0], x[1], x[2], 1, 1); });
}

TEST(Convolution, PaddedToTheSameSize) {
  expect_agreement(
      "same", 50,
      [](auto& random) {
        return Tensors{tensor({2, 3, between(random, 5, 9), 6}), tensor({4, 3, 3, 5}), tensor({4})};
      },
      [](const Tensors& x) { return torch::conv2d(x[0], x[1], x[2], 1, "same"); });
}

TEST(Convolution, InANetwork) {
  expect_agreement(
      "down and up", 60,
      [](auto& random) {
        return Tensors{tensor({2, 3, between(random, 12, 17), 14}), tensor({8, 3, 3, 3}),
                       tensor({8, 4, 4, 4})};
      },
      [](const Tensors& x) {
        const Tensor hidden = torch::conv2d(x[0], x[1], {}, 2, 1).relu();
        return torch::conv_transpose2d(hidden, x[2], {}, 2, 1, 0, 1).tanh();
      });
}

TEST(Convolution, WithSettings) {
  const Strict strict;
  const Tensor x = tensor({2, 3, 9, 6}), weight = tensor({4, 3, 3, 3});
  const std::vector<std::int64_t> one{1, 1}, none{0, 0};
  const torch::NoGradGuard no_gradients;
  const Tensor got = at::_convolution(split(x, test_mesh(2), {1, 1, 2, 1}), weight, {}, one, one,
                                      one, false, none, 1, false, false, false, false);
  EXPECT_TRUE(torch::allclose(full(got), torch::conv2d(x, weight, {}, 1, 1)));
}

TEST(Convolution, StaysWhereItsTensorsAre) {
  const auto& mesh = test_mesh(3);
  const Tensor weight = tensor({4, 3, 3, 3});
  const Tensor split_rows = split(tensor({2, 3, 9, 6}), mesh, {1, 1, 3, 1});
  const Tensor y = torch::conv2d(split_rows, weight, {}, 1, 1);
  EXPECT_EQ(layout_of(y).parts(2), 3);
  EXPECT_EQ(layout_of(y).devices(), layout_of(split_rows).devices());
  const Tensor there = torch::conv2d(assign(tensor({2, 3, 9, 6}), mesh, 2), weight);
  EXPECT_EQ(layout_of(there).devices(), std::vector<int>{2});
}

TEST(Convolution, SaysWhatDoesNotFit) {
  const Tensor x = split(tensor({2, 3, 9, 6}), test_mesh(2), {1, 1, 2, 1});
  EXPECT_FAILS(torch::conv2d(x, tensor({4, 2, 3, 3})), InvalidArgument, "expected an input with 2");
  EXPECT_FAILS(torch::conv2d(x, tensor({4, 3, 3, 7})), InvalidArgument, "does not fit into");
}

}  // namespace
}  // namespace cohort::spmd
