// Diagonals, windows, complex numbers as pairs, and shapes that have no cut in common.

#include "tests/base/failing.h"
#include "tests/spmd/agreement.h"

namespace cohort::spmd {
namespace {

using torch::Tensor;

Tensors a_box(std::mt19937& random) {
  return {tensor({between(random, 3, 6), between(random, 2, 6), between(random, 3, 6)})};
}

TEST(Diagonals, AreReadWrittenAndMade) {
  const std::vector<std::pair<const char*, Function>> all{
      {"diagonal", [](const Tensors& x) { return x[0].diagonal(1, 0, 2).exp(); }},
      {"below", [](const Tensors& x) { return x[0].diagonal(-1, 2, 0).exp(); }},
      {"written",
       [](const Tensors& x) {
         const Tensor y = x[0] * 1;
         y.diagonal(0, 0, 2).mul_(2);
         y.select(1, 1).diagonal(1).add_(3);
         y.transpose(0, 1).diagonal(0, 0, 1).narrow(0, 1, 2).square_();
         return y;
       }},
      {"embedded", [](const Tensors& x) { return torch::diag_embed(x[0], -1, 0, 2).square(); }},
      {"diag", [](const Tensors& x) { return torch::diag(x[0].select(1, 0)).square(); }},
      {"of a vector", [](const Tensors& x) { return torch::diag(x[0].select(1, 0)[0], 1).exp(); }},
      {"trace", [](const Tensors& x) { return x[0].select(1, 0).trace().square(); }},
      {"einsum",
       [](const Tensors& x) {
         return torch::einsum("iij->j", {x[0].narrow(0, 0, 2).narrow(1, 0, 2)}).square();
       }},
      {"replaced",
       [](const Tensors& x) {
         const Tensor first = torch::select_scatter(x[0], x[0].select(0, 1).exp(), 0, 2);
         const Tensor other = torch::slice_scatter(first, x[0].slice(2, 0, 2).exp(), 2, 1, 3);
         return torch::diagonal_scatter(other, x[0].diagonal().exp()).square();
       }},
  };
  for (const auto& [name, fn] : all) expect_agreement(name, 60, a_box, fn);
}

TEST(Views, AreCopiedInParts) {
  expect_agreement("copies", 60, a_box, [](const Tensors& x) {
    Tensor y = torch::select_copy(torch::transpose_copy(x[0].detach(), 0, 2), 1, 0);
    y = torch::diagonal_copy(torch::unsqueeze_copy(y, 0), 0, 1, 2).mul_(2);
    return torch::cat(torch::unbind_copy(torch::view_copy(y, {-1, 1})));
  });
}

TEST(Unfold, GivesWindowsOfAnyDimension) {
  const auto make = [](auto& random) {
    return Tensors{tensor({between(random, 2, 4), between(random, 5, 9)})};
  };
  for (const auto& [size, step] : {std::pair(3, 1), std::pair(3, 2), std::pair(2, 3)}) {
    expect_agreement("unfold", 60, make, [size = size, step = step](const Tensors& x) {
      return x[0].unfold(1, size, step).square();
    });
  }
  expect_agreement("twice", 60, make,
                   [](const Tensors& x) { return x[0].unfold(1, 4, 1).unfold(0, 2, 1).exp(); });
}

TEST(Complex, NumbersAreSeenAsPairs) {
  expect_agreement(
      "there and back", 60,
      [](auto& random) {
        return Tensors{tensor({between(random, 2, 5), between(random, 2, 4), 2})};
      },
      [](const Tensors& x) {
        const Tensor y = torch::view_as_complex(x[0].contiguous()) * 1;
        torch::real(y).mul_(3);
        const Tensor product = y.conj().matmul(y.t());
        return torch::view_as_real(product) + torch::imag(y.conj()).sum();
      });
}

TEST(Views, InShapesWithoutACommonCut) {
  expect_agreement(
      "8 x 9", 60,
      [](auto&) {
        return Tensors{tensor({4, 3, 6})};
      },
      [](const Tensors& x) {
        return x[0].reshape({8, 9}).exp().reshape({3, 24}).square().reshape({-1, 1, 2});
      });
}

TEST(Views, WithStridesOfAnyKind) {
  expect_agreement(
      "overlapping", 60,
      [](auto&) {
        return Tensors{tensor({4, 6})};
      },
      [](const Tensors& x) {
        return torch::as_strided(x[0].clone(torch::MemoryFormat::Contiguous), {5, 4}, {4, 1}, 2);
      });
  const Tensor rows = tensor({5, 6}), sharded = split(rows, test_mesh(2), {1, 2});
  EXPECT_TRUE(torch::equal(full(sharded.narrow(0, 1, 3).as_strided({7, 4}, {2, 1})),
                           rows.narrow(0, 1, 3).as_strided({7, 4}, {2, 1})));
  EXPECT_TRUE(torch::equal(full(sharded.t().as_strided({7, 4}, {2, 1})),
                           rows.t().as_strided({7, 4}, {2, 1})));
  EXPECT_FAILS(sharded.narrow(0, 1, 3).as_strided({2}, {1}, 3), InvalidArgument, "reach beyond");
}

}  // namespace
}  // namespace cohort::spmd
