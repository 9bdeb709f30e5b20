// Conjugated and negated tensors, which LibTorch keeps as a note on memory that holds something
// else: elements are the values that the tensor shows.

#include "tests/data/elements.h"
#include "tests/io/scratch_folder.h"

namespace cohort::data {
namespace {

using Complex = c10::complex<double>;

at::Tensor conjugated() {
  return torch::tensor({Complex(1, 2), Complex(3, -4), Complex(0, 5), Complex(-6, 7)},
                       at::kComplexDouble)
      .conj();
}
at::Tensor negated() { return torch::_neg_view(torch::tensor({1.0, -2.0, 3.0, 4.0})); }

class LazyViews : public testing::TestWithParam<at::Tensor (*)()> {
 protected:
  void SetUp() override { ASSERT_TRUE(view_.is_conj() || view_.is_neg()); }

  /// All elements of two passes are these rows, in one batch or several.
  void expect_rows(const Dataset<at::Tensor>& batches, const at::Tensor& rows) const {
    for (int pass = 0; pass < 2; ++pass) {
      std::vector<at::Tensor> all;
      for (const at::Tensor& batch : batches) all.push_back(batch);
      EXPECT_TRUE(at::cat(all).equal(rows)) << at::cat(all);
    }
  }

  const at::Tensor view_ = GetParam()();
  const at::Tensor plain_ = view_.resolve_conj().resolve_neg().clone();
  ScratchFolder folder_;
};

TEST_P(LazyViews, AreSlicedIntoBatches) {
  expect_rows(from_tensor_slices(view_).batch(2), plain_);
  expect_rows(from_tensor_slices(view_.reshape({2, 2})), plain_.reshape({2, 2}).flatten());
  EXPECT_TRUE(from_tensor_slices(view_).iterator().next()->equal(plain_[0]));
}

TEST_P(LazyViews, AreElements) {
  expect_rows(from_tensors(view_), plain_);
  expect_rows(from_tensors(view_).repeat(2).batch(2), at::stack({plain_, plain_}));
}

TEST_P(LazyViews, AreCached) {
  expect_rows(from_tensors(view_).cache(), plain_);
  expect_rows(from_tensors(view_).cache().batch(1), plain_.unsqueeze(0));
  expect_rows(from_tensor_slices(view_).batch(2).cache(), plain_);
}

TEST_P(LazyViews, AreCachedInAFile) {
  expect_rows(from_tensors(view_).cache(folder_.path("element")), plain_);
  expect_rows(from_tensor_slices(view_).batch(2).cache(folder_.path("batches")), plain_);
}

TEST_P(LazyViews, AreShuffled) {
  expect_rows(from_tensor_slices(view_).shuffle(1).batch(2), plain_);  // in their order
  expect_rows(from_tensors(view_).shuffle(4).batch(1), plain_.unsqueeze(0));
  for (const at::Tensor& batch : from_tensor_slices(view_).shuffle(4).batch(4)) {
    EXPECT_TRUE(batch.sum().equal(plain_.sum())) << batch;
  }
}

TEST_P(LazyViews, AreMappedAndStacked) {
  const auto same = [&](std::int64_t) { return view_; };
  expect_rows(range(2).map(same).batch(2), at::stack({plain_, plain_}));
  expect_rows(range(2).map(same, {.parallel = 2}).batch(2).cache(folder_.path("mapped")),
              at::stack({plain_, plain_}));
}

INSTANTIATE_TEST_SUITE_P(, LazyViews, testing::Values(&conjugated, &negated),
                         [](const auto& info) { return info.index ? "Negated" : "Conjugated"; });

}  // namespace
}  // namespace cohort::data
