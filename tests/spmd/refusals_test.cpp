// What operations on sharded tensors refuse, they refuse with Cohort's own errors.

#include "tests/base/failing.h"
#include "tests/spmd/agreement.h"

namespace cohort::spmd {
namespace {

using torch::Tensor;

class Refusals : public testing::Test {
 protected:
  const Tensor x = split(torch::rand({4, 6}), test_mesh(2), {2, 1});
};

TEST_F(Refusals, OfShapesThatDontFitAreInvalidArgument) {
  EXPECT_FAILS(torch::glu(x.narrow(1, 0, 5), 1), InvalidArgument, "[glu] halving dimension");
  EXPECT_FAILS(torch::cat({x, x.narrow(1, 0, 3)}, 0), InvalidArgument, "sizes must match");
  EXPECT_FAILS(torch::stack({x, x.narrow(1, 0, 3)}, 0), InvalidArgument, "[stack]");
  EXPECT_FAILS(x.expand({8, 6}), InvalidArgument, "can't become one of size 8");
  EXPECT_FAILS(x[0].trace(), InvalidArgument, "[trace] expected a matrix");
  EXPECT_FAILS(x.masked_scatter(x > -1, torch::rand({3})), InvalidArgument, "[masked_scatter]");
  EXPECT_FAILS(torch::binary_cross_entropy(x, x, torch::rand({5, 4, 6})), InvalidArgument,
               "[binary_cross_entropy] the weight");
  EXPECT_FAILS(torch::prelu(x, torch::rand({4})), InvalidArgument, "[prelu] 4 weights");
}

TEST_F(Refusals, OfArgumentsOutOfTheirRangeAreValueErrors) {
  EXPECT_FAILS(torch::roll(x, {1, 2}, {0}), ValueError, "[roll]");
  EXPECT_FAILS(torch::rot90(x, 1, {0, 0}), ValueError, "[rot90] the dimensions must differ");
  EXPECT_FAILS(x.select(0, 4), ValueError, "[select] index 4 out of range");
  EXPECT_FAILS(x.unfold(0, 5, 1), ValueError, "[unfold] maximum size");
  EXPECT_FAILS(x.diagonal(0, 1, 1), ValueError, "cannot be identical");
  EXPECT_FAILS(x.gather(0, torch::full({1, 6}, 9)), ValueError, "[gather] index 9");
  EXPECT_FAILS(torch::smooth_l1_loss(x, x, 1, -1), ValueError, "negative values for beta");
  EXPECT_FAILS(torch::nll_loss(x, torch::full({4}, 7)), ValueError, "Target 7 is out of bounds");
}

TEST_F(Refusals, OfTypesThatAnOperationLacksAreNotImplemented) {
  const Tensor whole = split(torch::ones({4}, torch::kLong), test_mesh(2), {2});
  EXPECT_FAILS(torch::mse_loss(whole, whole), NotImplementedError, "[mse_loss] not implemented");
}

}  // namespace
}  // namespace cohort::spmd
