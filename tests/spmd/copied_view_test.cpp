// Views for which elements had to move: copies that are kept in step with their tensors.

#include "cohort/spmd/copied_view.h"

#include "tests/base/failing.h"
#include "tests/spmd/agreement.h"

namespace cohort::spmd {
namespace {

using torch::Tensor;

/// Columns in halves, so that its elements in order lie here and there.
Tensor numbers() { return torch::arange(8.).reshape({2, 4}); }
Tensor in_columns(const Tensor& x) { return split(x, test_mesh(2), {1, 2}); }

TEST(CopiedView, SeesWhatChangesItsTensor) {
  const Tensor x = in_columns(numbers());
  const Tensor all = x.view(-1), middle = all.slice(0, 2, 6), windows = x.unfold(1, 3, 1);
  x.mul_(2);
  EXPECT_TRUE(torch::equal(full(all), numbers().flatten() * 2));
  EXPECT_TRUE(torch::equal(full(middle), numbers().flatten().slice(0, 2, 6) * 2));
  x.select(0, 1).zero_();  // through another view
  EXPECT_EQ(full(middle).sum().item<double>(), 4 + 6);
  EXPECT_TRUE(torch::equal(full(windows), full(x).unfold(1, 3, 1)));
}

TEST(CopiedView, ChangesItsTensor) {
  const Tensor x = in_columns(numbers());
  Tensor expected = numbers();
  for (const Tensor& each : {x, expected}) {
    each.view(-1).slice(0, 1, 6).mul_(10);
    each.view({4, 2}).view(-1).index_fill_(0, torch::tensor({7}), -1);
    each.t().flatten(0, -1);  // a copy for both
    each.view({2, 2, 2}).select(2, 0).add_(0.5);
    each.view(-1).index_put_({torch::tensor({0, 5})}, torch::tensor({3., 4.}));
  }
  EXPECT_TRUE(torch::equal(full(x), expected)) << full(x);
}

TEST(CopiedView, OfOverlappingWindowsCanNotBeWrittenTo) {
  const Tensor x = in_columns(numbers());
  EXPECT_FAILS(x.unfold(1, 3, 1).zero_(), ValueError, "change the tensor itself");
  EXPECT_FAILS(x.as_strided({4, 3}, {1, 1}).zero_(), ValueError, "change the tensor itself");
  EXPECT_TRUE(torch::equal(full(x), numbers()));
}

TEST(CopiedView, OfAnOperationWithoutARuleMustBeTakenAgain) {
  const Tensor x = in_columns(numbers());
  const Tensor bits = x.view(torch::kInt);
  EXPECT_EQ(full(bits).sizes(), numbers().sizes());
  x.mul_(2);
  EXPECT_FAILS(full(bits), ValueError, "take the view again");
}

TEST(CopiedView, HasTheDerivativesOfAView) {
  const auto make = [](auto& random) {
    return Tensors{tensor({between(random, 1, 4), 6, between(random, 1, 3)}), tensor({6})};
  };
  expect_agreement("written", 100, make,
                   [](const Tensors& x) {
                     const Tensor y = x[0] * 2;
                     const Tensor all = y.view({-1});
                     all.slice(0, 1, 7).mul_(x[1].exp().slice(0, 0, all.slice(0, 1, 7).size(0)));
                     return y.square() + all.sum();
                   },
                   {.with_views = false});
  expect_agreement("read later", 100, make,
                   [](const Tensors& x) {
                     const Tensor y = x[0] * 2;
                     const Tensor pairs = y.view({-1, 2});
                     y.mul_(x[1].unsqueeze(1));
                     pairs.select(1, 0).square_();
                     return pairs.exp().sum(0) + y.sum();
                   },
                   {.with_views = false});
}

}  // namespace
}  // namespace cohort::spmd
