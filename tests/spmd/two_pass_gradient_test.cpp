// The gradient of the input first, those of the parameters later, with the bits of one pass.

#include "cohort/spmd/two_pass_gradient.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace cohort::spmd {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

/// What a network computes from an input that needs a gradient, and the gradients by both ways.
struct Ways {
  template <class Net>
  Ways(Net net, const Tensor& x) : parameters(net->parameters()) {
    input = x.set_requires_grad(true);
    output = net->forward(input);
    gradient = torch::rand_like(output);
    expected_of_input = of(input);
    for (const Tensor& each : parameters) expected.push_back(of(each));
  }

  /// By LibTorch; undefined for what is not trained.
  Tensor of(const Tensor& x) const {
    if (!x.requires_grad()) return {};
    return torch::autograd::grad({output}, {x}, {gradient}, true, false, true)[0];
  }

  void expect_same_bits() {
    TwoPassGradient way_back(output, input, parameters);
    const Tensor of_input = way_back.of_input(gradient);
    EXPECT_TRUE(torch::equal(of_input, expected_of_input));
    const auto of_parameters = way_back.of_parameters();
    ASSERT_EQ(of_parameters.size(), parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      ASSERT_EQ(of_parameters[i].defined(), expected[i].defined()) << i;
      if (!expected[i].defined()) continue;
      EXPECT_TRUE(torch::equal(of_parameters[i], expected[i])) << i;
    }
  }

  std::vector<Tensor> parameters, expected;
  Tensor input, output, gradient, expected_of_input;
};

/// Counts how often a gradient goes through.
struct Counted : torch::autograd::Function<Counted> {
  static inline int calls = 0;
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x, const Tensor& w) {
    return x + w;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    ++calls;
    return {gradients[0], gradients[0].sum(0)};
  }
};

struct WithOwnFunctionImpl : nn::Module {
  Tensor forward(const Tensor& x) { return Counted::apply(x, weight).square(); }
  Tensor weight = register_parameter("weight", torch::rand({4}));
};
TORCH_MODULE(WithOwnFunction);

/// The same layer twice, as a recurrent network has it.
struct RepeatedImpl : nn::Module {
  Tensor forward(const Tensor& x) { return layer(torch::tanh(layer(x))); }
  nn::Linear layer = register_module("layer", nn::Linear(4, 4));
};
TORCH_MODULE(Repeated);

/// A weight that is computed from two parameters, one that is not trained, and one without a part.
struct UnusualImpl : nn::Module {
  UnusualImpl() { fixed.set_requires_grad(false); }
  Tensor forward(const Tensor& x) {
    return torch::mm(x, direction / direction.norm() * size) * fixed + x.slice(1, 0, 1);
  }
  Tensor direction = register_parameter("direction", torch::rand({4, 4}));
  Tensor size = register_parameter("size", torch::rand({4}));
  Tensor fixed = register_parameter("fixed", torch::rand({4}));
  Tensor unused = register_parameter("unused", torch::rand({4}));
};
TORCH_MODULE(Unusual);

/// With a hook on what is between its layers.
struct HookedImpl : nn::Module {
  Tensor forward(const Tensor& x) {
    const Tensor y = a(x);
    y.register_hook([this](const Tensor& g) {
      ++calls;
      return g * 2;
    });
    return b(y);
  }
  int calls = 0;
  nn::Linear a = register_module("a", nn::Linear(4, 4)), b = register_module("b", nn::Linear(4, 4));
};
TORCH_MODULE(Hooked);

TEST(TwoPassGradient, HasTheBitsOfOnePass) {
  torch::manual_seed(1);
  const nn::Sequential layers(nn::Linear(4, 8), nn::ReLU(),
                              nn::LayerNorm(nn::LayerNormOptions({8})),
                              nn::Linear(nn::LinearOptions(8, 3).bias(false)), nn::Tanh());
  Ways(layers, torch::rand({5, 4})).expect_same_bits();
  const nn::Sequential images(nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)), nn::BatchNorm2d(4),
                              nn::ReLU(), nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 2, 2)));
  Ways(images, torch::rand({3, 2, 6, 6})).expect_same_bits();
  Ways(Unusual(), torch::rand({5, 4})).expect_same_bits();
}

TEST(TwoPassGradient, HasThemAlsoWhereAGraphCanNotBeCut) {
  torch::manual_seed(1);
  Ways(Repeated(), torch::rand({5, 4})).expect_same_bits();
  Ways own(WithOwnFunction(), torch::rand({5, 4}));
  Counted::calls = 0;
  own.expect_same_bits();
  EXPECT_EQ(Counted::calls, 1);
  Hooked net;
  Ways hooked(net, torch::rand({5, 4}));
  net->calls = 0;
  hooked.expect_same_bits();
  EXPECT_EQ(net->calls, 1);
}

TEST(TwoPassGradient, TheFirstPassLeavesTheParametersAlone) {
  const Tensor parameter = torch::rand({4, 4}, torch::requires_grad());
  const Tensor weight = parameter.square();
  int calls = 0;
  weight.register_hook([&](const Tensor& g) {
    ++calls;
    return g;
  });
  const Tensor x = torch::rand({5, 4}, torch::requires_grad());
  TwoPassGradient way_back(x.mm(weight), x, {parameter});
  EXPECT_TRUE(way_back.of_input(torch::ones({5, 4})).defined());
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(way_back.of_parameters()[0].defined());
  EXPECT_EQ(calls, 1);
}

TEST(TwoPassGradient, AnInputMayNeedNone) {
  nn::Linear layer(4, 4);
  const Tensor x = torch::rand({5, 4});
  TwoPassGradient way_back(layer(x), x, layer->parameters());
  EXPECT_FALSE(way_back.of_input(torch::ones({5, 4})).defined());
  EXPECT_TRUE(torch::equal(way_back.of_parameters()[1], torch::full({4}, 5.0f)));
}

TEST(TwoPassGradient, AnInputWithoutAPartInTheOutputHasZeros) {
  nn::Linear layer(4, 4);
  const Tensor x = torch::rand({5, 4}, torch::requires_grad());
  TwoPassGradient way_back(layer(torch::ones({5, 4})), x, layer->parameters());
  EXPECT_TRUE(torch::equal(way_back.of_input(torch::ones({5, 4})), torch::zeros({5, 4})));
  EXPECT_TRUE(way_back.of_parameters()[0].defined());
  TwoPassGradient constant(torch::ones({5, 4}), x, layer->parameters());
  EXPECT_TRUE(torch::equal(constant.of_input(torch::ones({5, 4})), torch::zeros({5, 4})));
  EXPECT_FALSE(constant.of_parameters()[0].defined());
}

}  // namespace
}  // namespace cohort::spmd
