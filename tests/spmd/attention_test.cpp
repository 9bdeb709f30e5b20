// Attention, with the batch split, with the features split, and any other way: sharded as
// unsharded.

#include "tests/spmd/agreement.h"

namespace cohort::spmd {
namespace {

using torch::Tensor;

constexpr Demands kLoose{.slack = 10};

/// softmax(q k' / sqrt(d)) v of [batch, heads, length, features].
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal) {
  Tensor scores = q.matmul(k.transpose(-2, -1)) / std::sqrt(static_cast<double>(q.size(-1)));
  if (is_causal) {
    const Tensor hidden = torch::ones({q.size(-2), k.size(-2)}, torch::kBool).triu(1);
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  }
  return scores.softmax(-1).matmul(v);
}

Tensors queries_keys_values(std::mt19937& random) {
  const auto batch = between(random, 1, 4), heads = between(random, 1, 4);
  const auto from = between(random, 1, 5), to = between(random, 1, 5), d = between(random, 1, 4);
  return {tensor({batch, heads, from, d}), tensor({batch, heads, to, d}),
          tensor({batch, heads, to, between(random, 1, 4)})};
}

TEST(Attention, WrittenOut) {
  expect_agreement("all see all", 120, queries_keys_values,
                   [](const Tensors& x) { return attention(x[0], x[1], x[2], false); });
  expect_agreement("causal", 120, queries_keys_values,
                   [](const Tensors& x) { return attention(x[0], x[1], x[2], true); });
}

/// With projections whose heads are cut out of the features, as models do.
TEST(Attention, OfProjectedHeads) {
  expect_agreement(
      "heads", 100,
      [](auto& random) {
        const auto e = 2 * between(random, 1, 4);
        return Tensors{tensor({between(random, 1, 4), between(random, 1, 5), e}),
                       tensor({3 * e, e}), tensor({e, e})};
      },
      [](const Tensors& x) {
        const auto batch = x[0].size(0), length = x[0].size(1), e = x[0].size(2);
        const auto parts = torch::linear(x[0], x[1]).chunk(3, -1);
        const auto heads = [&](const Tensor& t) {
          return t.reshape({batch, length, 2, e / 2}).transpose(1, 2);
        };
        const Tensor seen = attention(heads(parts[0]), heads(parts[1]), heads(parts[2]), true);
        return torch::linear(seen.transpose(1, 2).reshape({batch, length, e}), x[2]);
      },
      kLoose);
}

torch::nn::MultiheadAttention multihead(double dropout) {
  torch::nn::MultiheadAttention module(torch::nn::MultiheadAttentionOptions(4, 2).dropout(dropout));
  module->to(torch::kDouble);
  return module;
}
Tensors sequences(std::mt19937& random) {
  const auto batch = between(random, 1, 4), to = between(random, 1, 4);
  return {tensor({between(random, 1, 4), batch, 4}), tensor({to, batch, 4}),
          tensor({to, batch, 4})};
}

TEST(Attention, OfAModule) {
  for (const double dropout : {0.0, 0.4}) {
    expect_agreement(
        "multihead", 40, sequences,
        [module = multihead(dropout)](const Tensors& x) mutable {
          torch::manual_seed(5);
          module->to(x[0].scalar_type());
          const auto [seen, weights] = module->forward(x[0], x[1], x[2]);
          return seen * weights.sum();
        },
        kLoose);
  }
  expect_agreement(
      "of itself, with a mask", 40, sequences,
      [module = multihead(0)](const Tensors& x) mutable {
        module->to(x[0].scalar_type());
        const auto length = x[0].size(0);
        const Tensor hidden = torch::ones({length, length}, x[0].dtype()).triu(1) * -1e9;
        return std::get<0>(module->forward(x[0], x[0], x[0], {}, false, hidden));
      },
      kLoose);
  expect_agreement(
      "with padding", 40, sequences,
      [module = multihead(0)](const Tensors& x) mutable {
        module->to(x[0].scalar_type());
        const Tensor padding = torch::zeros({x[1].size(1), x[1].size(0)}, torch::kBool);
        padding.select(1, -1).fill_(x[1].size(0) > 1);
        return std::get<0>(module->forward(x[0], x[1], x[2], padding));
      },
      kLoose);
}

/// Its parameters are split like its input: by features.
TEST(Attention, OfAModuleWithSplitWeights) {
  const MeshPtr mesh = test_mesh(2);
  auto plain = multihead(0), sharded = multihead(0);
  const Tensor x = tensor({3, 2, 4});
  const Tensor expected = std::get<0>(plain->forward(x, x, x));
  for (auto& named : plain->named_parameters()) {
    auto parts = std::vector<std::int64_t>(named.value().dim(), 1);
    parts[0] = 2;
    const Tensor own = split(named.value().detach(), mesh, parts).set_requires_grad(true);
    if (named.key() == "in_proj_weight") sharded->in_proj_weight = own;
    if (named.key() == "in_proj_bias") sharded->in_proj_bias = own;
    if (named.key() == "out_proj.weight") sharded->out_proj->weight = own;
    if (named.key() == "out_proj.bias") sharded->out_proj->bias = own;
  }
  const Strict strict;
  const Tensor got = std::get<0>(sharded->forward(x, x, x));
  EXPECT_TRUE(torch::allclose(full(got), expected, 1e-9, 1e-10));
  expected.square().sum().backward();
  full(got).square().sum().backward();
  EXPECT_TRUE(torch::allclose(full(sharded->in_proj_weight.grad()), plain->in_proj_weight.grad()));
}

TEST(Attention, OfATransformerLayer) {
  for (const double dropout : {0.0, 0.3}) {
    torch::nn::TransformerEncoderLayer layer(
        torch::nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(6).dropout(dropout));
    layer->to(torch::kDouble);
    expect_agreement(
        "encoder layer", 30,
        [](auto& random) {
          return Tensors{tensor({between(random, 1, 4), between(random, 1, 4), 4})};
        },
        [layer](const Tensors& x) mutable {
          torch::manual_seed(5);
          layer->to(x[0].scalar_type());
          return layer->forward(x[0]);
        },
        kLoose);
  }
}

#if TORCH_VERSION_MAJOR >= 2
/// The result and the first derivatives; LibTorch has no second ones for this operation.
Tensors with_gradients(Tensors leaves, const std::vector<Placing>& placings, bool is_causal) {
  Tensors x;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    leaves[i] = leaves[i].detach().set_requires_grad(true);
    x.push_back(placings.empty() ? leaves[i] : placings[i].place(leaves[i], test_mesh(2)));
  }
  const Tensor seen = at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, is_causal);
  Tensors results = torch::autograd::grad({full(seen).square().sum()}, leaves);
  results.push_back(full(seen));
  return results;
}

