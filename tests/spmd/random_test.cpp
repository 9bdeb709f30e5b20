// Random numbers: those that the unsharded tensor gets.

#include "tests/spmd/agreement.h"

namespace cohort::spmd {
namespace {

using torch::Tensor;

Tensors tensors_of_any_size(std::mt19937& random) {
  return {torch::rand({between(random, 1, 7), between(random, 1, 7), between(random, 1, 5)},
                      torch::kDouble)};
}

using Cases = std::vector<std::pair<const char*, Function>>;

/// The same generator for both sides.
void expect_same_numbers(const Cases& cases) {
  for (const auto& [name, fn] : cases) {
    expect_agreement(name, 50, tensors_of_any_size,
                     [fn = fn](const Tensors& x) {
                       torch::manual_seed(7);
                       return fn(x);
                     },
                     {.with_views = false});  // numbers are drawn in the order of memory
  }
}

TEST(Random, InPlace) {
  expect_same_numbers({
      {"uniform_", [](const Tensors& x) { return (x[0] * 2).uniform_(-1, 2) * x[0]; }},
      {"normal_", [](const Tensors& x) { return (x[0] * 2).normal_(1, 3) * x[0]; }},
      {"random_", [](const Tensors& x) { return (x[0] * 2).random_(10) * x[0]; }},
      {"random_ from", [](const Tensors& x) { return (x[0] * 2).random_(3, 10) * x[0]; }},
      {"exponential_", [](const Tensors& x) { return (x[0] * 2).exponential_(0.5) * x[0]; }},
      {"bernoulli_", [](const Tensors& x) { return (x[0] * 2).bernoulli_(0.3) * x[0]; }},
      {"bernoulli_ of probabilities",
       [](const Tensors& x) { return (x[0] * 2).bernoulli_(x[0].detach()) * x[0]; }},
      {"of a part",
       [](const Tensors& x) {
         Tensor y = x[0] * 2;
         y.select(1, 0).uniform_();
         y.transpose(0, 2).select(0, 0).normal_();
         return y * x[0];
       }},
  });
}

TEST(Random, OfTheSameSizes) {
  expect_same_numbers({
      {"rand_like", [](const Tensors& x) { return torch::rand_like(x[0]) * x[0]; }},
      {"randn_like", [](const Tensors& x) { return torch::randn_like(x[0]) * x[0]; }},
      {"randint_like", [](const Tensors& x) { return torch::randint_like(x[0], 9) * x[0]; }},
      {"randint_like from",
       [](const Tensors& x) { return torch::randint_like(x[0], 3, 9, torch::kLong); }},
      {"bernoulli", [](const Tensors& x) { return torch::bernoulli(x[0]) * x[0]; }},
      {"normal", [](const Tensors& x) { return at::normal(x[0].detach(), 2.0) * x[0]; }},
  });
}

TEST(Random, Dropout) {
  expect_same_numbers({
      {"dropout", [](const Tensors& x) { return torch::dropout(x[0], 0.4, true).square(); }},
      {"of a transposed tensor",
       [](const Tensors& x) { return torch::dropout(x[0].transpose(0, 2), 0.4, true).square(); }},
      {"dropout of all", [](const Tensors& x) { return torch::dropout(x[0], 1, true).square(); }},
      {"without training", [](const Tensors& x) { return torch::dropout(x[0], 0.4, false).exp(); }},
      {"native_dropout",
       [](const Tensors& x) {
         return std::get<0>(torch::native_dropout(x[0], 0.4, true)).square();
       }},
      {"native_dropout without training",
       [](const Tensors& x) { return std::get<0>(torch::native_dropout(x[0], 0.4, false)).exp(); }},
      {"in place",
       [](const Tensors& x) {
         Tensor y = x[0] * 2;
         return torch::dropout_(y, 0.3, true).square();
       }},
      {"of features",
       [](const Tensors& x) { return torch::feature_dropout(x[0], 0.5, true).square(); }},
      {"alpha", [](const Tensors& x) { return torch::alpha_dropout(x[0], 0.5, true).square(); }},
  });
}

TEST(Random, NumbersOfClasses) {
  expect_same_numbers({
      {"multinomial",
       [](const Tensors& x) { return torch::multinomial(x[0].flatten(1).detach(), 1); }},
      {"multinomial of one row",
       [](const Tensors& x) { return torch::multinomial(x[0].flatten().detach(), 1); }},
      {"several without replacement",
       [](const Tensors& x) {
         const Tensor p = torch::cat({x[0], x[0]}).flatten(1).detach();
         return torch::multinomial(p, (p.size(1) + 1) / 2);
       }},
  });
}

TEST(Random, NumbersOfClassesWithReplacementAreDrawnFromWholeTensors) {
  const Tensor p = torch::rand({4, 6}), sharded = split(p, test_mesh(2), {2, 1});
  torch::manual_seed(7);
  const Tensor expected = torch::multinomial(p, 9, true);
  const auto recorded = trace();
  torch::manual_seed(7);
  EXPECT_TRUE(torch::equal(full(torch::multinomial(sharded, 9, true)), expected));
  EXPECT_EQ(recorded.rows().at("aten::multinomial").gathered, 1);
  EXPECT_THAT(recorded.rows().at("aten::multinomial").reason, testing::HasSubstr("replacement"));
}

/// Tensors that are larger than what is drawn at once, up to 256 Ki elements.
TEST(Random, OfLargeTensorsIsDrawnInTheSameOrder) {
  constexpr std::int64_t kChunk = 128 * 1024;
  const std::vector<std::vector<std::int64_t>> shapes = {
      {2 * kChunk - 1}, {2 * kChunk},     {2 * kChunk + 1},   {3 * kChunk + 15},
      {1 + 4 * kChunk}, {kChunk + 1, 3},  {3, kChunk + 1},    {511, 1023},
      {7, 64, 1001},    {257, 3, 5, 131}, {1, 5 * kChunk, 1}, {2, 1, kChunk, 2}};
  const Cases cases = {
      {"uniform_", [](const Tensors& x) { return x[0].uniform_(-1, 2); }},
      {"normal_", [](const Tensors& x) { return x[0].normal_(1, 3); }},
      {"random_", [](const Tensors& x) { return x[0].random_(1000); }},
      {"exponential_", [](const Tensors& x) { return x[0].exponential_(0.5); }},
      {"bernoulli_", [](const Tensors& x) { return x[0].bernoulli_(0.3); }},
      {"log_normal_", [](const Tensors& x) { return x[0].log_normal_(1, 2); }},
      {"geometric_", [](const Tensors& x) { return x[0].geometric_(0.4); }},
      {"cauchy_", [](const Tensors& x) { return x[0].cauchy_(0, 1); }},
  };
  int count = 0;
  for (const auto& [name, fill] : cases) {
    for (const auto& shape : shapes) {
      const auto type = count % 3 == 0 ? torch::kDouble : torch::kFloat;
      std::vector<std::int64_t> parts(shape.size(), 1);
      parts[count++ % shape.size()] = 3;
      torch::manual_seed(7);
      const Tensor whole = fill({torch::empty(shape, type)}), next = torch::randn({3});
      torch::manual_seed(7);
      const Tensor sharded = fill({split(torch::empty(shape, type), test_mesh(3), parts)});
      EXPECT_TRUE(torch::equal(full(sharded), whole)) << name << ' ' << at::IntArrayRef(shape);
      EXPECT_TRUE(torch::equal(torch::randn({3}), next)) << name << ' ' << at::IntArrayRef(shape);
    }
  }
}

TEST(Random, NumbersStayWithTheLayout) {
  const Tensor x = split(torch::rand({6, 4}), test_mesh(2), {2, 1});
  EXPECT_EQ(layout_of(torch::rand_like(x)), layout_of(x));
  EXPECT_EQ(layout_of(torch::bernoulli(x)), layout_of(x));
}

}  // namespace
}  // namespace cohort::spmd
