// What plain tensors refuse, sharded ones refuse too; and small, empty and complex ones.

#include "tests/spmd/agreement.h"

namespace cohort::spmd {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using torch::Tensor;

Tensor in_halves(const Tensor& x, int dim = 0) {
  std::vector<std::int64_t> parts(x.dim(), 1);
  parts[dim] = 2;
  return split(x, test_mesh(2), parts);
}

#define EXPECT_REFUSED(call, text) \
  EXPECT_THAT([&] { static_cast<void>(call); }, ThrowsMessage<std::exception>(HasSubstr(text)))

TEST(InPlace, TakesOnlyWhatCanBeBroadcast) {
  Tensor x = in_halves(torch::zeros({4, 3}));
  EXPECT_REFUSED(x.copy_(torch::ones({2, 3})), "[4, 3]");
  EXPECT_REFUSED(x.add_(torch::ones({8, 3})), "[8, 3]");
  EXPECT_REFUSED(x.add_(torch::ones({2, 4, 3})), "[2, 4, 3]");
  EXPECT_REFUSED(in_halves(torch::zeros({1, 4}), 1).add_(torch::ones({4, 4})), "[4, 4]");
  x.add_(torch::ones({4, 1})).add_(torch::ones({3}));
  EXPECT_TRUE(torch::equal(full(x), torch::full({4, 3}, 2.0)));
}

TEST(InPlace, ListsOfTensorsAreChanged) {
  const Tensor x = in_halves(torch::ones({4, 3})), plain = torch::ones({2});
  torch::_foreach_mul_({x, plain}, 0.5);
  EXPECT_TRUE(torch::equal(full(x), torch::full({4, 3}, 0.5)));
  EXPECT_TRUE(torch::equal(plain, torch::full({2}, 0.5)));
}

TEST(Out, IsWrittenInParts) {
  const Tensor a = torch::rand({4, 3}), b = torch::rand({3});
  Tensor plain = torch::zeros({4, 3}), sharded = in_halves(plain);
  const Strict strict;
  torch::add_out(plain, in_halves(a), b);
  EXPECT_TRUE(torch::equal(plain, a + b));
  torch::max_out(sharded, in_halves(a, 1), sharded + 0.5);
  EXPECT_TRUE(torch::equal(full(sharded), a.clamp_min(0.5)));
}

TEST(Out, IsResizedAsAPlainOne) {
  const Tensor a = torch::rand({4, 3});
  Tensor out = torch::empty({0});
  torch::mul_out(out, in_halves(a), a);
  EXPECT_TRUE(torch::equal(out, a * a));
}

TEST(Gathered, KeepsTheOrderInMemory) {
  // LU factors, which derivatives use again, depend on it.
  const Tensor a = torch::rand({4, 4}, torch::kDouble) + 3 * torch::eye(4, torch::kDouble);
  const auto second_derivative = [](Tensor x, const Tensor& placed) {
    const Tensor first = torch::autograd::grad({torch::det(placed)}, {x}, {}, true, true)[0];
    return torch::autograd::grad({first.square().sum()}, {x})[0];
  };
  const Tensor x = a.clone().requires_grad_(), y = a.clone().requires_grad_();
  EXPECT_TRUE(torch::allclose(second_derivative(y, in_halves(y)), second_derivative(x, x)));
}

TEST(Copies, HaveTheOrderInMemoryOfPlainOnes) {
  // Random numbers are drawn in it.
  const Tensor plain = torch::rand({6, 4}), sharded = in_halves(plain);
  const auto drawn = [](const Tensor& x) {
    torch::manual_seed(3);
    return std::pair(torch::rand_like(x.t().clone()), torch::rand_like(x.slice(1, 0, 2)));
  };
  EXPECT_EQ(sharded.t().clone().strides(), plain.t().clone().strides());
  EXPECT_TRUE(torch::equal(full(drawn(sharded).first), drawn(plain).first));
  EXPECT_TRUE(torch::equal(full(drawn(sharded).second), drawn(plain).second));
}

TEST(Numbers, OfSpecialKindsAreSplitToo) {
  const Strict strict;
  const Tensor x = torch::rand({4, 3}) + 0.5, bits = torch::arange(12).reshape({4, 3});
  EXPECT_TRUE(torch::equal(full(in_halves(bits).__lshift__(2)), bits * 4));
  Tensor shifted = in_halves(bits);
  shifted.__irshift__(1);
  EXPECT_TRUE(torch::equal(full(shifted), bits.__rshift__(1)));
  EXPECT_TRUE(
      torch::allclose(full(torch::special_bessel_j0(in_halves(x))), torch::special_bessel_j0(x)));
  EXPECT_TRUE(
      torch::equal(full(torch::complex(in_halves(x), in_halves(-x))), torch::complex(x, -x)));
  EXPECT_TRUE(torch::allclose(full(torch::polar(in_halves(x), x)), torch::polar(x, x)));
  const auto [mantissa, exponent] = torch::frexp(in_halves(x));
  EXPECT_TRUE(torch::equal(full(torch::ldexp(mantissa, exponent)), x));
  EXPECT_TRUE(in_halves(x).is_same_size(x));
}

TEST(Sparse, TensorsMixWithShardedOnes) {
  const Tensor a = torch::rand({3, 5}).mul_(torch::rand({3, 5}) > 0.5), b = torch::rand({5, 4});
  for (const int dim : {0, 1}) {
    Tensor x = in_halves(b, dim).set_requires_grad(true);
    const Tensor product = torch::mm(a.to_sparse(), x);
    EXPECT_TRUE(torch::allclose(full(product), a.mm(b)));
    product.sum().backward();
    EXPECT_TRUE(torch::allclose(full(x.grad()), a.t().mm(torch::ones({3, 4}))));
  }
  EXPECT_TRUE(torch::equal(full(in_halves(b) + b.to_sparse()), b + b));
}

TEST(SetData, KeepsShardedAndPlainTensorsApart) {
  Tensor plain = torch::rand({4, 3});
  Tensor sharded = in_halves(plain);
  EXPECT_REFUSED(plain.set_data(sharded), "spmd::full(tensor)");
  EXPECT_REFUSED(sharded.set_data(plain), "copy_()");
  sharded.set_data(in_halves(torch::ones({4, 3})));
  EXPECT_TRUE(torch::equal(full(sharded), torch::ones({4, 3})));
}

TEST(Indices, OutOfBoundsAreErrors) {
  namespace F = torch::nn::functional;
  const Tensor scores = in_halves(torch::rand({4, 10}));
  EXPECT_REFUSED(F::cross_entropy(scores, torch::full({4}, 10)), "Target 10 is out of bounds");
  EXPECT_REFUSED(F::cross_entropy(scores, torch::full({4}, -1)), "Target -1 is out of bounds");
  EXPECT_TRUE(F::cross_entropy(scores, torch::tensor({1, -100, 3, 0})).item<float>() > 0);
  const Tensor table = in_halves(torch::rand({4, 3}));
  EXPECT_REFUSED(torch::embedding(table, torch::tensor({-1})), "out of bounds");
  EXPECT_REFUSED(table.index_select(0, torch::tensor({-1})), "out of bounds");
  EXPECT_REFUSED(table.index({torch::tensor({true, false, true})}), "a mask of sizes [3]");
  EXPECT_EQ(table.index({torch::tensor({-1})}).size(0), 1);
}

TEST(Complex, ProductsConjugateAndVariancesAreReal) {
  const Tensor a = torch::rand({6}, torch::kComplexDouble);
  const Tensor b = torch::rand({6}, torch::kComplexDouble);
  EXPECT_TRUE(torch::allclose(full(torch::vdot(in_halves(a), in_halves(b))), torch::vdot(a, b)));
  EXPECT_TRUE(torch::allclose(full(torch::dot(in_halves(a), in_halves(b))), torch::dot(a, b)));
  EXPECT_TRUE(torch::allclose(full(in_halves(a).var(false)), a.var(false)));
}

TEST(ShortTypes, DoNotOverflow) {
  const Tensor x = torch::arange(8, torch::kFloat).add(300).to(torch::kBFloat16);
  EXPECT_TRUE(torch::allclose(full(in_halves(x).norm()).to(torch::kFloat),
                              x.to(torch::kFloat).norm(), 0.01));
  const Tensor spread = (torch::arange(8, torch::kFloat) * 100).to(torch::kBFloat16);
  EXPECT_TRUE(torch::allclose(full(in_halves(spread).var(false)).to(torch::kFloat),
                              spread.to(torch::kFloat).var(false), 0.01));
}

TEST(Placement, ThatDoesNotFitTheMeshIsAnError) {
  const Tensor x = torch::rand({4, 4});
  EXPECT_REFUSED(split(x, test_mesh(2), {2}), "a number of parts for each dimension");
  EXPECT_REFUSED(split(x, test_mesh(2), {2, 2}), "2 in all at most");
  EXPECT_REFUSED(split(x, test_mesh(2), {2, 0}), "split [2, 0]");
  EXPECT_REFUSED(split(x, test_mesh(2), {-1, -1}), "split [-1, -1]");
  EXPECT_EQ(full(split(torch::tensor(3.0), test_mesh(2), {})).item<double>(), 3);
  EXPECT_REFUSED(assign(x, test_mesh(2), 2), "logical device 2");
}

TEST(Empty, BatchesGoThroughNormalization) {
  const Tensor rows = in_halves(torch::rand({0, 8}));
  EXPECT_EQ(torch::layer_norm(rows, {8}).sizes(), rows.sizes());
  const Tensor none = in_halves(torch::rand({8, 3})).slice(0, 4, 4, 2);
  EXPECT_EQ(none.numel(), 0);
  Tensor x = in_halves(torch::zeros({8}));
  x.slice(0, 4, 4, 2).fill_(5);
  EXPECT_TRUE(torch::equal(full(x), torch::zeros({8})));
  EXPECT_REFUSED(x.slice(0, 0, 4, 0), "positive");
}

TEST(Empty, TensorsChangeShapeInStrictMode) {
  const Strict strict;
  const Tensor rows = in_halves(torch::rand({0, 8}), 1);
  EXPECT_EQ(rows.reshape({8, 0}).sizes(), at::IntArrayRef({8, 0}));
  EXPECT_TRUE(torch::equal(full(rows.logsumexp(0)), torch::full({8}, -INFINITY)));
}

TEST(Scalars, AreReducedAlongADimension) {
  const Tensor x = assign(torch::tensor(3.0), test_mesh(2), 1);
  EXPECT_EQ(full(std::get<0>(x.max(0))).item<double>(), 3);
  EXPECT_EQ(full(x.argmax(0)).item<std::int64_t>(), 0);
  EXPECT_TRUE(full(x.any(0)).item<bool>());
  EXPECT_TRUE(full(x.all(0)).item<bool>());
  EXPECT_EQ(full(x.prod(0)).item<double>(), 3);
  const Tensor y = in_halves(torch::rand({4, 3}));
  EXPECT_EQ(y.argmax(c10::nullopt, true).sizes(), at::IntArrayRef({1, 1}));
}

TEST(Joining, TakesTheTypeOfEmptyTensorsToo) {
  const Tensor x = in_halves(torch::rand({4}));
  EXPECT_EQ(torch::cat({x, torch::empty({0}, torch::kDouble)}).scalar_type(), torch::kDouble);
}

}  // namespace
}  // namespace cohort::spmd
