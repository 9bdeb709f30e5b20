// Looked up, gathered, scattered, masked: sharded as unsharded.

#include "tests/base/failing.h"
#include "tests/spmd/agreement.h"

namespace cohort::spmd {
namespace {

using torch::Tensor;
using torch::indexing::Slice;

using Lists = c10::List<c10::optional<Tensor>>;
using Cases = std::vector<std::pair<const char*, Function>>;
using Make = std::function<Tensors(std::mt19937&)>;

void expect_all(const Cases& cases, int count, const Make& make) {
  for (const auto& [name, fn] : cases) expect_agreement(name, count, make, fn);
}

TEST(Embedding, OfATableSplitAnyWay) {
  const auto with = [](std::int64_t padding, bool scale) {
    return [=](const Tensors& x) { return torch::embedding(x[0], x[1], padding, scale).exp() * 2; };
  };
  expect_all({{"plain", with(-1, false)}, {"padding", with(1, false)}, {"scaled", with(0, true)}},
             150, [](auto& random) {
               const auto rows = between(random, 2, 9);
               return Tensors{tensor({rows, between(random, 1, 6)}),
                              torch::randint(rows, {between(random, 1, 6), between(random, 1, 4)})};
             });
}

TEST(Embedding, OfOneIndexAndAModule) {
  torch::nn::Embedding module(torch::nn::EmbeddingOptions(7, 4).padding_idx(2));
  expect_all({{"one index", [](const Tensors& x) { return torch::embedding(x[0], x[1]).exp(); }},
              {"module",
               [=](const Tensors& x) mutable {
                 module->to(x[0].scalar_type());
                 return module(x[1]) * x[0].sum().square();
               }}},
             60, [](auto& random) {
               const Tensor index = torch::randint(7, {between(random, 1, 5)});
               return Tensors{tensor({7, 4}), random() % 2 ? index : index[0]};
             });
}

/// A table, indices, offsets of bags of which some are empty, and weights.
Tensors bags(std::mt19937& random) {
  const auto rows = between(random, 2, 9), count = between(random, 1, 12);
  const Tensor offsets = std::get<0>(torch::randint(count + 1, {between(random, 1, 5)}).sort());
  offsets[0] = 0;
  return {tensor({rows, between(random, 2, 6)}), torch::randint(rows, {count}), offsets,
          tensor({count})};
}

/// LibTorch has no second derivatives of bags: the first ones are results here.
Tensor of_bags(const Tensors& x, int mode, bool has_weights, std::int64_t padding, int input) {
  const Tensor result = std::get<0>(torch::embedding_bag(
      x[0], x[1], x[2], false, mode, false, has_weights ? x[3] : Tensor(), false, padding));
  if (input < 0) return result.detach();
  const auto gradient = torch::autograd::grad({(result * result.detach()).sum()}, {x[input]});
  return gradient[0];
}

TEST(Embedding, OfBags) {
  for (const std::int64_t padding : {-1, 1}) {
    for (const int mode : {0, 1, 2}) {
      expect_all(
          {{"values", [=](const Tensors& x) { return of_bags(x, mode, false, padding, -1); }},
           {"of the table",
            [=](const Tensors& x) {
              return of_bags(x, mode, false, mode == 2 ? -1 : padding, 0);
            }}},
          60, bags);
    }
    expect_all({{"weighted", [=](const Tensors& x) { return of_bags(x, 0, true, padding, -1); }},
                {"weighted, of the table",
                 [=](const Tensors& x) { return of_bags(x, 0, true, padding, 0); }},
                {"of weights", [=](const Tensors& x) { return of_bags(x, 0, true, padding, 3); }}},
               60, bags);
  }
}

TEST(Embedding, OfRowsOfAtMostThisLength) {
  expect_all({{"renorm",
               [](const Tensors& x) {
                 Tensor table = x[0].detach() * 1;
                 torch::embedding_renorm_(table, x[1], 0.5, 2);
                 return table;
               }}},
             100, bags);
}

TEST(Embedding, RowsStayWithTheirIndices) {
  const MeshPtr mesh = test_mesh(2);
  const Tensor table = split(tensor({10, 4}), mesh, {2, 1});
  const Tensor indices = split(torch::randint(10, {6, 3}), mesh, {2, 1});
  EXPECT_EQ(layout_of(torch::embedding(table, indices)).parts(0), 2);
}

TEST(Embedding, AnIndexBeyondTheTableIsRefused) {
  const Tensor table = split(tensor({10, 4}), test_mesh(2), {2, 1});
  EXPECT_FAILS(torch::embedding(table, torch::tensor({3, 10})), ValueError,
               "index 10 is out of bounds");
}

TEST(Indexing, AlongOneDimension) {
  for (const int dim : {0, 1, 2}) {
    expect_all(
        {{"index_select", [=](const Tensors& x) { return x[0].index_select(dim, x[1]).exp(); }},
         {"index_add",
          [=](const Tensors& x) { return x[0].index_add(dim, x[1], x[2], 0.5).square(); }},
         {"index_add_",
          [=](const Tensors& x) { return (x[0] * 1).index_add_(dim, x[1], x[2]).square(); }},
         {"index_reduce",
          [=](const Tensors& x) {
            const Tensor a = x[0].detach(), b = x[2].detach();
            const Tensor largest = a.index_reduce(dim, x[1], b, "amax", /*include_self=*/false);
            return (largest * 1).index_reduce_(dim, x[1], b, "mean");
          }},
         {"index_copy",
          [=](const Tensors& x) {
            const Tensor once = torch::arange(x[1].size(0)).flip(0);
            return x[0].index_copy(dim, once, x[2]).square();
          }},
         {"index_fill", [=](const Tensors& x) { return x[0].index_fill(dim, x[1], 0.5).square(); }},
         {"index_fill with a tensor",
          [=](const Tensors& x) { return x[0].index_fill(dim, full(x[1]), x[2].sum()).square(); }},
         {"index_fill_",
          [=](const Tensors& x) { return (x[0] * 1).index_fill_(dim, x[1], 2).square(); }}},
        60, [dim](auto& random) {
          std::vector<std::int64_t> sizes{between(random, 1, 6), between(random, 1, 6),
                                          between(random, 1, 6)};
          const Tensor x = tensor(sizes);
          const auto count = between(random, 1, sizes[dim]);
          const Tensor index = torch::randint(sizes[dim], {count});
          sizes[dim] = count;
          return Tensors{x, index, tensor(sizes)};
        });
  }
}

/// A tensor and two indices for dimensions of at least 4, of shapes that are broadcast.
Tensors to_index(std::mt19937& random) {
  const auto n = between(random, 1, 5);
  return {tensor({between(random, 4, 7), between(random, 4, 6), between(random, 4, 5)}),
          torch::randint(-4, 4, {between(random, 1, 4), n}),
          torch::randint(-4, 4, {random() % 2 ? n : 1})};
}

TEST(Indexing, ByLists) {
  expect_all({{"first", [](const Tensors& x) { return x[0].index({x[1]}).exp(); }},
              {"neighbours",
               [](const Tensors& x) {
                 return x[0].index({Slice(), x[1], x[2]}).exp();
               }},
              {"apart",
               [](const Tensors& x) {
                 return x[0].index({x[1], Slice(), x[2]}).exp();
               }},
              {"slices and a list",
               [](const Tensors& x) {
                 return x[0].index({Slice(1), 2, x[1]}).exp();
               }},
              {"all",
               [](const Tensors& x) {
                 return x[0].index({x[1], x[2], x[1]}).exp();
               }},
              {"a mask", [](const Tensors& x) { return x[0].index({x[0] > 0}).exp(); }},
              {"a mask of rows",
               [](const Tensors& x) {
                 return x[0].index({Slice(), x[0][0].sum(1) > 0}).exp();
               }}},
             100, to_index);
}

TEST(Indexing, WritingToLists) {
  expect_all(
      {{"index_put",
        [](const Tensors& x) {
          const Tensor once = torch::arange(4);
          return x[0].index_put({once, once}, x[0].index({once, -1})).exp();
        }},
       {"accumulate",
        [](const Tensors& x) {
          const Tensor rows = x[0].index({x[2], Slice(), x[1]}).square();
          return x[0].index_put(Lists({x[2], c10::nullopt, x[1]}), rows, true).exp();
        }},
       {"accumulate neighbours in place",
        [](const Tensors& x) {
          const Tensor rows = x[0].index({Slice(), x[1], x[2]}).square();
          return (x[0] * 1).index_put_(Lists({c10::nullopt, x[1], x[2]}), rows, true).exp();
        }},
       {"one value", [](const Tensors& x) { return (x[0] * 1).index_put_({x[1]}, x[0][0][0][0]); }},
       {"a mask",
        [](const Tensors& x) {
          return (x[0] * 1).index_put_({x[0] > 0}, torch::zeros({}, x[0].dtype())).exp();
        }},
       {"into an ordinary tensor",
        [](const Tensors& x) {
          return torch::ones({9, 9}, x[0].dtype()).index_put({x[1], x[2]}, x[0].sum(), true);
        }}},
      80, to_index);
}

TEST(Indexing, ByNumbersOfElements) {
  expect_all(
      {{"take", [](const Tensors& x) { return x[0].take(x[1]).exp(); }},
       {"put",
        [](const Tensors& x) {
          const Tensor once = torch::arange(x[1].numel()).reshape(x[1].sizes()) * 2;
          return x[0].put(once, x[0].take(x[1])).exp();
        }},
       {"put_", [](const Tensors& x) { return (x[0] * 1).put_(x[1], x[0].take(x[1]), true); }}},
      100, to_index);
}

/// A tensor, an index along a dimension that may be smaller elsewhere, and a source.
Make to_gather(std::int64_t dim) {
  return [dim](std::mt19937& random) {
    std::vector<std::int64_t> sizes{between(random, 1, 6), between(random, 1, 6),
                                    between(random, 1, 6)};
    const Tensor x = tensor(sizes);
    std::vector<std::int64_t> smaller = sizes;
    for (auto& size : smaller) size = random() % 2 ? size : between(random, 1, size);
    smaller[dim] = between(random, 1, 6);
    const Tensor index = torch::randint(sizes[dim], smaller);
    return Tensors{x, index, tensor(smaller)};
  };
}

/// An index in which no element is named twice.
Tensor without_repeats(const Tensor& x, std::int64_t dim) {
  return torch::arange(x.numel()).reshape(x.sizes()).remainder(7).argsort(dim);
}

TEST(Gathering, AlongAnyDimension) {
  for (const int dim : {0, 1, 2}) {
    expect_all({{"gather", [=](const Tensors& x) { return x[0].gather(dim, x[1]).exp(); }},
                {"take_along_dim",
                 [=](const Tensors& x) {
                   return torch::take_along_dim(x[0], without_repeats(x[0], dim), dim).exp();
                 }}},
               100, to_gather(dim));
  }
}

TEST(Scattering, AlongAnyDimension) {
  for (const int dim : {0, 1, 2}) {
    expect_all(
        {{"scatter_add",
          [=](const Tensors& x) { return x[0].scatter_add(dim, x[1], x[2]).square(); }},
         {"scatter_add_",
          [=](const Tensors& x) { return (x[0] * 2).scatter_add_(dim, x[1], x[2]).square(); }},
         {"scatter",
          [=](const Tensors& x) {
            return x[0].scatter(dim, without_repeats(x[0], dim), x[0] * 2).square();
          }},
         {"scatter_",
          [=](const Tensors& x) {
            return (x[0] * 1).scatter_(dim, without_repeats(x[0], dim), x[0].detach() * 2).square();
          }},
         {"of a value", [=](const Tensors& x) { return x[0].scatter(dim, x[1], 0.5).square(); }},
         {"of a value in place",
          [=](const Tensors& x) { return (x[0] * 1).scatter_(dim, x[1], 0.5).square(); }},
         {"multiplied",
          [=](const Tensors& x) {
            const Tensor larger = torch::cat({x[2], x[2]}, 1).detach();
            return x[0].detach().scatter(dim, x[1], larger, "multiply");
          }},
         {"scatter_reduce",
          [=](const Tensors& x) {
            return x[0].detach().scatter_reduce(dim, x[1], x[2].detach(), "amax");
          }}},
        40, to_gather(dim));
  }
}

Tensors values_and_mask(std::mt19937& random) {
  const Tensor x = tensor({between(random, 1, 4), between(random, 1, 6), between(random, 1, 6)});
  const Tensor mask = torch::rand(x.sizes()) > 0.5;
  return {x, random() % 2 ? mask : mask[0], tensor({between(random, 3, 5), 36})};
}

TEST(Masks, InTheOrderOfElements) {
  expect_all({{"masked_select", [](const Tensors& x) { return x[0].masked_select(x[1]).exp(); }},
              {"nothing", [](const Tensors& x) { return x[0].masked_select(x[1] & ~x[1]).exp(); }},
              {"masked_scatter",
               [](const Tensors& x) { return x[0].masked_scatter(x[1], x[2]).square(); }},
              {"masked_scatter_",
               [](const Tensors& x) { return (x[0] * 1).masked_scatter_(x[1], x[2]).square(); }},
              {"nonzero", [](const Tensors& x) { return (x[0] > 0).nonzero(); }},
              {"argwhere", [](const Tensors& x) { return torch::argwhere(x[1]); }}},
             120, values_and_mask);
}

}  // namespace
}  // namespace cohort::spmd
