// Tensors that are made in parts: which, where, and with the values that whole ones get.

#include "cohort/spmd/construction.h"

#include <torch/torch.h>

#include <thread>

#include "tests/spmd/agreement.h"

namespace cohort::spmd {
namespace {

using torch::Tensor;

/// What `make` gives while tensors of 100 elements and more are made in parts on two devices.
template <class Make>
Tensor in_parts(Make&& make) {
  const MakeInParts parts(test_mesh(2), 100);
  return make();
}

TEST(MakeInParts, CutsLargeTensorsAlongTheLongestDimension) {
  EXPECT_EQ(layout_of(in_parts([] {
              return torch::zeros({20, 5});
            })),
            Layout::split({20, 5}, {2, 1}));
  EXPECT_EQ(layout_of(in_parts([] {
              return torch::rand({5, 21});
            })),
            Layout::split({5, 21}, {1, 2}));
  EXPECT_EQ(layout_of(in_parts([] { return torch::empty({100}); })), Layout::split({100}, {2}));
}

TEST(MakeInParts, LeavesOthersWhole) {
  using Make = std::function<Tensor()>;
  const std::pair<const char*, Make> others[] = {
      {"small", [] { return torch::zeros({99}); }},
      {"of whole numbers", [] { return torch::zeros({200}, torch::kLong); }},
      {"sparse", [] { return torch::zeros({200}, torch::kSparse); }},
      {"a sequence", [] { return torch::arange(200.); }},
      {"in another order",
       [] {
         return torch::empty({2, 9, 9, 9}, torch::kFloat, at::MemoryFormat::ChannelsLast);
       }},
      {"where whole ones are asked for",
       [] {
         const MakeInParts whole(nullptr);
         return torch::zeros({200});
       }},
  };
  for (const auto& [name, make] : others) EXPECT_FALSE(is_sharded(in_parts(make))) << name;
}

TEST(MakeInParts, ComputesWhereTheOperandsLie) {
  const Tensor whole = torch::rand({20, 20});
  in_parts([&] {
    const Tensor split = torch::rand({20, 20});
    EXPECT_FALSE(is_sharded(whole.matmul(whole).softmax(1).cumsum(0)));
    EXPECT_FALSE(is_sharded(torch::rand_like(whole)));
    EXPECT_FALSE(is_sharded(std::get<0>(whole.sort())));
    EXPECT_EQ(layout_of(split * 2), layout_of(split));
    EXPECT_FALSE(is_sharded(full(split)));
    return split;
  });
}

TEST(MakeInParts, EndsWithItsLife) {
  {
    const MakeInParts outer(test_mesh(2), 100);
    { const MakeInParts inner(test_mesh(4), 100); }
    EXPECT_EQ(layout_of(torch::zeros({100})).tiles(), 2);
  }
  EXPECT_FALSE(is_sharded(torch::zeros({100})));
}

TEST(MakeInParts, IsForOneThread) {
  const MakeInParts parts(test_mesh(2), 100);
  bool sharded = true;
  std::thread([&] { sharded = is_sharded(torch::zeros({100})); }).join();
  EXPECT_FALSE(sharded);
}

TEST(MakeInParts, InitializersGiveTheSameBits) {
  namespace init = torch::nn::init;
  const std::pair<const char*, std::function<Tensor()>> makers[] = {
      {"zeros",
       [] {
         return torch::zeros({30, 17});
       }},
      {"ones",
       [] {
         return torch::ones({30, 17});
       }},
      {"full",
       [] {
         return torch::full({30, 17}, 2.5);
       }},
      {"rand",
       [] {
         return torch::rand({30, 17});
       }},
      {"randn",
       [] {
         return torch::randn({30, 17}, torch::kDouble);
       }},
      {"kaiming_uniform_",
       [] {
         return init::kaiming_uniform_(torch::empty({30, 17}));
       }},
      {"kaiming_normal_",
       [] {
         return init::kaiming_normal_(torch::empty({8, 4, 3, 3}));
       }},
      {"xavier_uniform_",
       [] {
         return init::xavier_uniform_(torch::empty({30, 17}));
       }},
      {"xavier_normal_",
       [] {
         return init::xavier_normal_(torch::empty({30, 17}));
       }},
      {"constant_",
       [] {
         return init::constant_(torch::empty({30, 17}), 3);
       }},
      {"orthogonal_",
       [] {
         return init::orthogonal_(torch::empty({30, 17}));
       }},
      {"eye_",
       [] {
         return init::eye_(torch::empty({30, 17}));
       }},
      {"a row of zeros",
       [] {
         const torch::NoGradGuard no_grad;
         Tensor x = torch::randn({30, 17});
         x[3].zero_();
         return x;
       }},
  };
  for (const auto& [name, make] : makers) {
    torch::manual_seed(3);
    const Tensor whole = make();
    const Tensor next = torch::rand({4});
    torch::manual_seed(3);
    const Tensor parts = in_parts(make);
    EXPECT_TRUE(is_sharded(parts)) << name;
    EXPECT_TRUE(torch::equal(full(parts), whole)) << name;
    EXPECT_TRUE(torch::equal(torch::rand({4}), next)) << name;
  }
}

TEST(MakeInParts, MakesLeavesForAutograd) {
  const Tensor x = in_parts([] { return torch::ones({20, 10}, torch::requires_grad()); });
  EXPECT_TRUE(x.is_leaf() && x.requires_grad());
  x.square().sum().backward();
  EXPECT_TRUE(torch::equal(full(x.grad()), torch::full({20, 10}, 2.)));
}

}  // namespace
}  // namespace cohort::spmd
