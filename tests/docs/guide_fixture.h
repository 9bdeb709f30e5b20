#pragma once

// What the snippets of docs/guide/ take for granted. Included before anything else, so that their
// assertions are checked in release builds too.
#undef NDEBUG
#include <gmock/gmock.h>

#include <cassert>
#include <iostream>

#include "cohort/cohort.h"

/// Two devices, on any machine.
class Guide : public testing::Test {
 protected:
  Guide() { cohort::configure({.cpu_devices = 2}); }
  ~Guide() override { cohort::configure({}); }
};

namespace guide {

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return out(torch::tanh(hidden(x))); }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(1, 8));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(8, 1));
};
TORCH_MODULE(Net);

}  // namespace guide