TEST(Attention, InOneOperation) {
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    const auto batch = between(random, 1, 3), heads = between(random, 1, 3);
    const auto length = between(random, 2, 5);
    Tensors leaves;
    std::vector<Placing> placings;
    for (int k = 0; k < 3; ++k) {
      leaves.push_back(tensor({batch, heads, length, 4}));
      placings.push_back(random_placing(random, leaves[k].sizes(), 2));
    }
    const bool is_causal = i % 2 == 0;
    const Tensors expected = with_gradients(leaves, {}, is_causal);
    const Tensors got = with_gradients(leaves, placings, is_causal);
    for (std::size_t k = 0; k < got.size(); ++k) {
      EXPECT_TRUE(torch::allclose(got[k], expected[k], 1e-9, 1e-10)) << "case " << i;
    }
  }
}

TEST(Attention, InOneOperationIsSplitOverBatchAndHeads) {
  const Strict strict;
  const auto recorded = trace();
  for (const auto& parts : {std::vector<std::int64_t>{2, 1, 1, 1}, {1, 2, 1, 1}}) {
    const Placing placing{parts};
    const Tensor x = tensor({2, 4, 3, 4});
    with_gradients({x, x * 2, x * 3}, {placing, placing, placing}, true);
  }
  EXPECT_TRUE(recorded.rows().contains("aten::_scaled_dot_product_flash_attention_for_cpu"));
}
#endif

}  // namespace
}  // namespace cohort::spmd
