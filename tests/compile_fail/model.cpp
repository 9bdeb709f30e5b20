// A Model of something that can't be one is refused in one line that says what to do.

#include <torch/nn/modules/linear.h>
#include <torch/script.h>

#include "cohort/optim/model.h"

using cohort::Model;
namespace nn = torch::nn;

struct NetImpl : nn::Module {
  NetImpl(int inputs, int outputs) : layer(inputs, outputs) { register_module("layer", layer); }
  at::Tensor forward(const at::Tensor& x) { return layer(x); }
  nn::Linear layer;
};
TORCH_MODULE(Net);

void right() {
  Model<Net> model(64, 10);
  Model<Net> made([] { return Net(64, 10); });
  Model existing(Net(64, 10), [] { return Net(64, 10); });
  Model cloned(nn::Linear(4, 2));
  model.update([](const std::string&, at::Tensor p) { p.zero_(); });
  model.update([](const std::string&, at::Tensor p, const at::Tensor& q) { p.copy_(q); }, made);
}

// case: a module that needs arguments gets them
// error: give Model those that its constructor takes
#if CASE == 1
void f() { Model<Net> model; }
#endif

// case: they must fit
// error: give Model those that its constructor takes
#if CASE == 2
void f() { Model<Net> model("64", 10); }
#endif

// case: a module that can't be cloned needs a factory
// error: this module can't be cloned nor constructed without arguments
#if CASE == 3
void f() { Model model(Net(64, 10)); }
#endif

// case: a scripted module is no module of torch::nn
// error: A torch::jit::Module can't be
#if CASE == 4
void f() { Model<torch::jit::Module> model; }
#endif

// case: the function of update takes a name and a tensor
// error: fn must take (const std::string& name, torch::Tensor parameter)
#if CASE == 5
void f(Model<Net> model) {
  model.update([](at::Tensor p) { p.zero_(); });
}
#endif

// case: and the other model's tensor
// error: fn must take (const std::string& name, torch::Tensor parameter, const torch::Tensor&
#if CASE == 6
void f(Model<Net> model, const Model<Net>& other) {
  model.update([](const std::string&, at::Tensor p) { p.zero_(); }, other);
}
#endif
