#include "cohort/base/torch_compat.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

#include <thread>
#include <vector>

namespace cohort::torch_compat {
namespace {

at::Tensor make_parameter() { return torch::ones({2}, torch::requires_grad()); }

TEST(TorchCompat, FindsAnOptimizersStateOfAParameter) {
  const at::Tensor stepped = make_parameter(), other = make_parameter();
  torch::optim::Adam adam(std::vector<at::Tensor>{stepped}, torch::optim::AdamOptions(0.1));
  EXPECT_EQ(find_state(adam, stepped), nullptr);

  stepped.sum().backward();
  adam.step();
  auto* const state = find_state(adam, stepped);
  ASSERT_NE(state, nullptr);
  EXPECT_EQ(static_cast<torch::optim::AdamParamState&>(*state).step(), 1);
  EXPECT_EQ(find_state(adam, other), nullptr);
}

TEST(TorchCompat, AskingForAStateDoesNotMakeOne) {
  const at::Tensor parameter = make_parameter();
  torch::optim::Adam adam(std::vector<at::Tensor>{parameter}, torch::optim::AdamOptions(0.1));
  find_state(adam, parameter);
  parameter.sum().backward();
  EXPECT_NO_THROW(adam.step());
}

TEST(TorchCompat, AnOptimizerGoesOnFromAStateThatWasSet) {
  const at::Tensor parameter = make_parameter();
  torch::optim::SGD sgd(std::vector<at::Tensor>{parameter},
                        torch::optim::SGDOptions(1.0).momentum(0.5));
  auto state = std::make_unique<torch::optim::SGDParamState>();
  state->momentum_buffer(torch::full({2}, 4.0));
  set_state(sgd, parameter, std::move(state));

  parameter.sum().backward();
  sgd.step();  // 1 - 1.0 · (0.5 · 4 + 1)
  EXPECT_TRUE(parameter.detach().equal(torch::full({2}, -2.0)));
}

TEST(TorchCompat, KeepsAGradientAccumulatorAlive) {
  const at::Tensor parameter = make_parameter();
  const NodePtr accumulator = torch::autograd::impl::grad_accumulator(parameter);
  EXPECT_EQ(torch::autograd::impl::grad_accumulator(parameter), accumulator);
}

TEST(TorchCompat, SetsAutocastForTheCallingThread) {
  const CpuAutocast before = cpu_autocast();
  EXPECT_FALSE(before.is_enabled);
  set_cpu_autocast({.is_enabled = true, .type = at::kBFloat16});
  EXPECT_EQ(torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type(), at::kBFloat16);
  std::thread([] { EXPECT_FALSE(cpu_autocast().is_enabled); }).join();
  set_cpu_autocast(before);
  at::autocast::clear_cache();
  EXPECT_EQ(torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type(), at::kFloat);
}

TEST(TorchCompat, AnAllocatorIsAskedByItsBase) {
  struct Counting : Allocator<> {
    c10::DataPtr take(std::size_t bytes) const override {
      asked += bytes;
      return c10::GetCPUAllocator()->allocate(bytes);
    }
    mutable std::size_t asked = 0;
  } counting;
  c10::Allocator& base = counting;
  EXPECT_NE(base.allocate(64).get(), nullptr);
  EXPECT_EQ(counting.asked, 64U);
}

TEST(TorchCompat, HandsASpanToLibTorch) {
  const std::vector<std::int64_t> shape = {2, 3};
  EXPECT_EQ(torch::zeros(sizes(shape)).sizes(), at::IntArrayRef({2, 3}));
}

}  // namespace
}  // namespace cohort::torch_compat
